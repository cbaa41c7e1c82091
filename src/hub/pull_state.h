// PullState: what the threads of one pull share: how far it is, and whether it is to stop.
//
// Every method may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/status.h"

namespace butter {

class PullState {
 public:
  // A text that lives as long as the program, and the bytes done and in all.
  void begin(const char* what, int64_t total_bytes);
  void set_done(int64_t bytes) { done_ = bytes; }
  void add_done(int64_t bytes) { done_ += bytes; }
  const char* what() const { return what_; }
  int64_t done() const { return done_; }
  int64_t total() const { return total_; }

  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  // False where it is cancelled meanwhile.
  bool sleep(int64_t milliseconds) const;

 private:
  std::atomic<const char*> what_{"asking the hub"};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> total_{0};
  std::atomic<bool> cancelled_{false};
};

inline Error pull_cancelled() {
  return Error(StatusCode::kCancelled, "the pull was stopped");
}

}  // namespace butter
