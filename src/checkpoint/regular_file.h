// Opening what a user names as a file, without trusting that it is one.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace butter {

// An open file descriptor; closed with its owner. Movable.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

struct RegularFile {
  FileDescriptor descriptor;
  uint64_t bytes;  // when it was opened
};

// Opens a regular file for reading and never blocks on anything else: a directory, FIFO, socket or
// device is refused with one sentence, as is what is missing or unreadable.
Result<RegularFile> open_regular_file(const std::string& path);

// The whole of a small text file. One longer than `max_bytes` is refused.
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace butter
