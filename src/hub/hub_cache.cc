#include "hub/hub_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/printable.h"
#include "checkpoint/regular_file.h"
#include "core/whole_file.h"
#include "hub/environment.h"
#include "hub/model_files.h"

namespace butter {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSnapshotFiles = 100000;

tl::unexpected<Error> not_fetched(const ModelReference& reference, const std::string& directory) {
  const std::string name = printable(reference.text(), 300);
  return fail(StatusCode::kNotFound,
              "{}: there is no such file or folder, nor a model of that name in {}; `butter pull {}` gets it",
              name, directory, name);
}

// Names of the files below a snapshot whose blobs are there.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error);
       !error && at != fs::recursive_directory_iterator() && names.size() < kMostSnapshotFiles;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) names.push_back(at->path().lexically_relative(folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool is_commit(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 40 && std::all_of(text.begin(), text.end(), is_hex);
}

Result<HubCache> HubCache::of_user() {
  if (const std::string stated = environment("HF_HUB_CACHE"); !stated.empty()) return HubCache(stated);
  BUTTER_ASSIGN(const std::string home, hugging_face_home());
  return HubCache(home + "/hub");
}

std::string HubCache::repository_path(const std::string& repository) const {
  const size_t slash = repository.find('/');
  return directory_ + "/models--" + repository.substr(0, slash) + "--" + repository.substr(slash + 1);
}

std::string HubCache::blob_path(const std::string& repository, const std::string& etag) const {
  return repository_path(repository) + "/blobs/" + etag;
}

std::string HubCache::snapshot_path(const std::string& repository, const std::string& commit) const {
  return repository_path(repository) + "/snapshots/" + commit;
}

Error HubCache::unusable(const std::string& reason) const {
  return Error(StatusCode::kIo,
               fmt::format("the Hugging Face cache {} cannot be written: {} (HF_HUB_CACHE names "
                           "another)",
                           directory_, reason));
}

Result<std::string> HubCache::commit_of(const ModelReference& reference) const {
  std::error_code ignored;
  if (is_commit(reference.revision)) return reference.revision;
  const std::string ref = repository_path(reference.repository) + "/refs/" + reference.revision;
  if (!fs::exists(ref, ignored)) return not_fetched(reference, directory_);
  BUTTER_ASSIGN(std::string commit, read_text_file(ref, 4096));
  commit.erase(commit.find_last_not_of(" \r\n\t") + 1);
  if (!is_commit(commit)) {
    return fail(StatusCode::kCorrupt, "{} holds \"{}\"; a commit of 40 hexadecimal digits is expected", ref,
                printable(commit));
  }
  return commit;
}

Result<std::string> HubCache::find(const ModelReference& reference) const {
  BUTTER_ASSIGN(const std::string commit, commit_of(reference));
  const std::string snapshot = snapshot_path(reference.repository, commit);
  const std::vector<std::string> names = files_below(snapshot);
  if (names.empty()) return not_fetched(reference, directory_);
  const auto files = choose_model_files(names, reference.file, reference.repository);
  if (files) return files->opened.empty() ? snapshot : snapshot + "/" + files->opened;
  if (files.error().code() != StatusCode::kNotFound) return fail(files.error());
  return fail(StatusCode::kNotFound, "in the cache {}, {}; `butter pull {}` fetches what is missing",
              directory_, files.error().message(), printable(reference.text(), 300));
}

Result<std::string> HubCache::prepare(const std::string& repository) const {
  const std::string folder = repository_path(repository);
  const std::string locks = directory_ + "/.locks/" + fs::path(folder).filename().string();
  for (const std::string& path : {folder + "/blobs", folder + "/snapshots", folder + "/refs", locks}) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return fail(unusable(error.message()));
  }
  if (::access((folder + "/blobs").c_str(), W_OK | X_OK) != 0) return fail(unusable(std::strerror(errno)));
  return locks + "/butter.lock";
}

Status HubCache::link_file(const std::string& repository, const std::string& commit, const std::string& name,
                           const std::string& etag) const {
  const fs::path link = fs::path(snapshot_path(repository, commit)) / name;
  const fs::path target = fs::path(blob_path(repository, etag)).lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return {};
  fs::create_directories(link.parent_path(), error);
  if (error) return fail(unusable(error.message()));
  // A link cannot take the place of another in one step, but a rename can.
  const std::string unfinished = link.string() + fmt::format(".{}", ::getpid());
  fs::remove(unfinished, error);
  fs::create_symlink(target, unfinished, error);
  if (!error) fs::rename(unfinished, link, error);
  if (!error) return {};
  std::error_code ignored;
  fs::remove(unfinished, ignored);
  return fail(unusable(error.message()));
}

Status HubCache::write_ref(const ModelReference& reference, const std::string& commit) const {
  if (reference.revision == commit) return {};
  const std::string path = repository_path(reference.repository) + "/refs/" + reference.revision;
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  const Status written = write_whole_file(path, commit);
  if (!written) return fail(unusable(written.error().message()));
  return {};
}

}  // namespace butter
