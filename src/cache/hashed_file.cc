#include "cache/hashed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace butter {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kNameTries = 100;

std::string system_message(int code) {
  return std::generic_category().message(code);
}

// What stands at `path` must be a file, if anything: rename() would put the new one in its place.
Status check_target(const std::string& path) {
  struct stat info;
  if (path.empty()) return fail(StatusCode::kInvalidArgument, "the file name is empty");
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return fail(StatusCode::kInvalidArgument, "it is no file; a file, or nothing yet, is expected");
  return {};
}

// Makes the name last; not every file system can, and then nothing is lost but speed of mind.
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace

// --- Checksum

struct Checksum::State {
  XXH3_state_t hash;
};

void Checksum::Free::operator()(State* state) const {
  ::operator delete (state, std::align_val_t{alignof(State)});
}

Checksum::Checksum() : state_(new (std::align_val_t{alignof(State)}) State) {
  XXH3_INITSTATE(&state_->hash);
  XXH3_128bits_reset(&state_->hash);
}

void Checksum::add(const void* data, size_t bytes) {
  XXH3_128bits_update(&state_->hash, data, bytes);
}

void Checksum::digest(std::byte* out) const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->hash));
  static_assert(sizeof canonical == kFileChecksumBytes);
  std::copy_n(reinterpret_cast<const std::byte*>(&canonical), sizeof canonical, out);
}

// --- HashedWriter

HashedWriter::HashedWriter(std::string path, std::string unfinished, int fd)
    : path_(std::move(path)), unfinished_(std::move(unfinished)), fd_(fd) {
  buffer_.reserve(kBufferBytes);
}

HashedWriter::HashedWriter(HashedWriter&& other) noexcept
    : path_(std::move(other.path_)),
      unfinished_(std::exchange(other.unfinished_, {})),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      checksum_(std::move(other.checksum_)) {}

HashedWriter::~HashedWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

Result<HashedWriter> HashedWriter::create(const std::string& path) {
  BUTTER_TRY(check_target(path));
  // Not mkstemp(), whose files only their owner may read.
  for (int i = 0; i < kNameTries; ++i) {
    std::string unfinished = fmt::format("{}.{}-{}", path, ::getpid(), i);
    const int fd = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0) return HashedWriter(path, std::move(unfinished), fd);
    if (errno != EEXIST) break;
  }
  return fail(StatusCode::kIo, "no file can be made there: {}", system_message(errno));
}

Status HashedWriter::put(const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t count = ::write(fd_, data, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(StatusCode::kIo, "it cannot be written: {}", system_message(errno));
    data += count;
    bytes -= static_cast<size_t>(count);
  }
  return {};
}

Status HashedWriter::flush() {
  checksum_.add(buffer_.data(), buffer_.size());
  BUTTER_TRY(put(buffer_.data(), buffer_.size()));
  buffer_.clear();
  return {};
}

Status HashedWriter::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const size_t count = std::min(bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + count);
    if (buffer_.size() == kBufferBytes) BUTTER_TRY(flush());
    from += count;
    bytes -= count;
  }
  return {};
}

Status HashedWriter::finish() {
  BUTTER_TRY(flush());
  std::array<std::byte, kFileChecksumBytes> digest;
  checksum_.digest(digest.data());
  BUTTER_TRY(put(digest.data(), digest.size()));
  // EINVAL: the file system has nothing to wait for.
  bool written = ::fsync(fd_) == 0 || errno == EINVAL;
  int error = written ? 0 : errno;
  if (::close(std::exchange(fd_, -1)) != 0 && written) written = false, error = errno;
  if (written && ::rename(unfinished_.c_str(), path_.c_str()) != 0) written = false, error = errno;
  if (!written) return fail(StatusCode::kIo, "it cannot be written: {}", system_message(error));
  unfinished_.clear();
  sync_folder(path_);
  return {};
}

// --- HashedReader

HashedReader::HashedReader(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}

HashedReader::HashedReader(HashedReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      at_(other.at_),
      checksum_(std::move(other.checksum_)) {}

HashedReader::~HashedReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<HashedReader> HashedReader::open(const std::string& path) {
  if (path.empty()) return fail(StatusCode::kInvalidArgument, "the file name is empty");
  // Without O_NONBLOCK the open of a FIFO waits for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return fail(missing ? StatusCode::kNotFound : StatusCode::kIo, "it cannot be opened: {}",
                system_message(errno));
  }
  HashedReader reader(fd, 0);
  struct stat info;
  if (::fstat(fd, &info) != 0) return fail(StatusCode::kIo, "it cannot be opened: {}", system_message(errno));
  if (!S_ISREG(info.st_mode)) return fail(StatusCode::kInvalidArgument, "it is no file; a file is expected");
  reader.bytes_ = info.st_size;
  return reader;
}

Status HashedReader::read(void* to, size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = ::pread(fd_, out + done, bytes - done, at_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(StatusCode::kIo, "it cannot be read: {}", system_message(errno));
    if (count == 0) return fail(StatusCode::kCorrupt, "it ends after {} bytes; more are expected", at_);
    done += static_cast<size_t>(count);
    at_ += count;
  }
  checksum_.add(to, bytes);
  return {};
}

void HashedReader::rewind() {
  at_ = 0;
  checksum_ = Checksum();
}

Status HashedReader::check() {
  std::vector<std::byte> buffer(kBufferBytes);
  while (at_ < bytes_ - kFileChecksumBytes) {
    const int64_t left = bytes_ - kFileChecksumBytes - at_;
    BUTTER_TRY(read(buffer.data(), std::min(buffer.size(), static_cast<size_t>(left))));
  }
  std::array<std::byte, kFileChecksumBytes> computed, stored;
  checksum_.digest(computed.data());
  BUTTER_TRY(read(stored.data(), stored.size()));
  if (computed != stored)
    return fail(StatusCode::kCorrupt, "it is damaged: its checksum is not that of its bytes");
  return {};
}

}  // namespace butter
