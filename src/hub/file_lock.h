// FileLock: held by one owner at a time, over all processes; given back when the process ends, however it
// ends. Movable; released by scope.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/regular_file.h"
#include "core/status.h"

namespace butter {

class FileLock {
 public:
  // Makes the file where it is missing. `on_wait` is asked every tenth of a second whether to wait on; false
  // is kCancelled. What the system refuses is kIo with its reason alone.
  static Result<FileLock> take(const std::string& path, const std::function<bool()>& on_wait);

 private:
  explicit FileLock(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

}  // namespace butter
