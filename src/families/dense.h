// DenseConfig: what every transformer of this table shares, read from config.json or GGUF metadata.
//
// A family reads it with its own defaults, changes what is its own, and turns it into a ModelSpec with the
// standard tensor names of the file's format (families.md sections 5 and 6).
#pragma once

#include <optional>
#include <string>

#include "families/family.h"

namespace butter {

struct DenseConfig {
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  int vocabulary = 0;
  int64_t max_positions = 0;
  float norm_eps = 0;
  Activation activation = Activation::kSilu;
  RopeTable rope;
  bool tied = false;

  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool permuted_qk = false;     // GGUF rows of q and k are in adjacent-pair order
  std::vector<Window> windows;  // one a layer; empty: none has one
};

// Values that a key gets when it is absent; each family has its own.
struct DenseDefaults {
  int kv_heads = 0;  // 0: as many as heads
  int head_dim = 0;  // 0: hidden / heads
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  bool tied = false;
};

Result<DenseConfig> read_dense(const FamilySource& source, const DenseDefaults& defaults);

// The spec with standard tensor names.
Result<ModelSpec> dense_spec(const FamilySource& source, const DenseConfig& config);

// Windows of Qwen configs: only with use_sliding_window, in layers from max_window_layers on, or as
// layer_types says (families.md 6.3).
Result<std::vector<Window>> read_optional_windows(const FamilySource& source, int layers);

}  // namespace butter
