#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace butter {

Result<FileLock> FileLock::take(const std::string& path, const std::function<bool()>& on_wait) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (descriptor.get() < 0) return fail(StatusCode::kIo, "{}", std::strerror(errno));
  while (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(StatusCode::kIo, "{}", std::strerror(errno));
    if (!on_wait()) return fail(StatusCode::kCancelled, "waiting for {} was stopped", path);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return FileLock(std::move(descriptor));
}

}  // namespace butter
