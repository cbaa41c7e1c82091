#include "hub/download.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/printable.h"
#include "hub/digest.h"

namespace butter {
namespace {

std::string partial_path(const std::string& blob) {
  return blob + ".butter-partial";
}

// Bytes that a file takes on the disk; 0 where it is missing.
int64_t allocated_bytes(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

bool is_hex(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// The hash that an ETag is: SHA-256 of files in large storage, else that of a git object.
std::optional<Digest> digest_of_etag(const HubFile& file) {
  if (!is_hex(file.etag)) return std::nullopt;
  if (file.etag.size() == 64) return Digest(Digest::Kind::kSha256);
  if (file.etag.size() != 40) return std::nullopt;
  Digest digest(Digest::Kind::kSha1);
  digest.update(fmt::format("blob {}", file.bytes));
  digest.update(std::string_view("\0", 1));
  return digest;
}

// The ranges of one file, fetched by several threads, each with a connection of its own.
class RangeFetch {
 public:
  RangeFetch(const HubServer& server, const ModelReference& reference, const std::string& commit,
             const HubFile& file, PartialFile& partial, PullState& state)
      : server_(server),
        reference_(reference),
        commit_(commit),
        file_(file),
        partial_(partial),
        state_(state) {
    for (size_t i = 0; i < partial.ranges(); ++i) {
      if (!partial.range(i).is_whole()) open_.push_back(i);
    }
  }

  Result<HubClient::Fetched> run(int connections) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min<size_t>(static_cast<size_t>(connections), open_.size()); ++i)
      threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (error_) return fail(*error_);
    return ignored_ ? HubClient::Fetched::kRangeIgnored : HubClient::Fetched::kAll;
  }

 private:
  void work() {
    HubClient client(server_, state_);
    for (size_t next = next_++; next < open_.size() && !stopped_; next = next_++) {
      const auto fetched = fetch_range(client, open_[next]);
      if (!fetched) stop(fetched.error());
      if (fetched && *fetched == HubClient::Fetched::kRangeIgnored) ignored_ = stopped_ = true;
    }
  }

  Result<HubClient::Fetched> fetch_range(HubClient& client, size_t index) {
    const PartialFile::Range& range = partial_.range(index);
    HubClient::Part part;
    part.from = range.begin + range.done;
    part.end = range.end;
    part.sink = [&](std::string_view bytes) {
      if (stopped_) return false;
      if (const Status written = partial_.append(index, bytes); !written) {
        stop(written.error());
        return false;
      }
      state_.add_done(static_cast<int64_t>(bytes.size()));
      return true;
    };
    return client.fetch(reference_, commit_, file_, std::move(part));
  }

  // The first error is the one that is told: the others follow from it.
  void stop(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!stopped_.exchange(true)) error_ = error;
  }

  const HubServer& server_;
  const ModelReference& reference_;
  const std::string& commit_;
  const HubFile& file_;
  PartialFile& partial_;
  PullState& state_;
  std::vector<size_t> open_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> ignored_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Download::Download(const HubCache& cache, const HubServer& server, const ModelReference& reference,
                   std::string commit, TransferSizes sizes, PullState& state)
    : cache_(cache),
      server_(server),
      reference_(reference),
      commit_(std::move(commit)),
      sizes_(sizes),
      state_(state) {}

Result<bool> Download::fetch(const std::vector<HubFile>& files) {
  std::vector<HubFile> missing;
  for (const HubFile& file : files) {
    BUTTER_ASSIGN(const bool is_there, is_whole(file, cache_.blob_path(reference_.repository, file.etag)));
    const auto is_same = [&](const HubFile& other) { return other.etag == file.etag; };
    if (!is_there && std::none_of(missing.begin(), missing.end(), is_same)) missing.push_back(file);
  }
  BUTTER_TRY(check_room(missing));
  for (const HubFile& file : missing) total_bytes_ += file.bytes;
  for (const HubFile& file : missing) {
    BUTTER_TRY(fetch_file(file));
    finished_bytes_ += file.bytes;
  }
  return !missing.empty();
}

// Whether a file has the length and the hash of what it is to be. False too where it is missing.
Result<bool> Download::is_whole(const HubFile& file, const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error || static_cast<int64_t>(bytes) != file.bytes) return false;
  auto digest = digest_of_etag(file);
  if (!digest) return true;
  state_.begin("checking", file.bytes);
  const auto found = digest_of_file(path, std::move(*digest), [&](int64_t done) {
    state_.set_done(done);
    return !state_.cancelled();
  });
  if (state_.cancelled()) return fail(pull_cancelled());
  return found && *found == file.etag;
}

Status Download::check_room(const std::vector<HubFile>& files) const {
  int64_t needed = 0;
  for (const HubFile& file : files) {
    const std::string blob = cache_.blob_path(reference_.repository, file.etag);
    needed += std::max<int64_t>(0, file.bytes - allocated_bytes(partial_path(blob)));
  }
  struct statvfs disk = {};
  if (::statvfs(cache_.repository_path(reference_.repository).c_str(), &disk) != 0) return {};
  const auto room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (static_cast<double>(needed) <= room) return {};
  return fail(StatusCode::kIo,
              "{} needs {} more bytes; {:.0f} are free on the disk of {} (HF_HUB_CACHE names another)",
              reference_.text(), needed, room, cache_.directory());
}

Status Download::fetch_file(const HubFile& file) {
  const std::string blob = cache_.blob_path(reference_.repository, file.etag);
  BUTTER_ASSIGN(PartialFile partial, PartialFile::open(partial_path(blob), file.bytes, sizes_.range_bytes));
  for (;;) {
    const bool is_resumed = partial.is_resumed();
    show_download(partial.done_bytes());
    BUTTER_TRY(fill(file, partial));
    BUTTER_TRY(partial.complete());
    BUTTER_ASSIGN(const bool is_right, is_whole(file, partial.path()));
    if (is_right) return partial.rename_to(blob);
    if (!is_resumed) break;
    // What an earlier pull left may be damaged where this one's bytes are right.
    BUTTER_TRY(partial.restart());
  }
  partial.remove();
  return fail(StatusCode::kCorrupt, "{} came with another content than the hash {} says; it was not kept",
              printable(file.name), file.etag);
}

Status Download::fill(const HubFile& file, PartialFile& partial) {
  if (partial.done_bytes() == file.bytes) return {};
  RangeFetch ranges(server_, reference_, commit_, file, partial, state_);
  BUTTER_ASSIGN(const auto fetched, ranges.run(sizes_.connections));
  if (fetched == HubClient::Fetched::kAll) return {};
  BUTTER_TRY(partial.restart());
  return fill_from_start(file, partial);
}

// From a server that gives whole files only.
Status Download::fill_from_start(const HubFile& file, PartialFile& partial) {
  size_t index = 0;
  Status written;
  HubClient::Part part;
  part.end = file.bytes;
  part.whole = true;
  part.sink = [&](std::string_view bytes) {
    while (!bytes.empty() && written) {
      const PartialFile::Range& range = partial.range(index);
      const auto room = static_cast<size_t>(range.end - range.begin - range.done);
      written = partial.append(index, bytes.substr(0, room));
      bytes.remove_prefix(std::min(room, bytes.size()));
      if (range.is_whole()) ++index;
    }
    state_.set_done(finished_bytes_ + partial.done_bytes());
    return written.has_value();
  };
  part.restart = [&] {
    index = 0;
    written = partial.restart();
    return written.has_value();
  };
  show_download(0);
  HubClient client(server_, state_);
  const auto fetched = client.fetch(reference_, commit_, file, std::move(part));
  BUTTER_TRY(written);
  BUTTER_TRY(fetched);
  return {};
}

void Download::show_download(int64_t done_bytes) {
  state_.begin("downloading", total_bytes_);
  state_.set_done(finished_bytes_ + done_bytes);
}

}  // namespace butter
