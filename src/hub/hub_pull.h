// Fetching a model from the hub into the Hugging Face cache: the story of `butter pull org/name`.
#pragma once

#include <functional>
#include <string>

#include "hub/download.h"

namespace butter {

struct HubSettings {
  HubCache cache{""};
  HubServer server;
  TransferSizes sizes;

  // What the environment says: hub/environment.h, HubCache::of_user().
  static Result<HubSettings> of_user();
};

struct HubModel {
  std::string path;  // as HubCache::find() gives it
  int64_t bytes = 0;
  bool was_there = false;  // whole and right already
};

// `tell` is called on the calling thread, about ten times a second, with what is under way, and returns false
// to stop (kCancelled). Pulls of a repository wait for one another. The model is found under its revision
// when all its files are whole, and not before.
Result<HubModel> pull_from_hub(
    const ModelReference& reference, const HubSettings& settings,
    const std::function<bool(const char* what, int64_t done, int64_t total)>& tell);

}  // namespace butter
