#include "hub/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/check.h"

namespace butter {
namespace {

constexpr int64_t kMagic = 0x3154524150544854;  // says that what follows are counters of this layout
constexpr int64_t kWord = sizeof(int64_t);
constexpr int64_t kHeadWords = 3;

bool read_words(int fd, int64_t at, std::vector<int64_t>& words) {
  const size_t bytes = words.size() * sizeof(int64_t);
  return ::pread(fd, words.data(), bytes, at) == static_cast<ssize_t>(bytes);
}

std::string_view bytes_of(const std::vector<int64_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t)};
}

}  // namespace

PartialFile::PartialFile(std::string path, FileDescriptor descriptor, int64_t total_bytes,
                         int64_t range_bytes)
    : path_(std::move(path)),
      descriptor_(std::move(descriptor)),
      total_bytes_(total_bytes),
      range_bytes_(range_bytes) {
  for (int64_t begin = 0; begin < total_bytes; begin += range_bytes)
    ranges_.push_back({begin, std::min(total_bytes, begin + range_bytes), 0});
}

Result<PartialFile> PartialFile::open(const std::string& path, int64_t total_bytes, int64_t range_bytes) {
  BUTTER_CHECK(total_bytes >= 0 && range_bytes > 0);
  FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  struct stat info = {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &info) != 0)
    return fail(StatusCode::kIo, "{} cannot be made: {}", path, std::strerror(errno));
  PartialFile file(path, std::move(descriptor), total_bytes, range_bytes);
  file.resumed_ = file.take_up(info.st_size);
  if (!file.resumed_) BUTTER_TRY(file.restart());
  return file;
}

bool PartialFile::take_up(int64_t file_bytes) {
  if (total_bytes_ > 0 && file_bytes == total_bytes_) {  // complete, but not yet under its name
    for (Range& range : ranges_) range.done = range.end - range.begin;
    return true;
  }
  std::vector<int64_t> words(kHeadWords + ranges_.size());
  if (file_bytes != counter_offset(ranges_.size()) || !read_words(descriptor_.get(), total_bytes_, words) ||
      words[0] != kMagic || words[1] != total_bytes_ || words[2] != range_bytes_) {
    return false;
  }
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const int64_t done = words[kHeadWords + i];
    if (done < 0 || done > ranges_[i].end - ranges_[i].begin) return false;
  }
  for (size_t i = 0; i < ranges_.size(); ++i) ranges_[i].done = words[kHeadWords + i];
  return true;
}

int64_t PartialFile::counter_offset(size_t index) const {
  return total_bytes_ + (kHeadWords + static_cast<int64_t>(index)) * kWord;
}

int64_t PartialFile::done_bytes() const {
  int64_t bytes = 0;
  for (const Range& range : ranges_) bytes += range.done;
  return bytes;
}

Status PartialFile::write_at(int64_t at, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(StatusCode::kIo, "{} cannot be written: {}", path_, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(count));
    at += count;
  }
  return {};
}

Status PartialFile::append(size_t index, std::string_view bytes) {
  Range& range = ranges_[index];
  BUTTER_CHECK(static_cast<int64_t>(bytes.size()) <= range.end - range.begin - range.done);
  BUTTER_TRY(write_at(range.begin + range.done, bytes));
  range.done += static_cast<int64_t>(bytes.size());
  return write_at(counter_offset(index), {reinterpret_cast<const char*>(&range.done), sizeof range.done});
}

Status PartialFile::restart() {
  resumed_ = false;
  for (Range& range : ranges_) range.done = 0;
  std::vector<int64_t> words(kHeadWords + ranges_.size(), 0);
  words[0] = kMagic;
  words[1] = total_bytes_;
  words[2] = range_bytes_;
  if (::ftruncate(descriptor_.get(), 0) != 0 ||
      ::ftruncate(descriptor_.get(), counter_offset(ranges_.size())) != 0)
    return fail(StatusCode::kIo, "{} cannot be written: {}", path_, std::strerror(errno));
  return write_at(total_bytes_, bytes_of(words));
}

Status PartialFile::complete() {
  BUTTER_CHECK(done_bytes() == total_bytes_);
  if (::ftruncate(descriptor_.get(), total_bytes_) == 0 && ::fsync(descriptor_.get()) == 0) return {};
  return fail(StatusCode::kIo, "{} cannot be written: {}", path_, std::strerror(errno));
}

Status PartialFile::rename_to(const std::string& path) {
  if (::rename(path_.c_str(), path.c_str()) == 0) return {};
  return fail(StatusCode::kIo, "{} cannot be renamed: {}", path_, std::strerror(errno));
}

void PartialFile::remove() {
  ::unlink(path_.c_str());
}

}  // namespace butter
