// ReadBandwidth: how fast this machine's threads can read a buffer, as the limit that a decode step is held
// against.
//
// A decode step reads every weight and every cached row once. The limit is measured on a buffer of that many
// bytes, by as many threads, each reading its own part from front to back; it must be an upper bound, so the
// loops use the widest registers there are, several streams and accumulators, and huge pages, and the best
// pass counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace butter::cli {

class ReadBandwidth {
 public:
  // Allocates and fills `bytes`, each thread its part. Throws Failure where the machine has not got them.
  ReadBandwidth(int64_t bytes, int threads);
  ~ReadBandwidth();
  ReadBandwidth(const ReadBandwidth&) = delete;
  ReadBandwidth& operator=(const ReadBandwidth&) = delete;

  // Reads the buffer `passes` times, at least, and for at least a fifth of a second; the best so far, in
  // bytes a second, over all calls.
  double measure(int passes = 5);

 private:
  double one_pass(int streams);

  int64_t bytes_;
  int threads_;
  std::byte* data_ = nullptr;
  double best_ = 0;
};

}  // namespace butter::cli
