#include "hub/hub_pull.h"

#include <csignal>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "hub/environment.h"
#include "hub/file_lock.h"
#include "hub/model_files.h"

namespace butter {
namespace {

// Runs in a thread of its own, so that nothing that a server does keeps the caller from stopping it.
Result<HubModel> pull_all(const ModelReference& reference, const HubSettings& settings, PullState& state) {
  const HubCache& cache = settings.cache;
  HubClient client(settings.server, state);
  BUTTER_ASSIGN(const HubListing listing, client.list(reference));
  BUTTER_ASSIGN(const ModelFiles chosen,
                choose_model_files(listing.names, reference.file, reference.repository));
  BUTTER_ASSIGN(const std::string lock_path, cache.prepare(reference.repository));
  const auto lock = FileLock::take(lock_path, [&] {
    state.begin("waiting for another pull", 0);
    return !state.cancelled();
  });
  if (state.cancelled()) return fail(pull_cancelled());
  if (!lock) return fail(cache.unusable(lock.error().message()));

  state.begin("asking the hub", 0);
  std::vector<HubFile> files;
  HubModel model;
  for (const std::string& name : chosen.names) {
    BUTTER_ASSIGN(HubFile file, client.look_up(reference, listing.commit, name));
    model.bytes += file.bytes;
    files.push_back(std::move(file));
  }
  Download download(cache, settings.server, reference, listing.commit, settings.sizes, state);
  BUTTER_ASSIGN(const bool any_fetched, download.fetch(files));
  model.was_there = !any_fetched;
  for (const HubFile& file : files)
    BUTTER_TRY(cache.link_file(reference.repository, listing.commit, file.name, file.etag));
  BUTTER_TRY(cache.write_ref(reference, listing.commit));
  model.path = cache.snapshot_path(reference.repository, listing.commit);
  if (!chosen.opened.empty()) model.path += "/" + chosen.opened;
  return model;
}

// A connection that breaks while it is written to sends SIGPIPE to the thread, and the signals of the
// terminal are the caller's. Threads started from here inherit it.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

Result<HubSettings> HubSettings::of_user() {
  HubSettings settings;
  BUTTER_ASSIGN(settings.cache, HubCache::of_user());
  auto endpoint = parse_url(hub_endpoint());
  if (!endpoint) return fail(endpoint.error().within("HF_ENDPOINT"));
  settings.server.endpoint = std::move(*endpoint);
  if (settings.server.endpoint.path.find('?') != std::string::npos)
    return fail(StatusCode::kInvalidArgument, "HF_ENDPOINT has a query; https://host is expected");
  BUTTER_ASSIGN(settings.server.token, hub_token());
  return settings;
}

Result<HubModel> pull_from_hub(
    const ModelReference& reference, const HubSettings& settings,
    const std::function<bool(const char* what, int64_t done, int64_t total)>& tell) {
  HubSettings own = settings;
  if (own.server.endpoint.path.empty() || own.server.endpoint.path.back() != '/')
    own.server.endpoint.path += '/';
  PullState state;
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<HubModel>> result;
  std::thread story([&] {
    block_signals();
    auto pulled = pull_all(reference, own, state);
    const std::lock_guard lock(mutex);
    result = std::move(pulled);
    ended.notify_one();
  });
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return result.has_value(); })) {
    lock.unlock();
    if (!tell(state.what(), state.done(), state.total())) state.cancel();
    lock.lock();
  }
  lock.unlock();
  story.join();
  return std::move(*result);
}

}  // namespace butter
