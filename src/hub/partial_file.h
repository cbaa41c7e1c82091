// PartialFile: a download that is not whole yet, in ranges that come at the same time, and may go on in
// another process.
//
//   content[total_bytes] | magic:8 | total:i64 | range_bytes:i64 | done:i64[ranges]
//
// The file has its full length from the start, with holes; what follows the content says how far each range
// is, and is cut off when the content is complete. A range's bytes are written before they are counted, so
// that a killed process leaves no more counted than there is; after a crash of the machine the hash tells.
// Calls for different ranges may come from different threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/regular_file.h"
#include "core/status.h"

namespace butter {

class PartialFile {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t done = 0;  // bytes from begin on
    bool is_whole() const { return begin + done == end; }
  };

  // Takes up what is at `path` where it is a partial file of the same sizes, else begins anew.
  static Result<PartialFile> open(const std::string& path, int64_t total_bytes, int64_t range_bytes);

  const std::string& path() const { return path_; }
  bool is_resumed() const { return resumed_; }
  int64_t done_bytes() const;
  size_t ranges() const { return ranges_.size(); }
  const Range& range(size_t index) const { return ranges_[index]; }

  // Writes behind what the range has; fits in it.
  Status append(size_t index, std::string_view bytes);
  // Forgets what there is.
  Status restart();
  // When all ranges are whole: syncs the content and cuts off the rest.
  Status complete();
  // Gives it its final name. `complete` came before.
  Status rename_to(const std::string& path);
  // A whole content that turned out wrong.
  void remove();

 private:
  PartialFile(std::string path, FileDescriptor descriptor, int64_t total_bytes, int64_t range_bytes);
  bool take_up(int64_t file_bytes);
  Status write_at(int64_t at, std::string_view bytes);
  int64_t counter_offset(size_t index) const;

  std::string path_;
  FileDescriptor descriptor_;
  int64_t total_bytes_;
  int64_t range_bytes_;
  bool resumed_ = false;
  std::vector<Range> ranges_;
};

}  // namespace butter
