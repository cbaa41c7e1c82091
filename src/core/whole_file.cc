#include "core/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace butter {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

Status write_whole_file(const std::string& path, std::string_view text) {
  // Not mkstemp, which makes files that nobody but their owner reads, whatever the umask says.
  static std::atomic<int> serial{0};
  const std::string unfinished = fmt::format("{}.{}-{}", path, ::getpid(), serial++);
  const int fd = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return fail(StatusCode::kIo, "{}: no file can be made there: {}", path, std::strerror(errno));
  bool written = write_all(fd, text) && ::fsync(fd) == 0;
  int error = errno;
  written = ::close(fd) == 0 && written;
  if (written && ::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  if (written) error = errno;
  ::unlink(unfinished.c_str());
  return fail(StatusCode::kIo, "{} cannot be written: {}", path, std::strerror(error));
}

}  // namespace butter
