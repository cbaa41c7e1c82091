// Mamba2 (families.md 6.14), and the Mamba2 mixer of the hybrid families.
#pragma once

#include "families/family.h"
#include "families/tensor_names.h"

namespace butter {

struct Mamba2Config {
  int hidden = 0;
  int heads = 0;
  int head_dim = 0;
  int groups = 1;
  int state_size = 0;
  int taps = 4;
  bool conv_bias = true;
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  OutputNorm output = OutputNorm::kGateThenNorm;
  int norm_groups = 1;
  float norm_eps = 1e-5f;
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};
};

// What the keys of a family's config.json are called, and their defaults. Null: there is no key.
struct Mamba2Keys {
  const char* heads = "mamba_n_heads";
  const char* head_dim = "mamba_d_head";
  const char* groups = "mamba_n_groups";
  const char* state_size = "mamba_d_state";
  const char* taps = "mamba_d_conv";
  const char* conv_bias = "mamba_conv_bias";
  int default_heads = 128;
  int default_head_dim = 0;  // 0, or "auto" in the file: inner width / heads
  int default_groups = 1;
  int default_state_size = 256;
};

// From config.json or, by its own keys, GGUF metadata. `inner`: heads · head_dim where head_dim is not
// stated.
Result<Mamba2Config> read_mamba2(const FamilySource& source, int hidden, const Mamba2Keys& keys,
                                 int64_t inner);

// A number of config.json that may stand there as "auto", which is as good as absent.
Result<int64_t> read_number_or_auto(const Attributes& config, const char* key, int64_t otherwise);

// Convolutions of recurrent layers are followed by SiLU: refuses a configuration whose `key` states another
// function.
Status check_silu(const Attributes& config, const char* key);

// time_step_limit of config.json: what dt is held within.
Status read_dt_limit(const Attributes& config, Mamba2Config& mamba);

// The mixer whose tensors have these names: "in_proj" or "ssm_in" and so on. Projections have biases where
// the file has them.
Mamba2Spec mamba2_mixer(const TensorNames& names, const Mamba2Config& config);

Result<ModelSpec> mamba2_spec(const FamilySource& source);

}  // namespace butter
