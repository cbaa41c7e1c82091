#include "cli/logits_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/failure.h"
#include "cli/interrupt.h"

namespace butter::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

// The header goes before the rows, whose number is known last: it gets a place of a fixed length.
constexpr size_t kHeaderBytes = 248;
constexpr size_t kDataStart = 8 + kHeaderBytes;

std::string header_of(int64_t rows, int64_t columns) {
  std::string json = fmt::format(R"({{"logits":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})",
                                 rows, columns, rows * columns * static_cast<int64_t>(sizeof(float)));
  json.resize(kHeaderBytes, ' ');
  std::string header(8, '\0');
  const uint64_t length = kHeaderBytes;
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace

LogitsFile::LogitsFile(const std::string& path) : path_(path), unfinished_path_(path + ".XXXXXX") {
  struct stat status = {};
  if (path.empty()) refuse("--dump-logits is empty; a file name is expected");
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    refuse("--dump-logits is {}, which is a folder; a file name is expected", path);
  }
  fd_ = ::mkostemp(unfinished_path_.data(), O_CLOEXEC);
  if (fd_ < 0) refuse("--dump-logits {}: no file can be made there: {}", path, std::strerror(errno));
  remove_on_signal(unfinished_path_.c_str());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd_, 0666 & ~mask) != 0) error_ = errno;
  const std::string place(kDataStart, ' ');
  write(place.data(), place.size());
}

LogitsFile::~LogitsFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(unfinished_path_.c_str());
  remove_on_signal(nullptr);
}

void LogitsFile::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0 && error_ == 0) {
    const ssize_t written = ::write(fd_, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      error_ = errno;
      return;
    }
    at += written;
    bytes -= static_cast<size_t>(written);
  }
}

void LogitsFile::append(std::span<const float> logits) {
  columns_ = static_cast<int64_t>(logits.size());
  ++rows_;
  write(logits.data(), logits.size_bytes());
}

void LogitsFile::finish() {
  const std::string header = header_of(rows_, columns_);
  if (error_ == 0 && ::lseek(fd_, 0, SEEK_SET) != 0) error_ = errno;
  write(header.data(), header.size());
  if (error_ == 0 && ::fsync(fd_) != 0 && errno != EINVAL) error_ = errno;
  if (error_ == 0 && std::rename(unfinished_path_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (error_ != 0) refuse("--dump-logits {} cannot be written: {}", path_, std::strerror(error_));
  ::close(fd_);
  fd_ = -1;
  remove_on_signal(nullptr);
}

}  // namespace butter::cli
