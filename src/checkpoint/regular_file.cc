#include "checkpoint/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "checkpoint/printable.h"

namespace butter {
namespace {

std::string system_message(int code) {
  return std::generic_category().message(code);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

tl::unexpected<Error> cannot_open(const std::string& path, int code) {
  const bool missing = code == ENOENT || code == ENOTDIR;
  return fail(missing ? StatusCode::kNotFound : StatusCode::kIo, "{} cannot be opened: {}",
              printable(path, 500), system_message(code));
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RegularFile> open_regular_file(const std::string& path) {
  if (path.empty()) return fail(StatusCode::kInvalidArgument, "a file name is empty");
  if (path.find('\0') != std::string::npos)
    return fail(StatusCode::kInvalidArgument, "the file name {} holds a NUL byte", printable(path, 500));
  // Without O_NONBLOCK the open of a FIFO waits for a writer.
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (descriptor.get() < 0) return cannot_open(path, errno);
  struct stat info;
  if (::fstat(descriptor.get(), &info) != 0) return cannot_open(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return fail(StatusCode::kInvalidArgument, "{} is {}; a file is expected", printable(path, 500),
                kind_of(info.st_mode));
  }
  return RegularFile{std::move(descriptor), static_cast<uint64_t>(std::max<off_t>(info.st_size, 0))};
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
  BUTTER_ASSIGN(const RegularFile file, open_regular_file(path));
  if (file.bytes > max_bytes) {
    return fail(StatusCode::kLimit, "{} has {} bytes; at most {} are expected", printable(path, 500),
                file.bytes, max_bytes);
  }
  std::string text(file.bytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.descriptor.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(StatusCode::kIo, "{} cannot be read: {}", printable(path, 500), system_message(errno));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace butter
