// The experts of a layer: how many, how they are routed, and where their matrices stand (families.md 3.8, 5).
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "families/family.h"
#include "families/tensor_names.h"

namespace butter {

struct ExpertsConfig {
  Routing routing;
  int hidden = 0;  // columns of what the experts read
  int width = 0;   // of an expert
  int shared_width = 0;
  GateFunction function;
  bool gated = true;  // else up and down alone
};

// What a family calls its experts behind a layer's prefix.
struct ExpertNames {
  const char* each = "mlp.experts.";        // "0.gate_proj.weight" of each, or "gate_up_proj" of all
  const char* stacked = "mlp.switch_mlp.";  // MLX: "gate_proj.weight" of all
  const char* up = "up_proj";               // in `each`
  const char* down = "down_proj";
  const char* stacked_up = "up_proj";  // in `stacked`
  const char* stacked_down = "down_proj";
};

// Keys of config.json or GGUF metadata; a value that is absent is 0 or what the family gives.
struct ExpertKeys {
  const char* experts = "num_experts";
  const char* other_experts = "num_local_experts";
  const char* chosen = "num_experts_per_tok";
  const char* width = "moe_intermediate_size";
  const char* shared_width = "shared_expert_intermediate_size";
};

struct ExpertDefaults {
  int experts = 0;
  int chosen = 0;
  int width = 0;
  int shared_width = 0;
};

// Counts and widths, for a model of so many layers. Without experts in the configuration, routing.experts is
// 0 and nothing else is asked for.
struct ExpertModel {
  int hidden = 0;
  int layers = 0;
};
Result<ExpertsConfig> read_experts(const FamilySource& source, const ExpertModel& model,
                                   const ExpertKeys& keys, const ExpertDefaults& defaults);

// expert_gating_func of GGUF metadata: how scores become weights. Where a file with experts states one, it
// must be among those that come to what the family does: weights that are normalised are the same with both
// kinds of softmax.
enum class Gating : int64_t { kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };
Status check_gating(const FamilySource& source, const ExpertsConfig& experts,
                    std::initializer_list<Gating> known);

// The matrices of all experts, in whichever of the layouts the file has them.
std::vector<ExpertSpec> expert_matrices(const TensorNames& layer, const ExpertNames& names,
                                        const ExpertsConfig& config);

// Expert `expert`'s rows [first, first + out) of a tensor [experts][rows][in].
LinearSpec stacked_rows(const std::string& name, const ExpertsConfig& config, int expert, int out, int in,
                        int first, int rows);

// Router, experts, and what every token sees: a gated feed-forward of config.shared_width, if that is not 0,
// which stands under `shared` ("mlp.shared_expert." or GGUF's "..._shexp").
ExpertsSpec experts_spec(const TensorNames& layer, const char* router, const ExpertNames& names,
                         const ExpertsConfig& config);
GatedFfnSpec shared_expert(const TensorNames& layer, const std::string& hf, const ExpertsConfig& config);

}  // namespace butter
