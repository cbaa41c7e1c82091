// MlxConfig: what config.json says of the tensors that MLX quantised.
//
//   "quantization": {"group_size": 64, "bits": 4, "mode": "affine",
//                    "model.layers.3.mlp.down_proj": {"group_size": 32, "bits": 8}, "lm_head": false}
//
// The object may be named quantization_config too (other quantisers' objects of that name say quant_method,
// and are none of this). A module is named as its tensors are, without ".weight"; `false` leaves it as it
// was, `true` is as good as nothing, and an object holds instead of the outer keys. Where one says nothing,
// MLX's defaults do: affine, 4 bits, groups of 64; but bits and groups of all must be stated. Untrusted, as
// all of config.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/attributes.h"
#include "core/status.h"

namespace butter {

struct MlxSetting {
  int bits = 0;            // 2, 3, 4, 5, 6 or 8
  int group = 0;           // 32, 64 or 128
  bool exponents = false;  // mode mxfp4: FP4 numbers, a power of two for every 32
};

class MlxConfig {
 public:
  // Nothing where config.json speaks of no such quantisation. Bits, groups and modes that there are not are
  // errors, of modules too, and so is anything else under a module's name.
  static Result<std::optional<MlxConfig>> read(const Attributes& config);

  // Of a module; nothing where it is said not to be quantised.
  std::optional<MlxSetting> setting(std::string_view module) const;
  // Modules that are spoken of by name.
  const std::map<std::string, std::optional<MlxSetting>, std::less<>>& modules() const { return modules_; }

 private:
  MlxSetting all_;
  std::map<std::string, std::optional<MlxSetting>, std::less<>> modules_;
};

}  // namespace butter
