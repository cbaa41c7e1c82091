// Rope tables from configurations: base, partial rotation and scaling, folded into inv_freq
// (families.md 3.5).
#pragma once

#include "families/family.h"

namespace butter {

struct RopeDefaults {
  double theta = 10000;
  double partial = 1;
  bool truncate = true;  // YaRN's ramp at whole pairs: not stated in GGUF files
  double original = 0;   // positions before scaling, where they are stated beside it
};

// From config.json: rope_parameters, or rope_scaling with top-level rope_theta. `head_dim` and the partial
// factor give the rotated width, which must be even.
Result<RopeTable> read_hf_rope(const Attributes& config, int head_dim, const RopeDefaults& defaults,
                               int64_t max_positions);

// The object of rope parameters that config.json has, an empty one if none.
Result<Attributes> find_hf_rope_object(const Attributes& config);

// From an object of rope parameters, which may say its own theta and partial factor.
Result<RopeTable> read_hf_rope_object(const Attributes& parameters, int head_dim,
                                      const RopeDefaults& defaults, int64_t max_positions);

// From GGUF metadata (`prefix` is "llama.") and, where the file has them, tensors of divisors: rope_freqs, or
// rope_factors_short and rope_factors_long.
Result<RopeTable> read_gguf_rope(const FamilySource& source, const std::string& prefix, int head_dim,
                                 const RopeDefaults& defaults);

// Whether GGUF files keep divisors in a tensor of this name.
bool is_rope_tensor(std::string_view name);

// The table of sliding layers, where GGUF metadata has one beside the common one: rope.freq_base_swa, `theta`
// where it is absent, and rope.dimension_count_swa, the whole head.
Result<RopeTable> read_gguf_sliding_rope(const FamilySource& source, int head_dim, double theta);

}  // namespace butter
