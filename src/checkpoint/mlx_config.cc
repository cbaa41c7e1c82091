#include "checkpoint/mlx_config.h"

#include <algorithm>
#include <iterator>

namespace butter {
namespace {

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {32, 64, 128};

template <size_t count>
bool contains(const int (&values)[count], int64_t value) {
  return std::find(std::begin(values), std::end(values), value) != std::end(values);
}

Status check_number(const Attributes& object, const char* key, bool holds, std::string_view expected) {
  if (holds) return {};
  return fail(StatusCode::kUnsupported, "{} is {}; {} is expected", object.full_name(key),
              object.describe(key), expected);
}

// An object's own keys hold, and MLX's defaults: nothing is taken over from the object around it.
Result<MlxSetting> read_setting(const Attributes& object) {
  BUTTER_ASSIGN(const std::string mode, object.get_string_or("mode", "affine"));
  if (mode != "affine" && mode != "mxfp4") {
    return fail(StatusCode::kUnsupported, "{} is {}; affine or mxfp4 is expected", object.full_name("mode"),
                object.describe("mode"));
  }
  MlxSetting setting;
  setting.exponents = mode == "mxfp4";
  BUTTER_ASSIGN(const int64_t bits, object.get_int_or("bits", 4));
  BUTTER_ASSIGN(const int64_t group, object.get_int_or("group_size", setting.exponents ? 32 : 64));
  if (setting.exponents) {
    BUTTER_TRY(check_number(object, "bits", bits == 4, "4, with mode mxfp4,"));
    BUTTER_TRY(check_number(object, "group_size", group == 32, "32, with mode mxfp4,"));
  } else {
    BUTTER_TRY(check_number(object, "bits", contains(kBits, bits), "2, 3, 4, 5, 6 or 8"));
    BUTTER_TRY(check_number(object, "group_size", contains(kGroups, group), "32, 64 or 128"));
  }
  setting.bits = static_cast<int>(bits);
  setting.group = static_cast<int>(group);
  return setting;
}

// Whether the object of that name is MLX's: those of others say quant_method, or neither bits nor groups
// under the name that they share with it.
bool is_of_mlx(const Attributes& object, std::string_view name) {
  if (object.has("quant_method")) return false;
  return name == "quantization" || object.has("bits") || object.has("group_size");
}

// Nothing where no MLX quantisation is spoken of.
Result<std::optional<Attributes>> find_object(const Attributes& config) {
  for (const char* name : {"quantization", "quantization_config"}) {
    if (config.kind(name) != AttributeKind::kObject) continue;
    BUTTER_ASSIGN(const Attributes object, config.get_object(name));
    if (!is_of_mlx(object, name)) continue;
    for (const char* key : {"bits", "group_size"}) BUTTER_TRY(object.get_int(key));
    return std::optional(object);
  }
  return std::optional<Attributes>();
}

// What stands under a module's name: `all` for true, nothing for false.
Result<std::optional<MlxSetting>> read_module(const Attributes& object, std::string_view module,
                                              const MlxSetting& all) {
  switch (object.kind(module)) {
    case AttributeKind::kObject: {
      BUTTER_ASSIGN(const Attributes own, object.get_object(module));
      return read_setting(own);
    }
    case AttributeKind::kBool: {
      BUTTER_ASSIGN(const bool quantised, object.get_bool(module));
      return quantised ? std::optional(all) : std::nullopt;
    }
    default:
      return fail(StatusCode::kCorrupt, "{} is {}; an object, true or false is expected",
                  object.full_name(module), object.describe(module));
  }
}

}  // namespace

Result<std::optional<MlxConfig>> MlxConfig::read(const Attributes& config) {
  BUTTER_ASSIGN(const std::optional<Attributes> object, find_object(config));
  if (!object) return std::optional<MlxConfig>();
  MlxConfig mlx;
  BUTTER_ASSIGN(mlx.all_, read_setting(*object));
  for (const std::string_view key : object->keys()) {
    const bool is_own = key == "bits" || key == "group_size" || key == "mode";
    if (is_own || object->is_null(key)) continue;
    BUTTER_ASSIGN(mlx.modules_[std::string(key)], read_module(*object, key, mlx.all_));
  }
  return std::optional(std::move(mlx));
}

std::optional<MlxSetting> MlxConfig::setting(std::string_view module) const {
  const auto own = modules_.find(module);
  return own == modules_.end() ? std::optional(all_) : own->second;
}

}  // namespace butter
