// DenseConfig: what every transformer of this table shares, read from config.json or GGUF metadata.
//
// A family reads it with its own defaults, changes what is its own, and turns it into a ModelSpec with the
// standard tensor names of the file's format (families.md sections 5 and 6).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/family.h"
#include "families/tensor_names.h"

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
  std::vector<RopeTable> ropes;                 // the first is what the configuration says for all layers
  std::vector<std::optional<int>> layer_ropes;  // each layer's, or none; empty: all turn by the first
  bool tied = false;

  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool weightless_qk_norm = false;
  int output_gate = 0;            // rows of attention's output gate: heads, or heads · head_dim; 0: none
  bool gated_q = false;           // q's tensor has the rows of a gate a channel behind each head's
  bool fused_qkv = false;         // q, k and v rows in one tensor
  bool fused_gate_up = false;     // gate and up rows
  bool centred_norms = false;     // all multiply by 1 + w
  bool post_norms = false;        // of both branches
  float post_norm_eps = 0;        // 0: norm_eps
  bool embedding_norm = false;    // without weight
  bool plain_final_norm = false;  // not centred, whatever the others are
  bool permuted_qk = false;       // GGUF rows of q and k are in adjacent-pair order
  std::vector<Window> windows;    // one a layer; empty: none has one

  std::optional<float> attention_scale;  // none: 1 / sqrt(head_dim)
  float embedding_scale = 1;
  float residual_multiplier = 1;
  float logit_multiplier = 1;
  float logit_cap = 0;

  // Hugging Face names that are not the standard ones: "model.norm"; of layers, "mlp.gate_proj".
  std::map<TensorRole, const char*> hf_names;
  std::map<TensorRole, const char*> gguf_names;  // of layers: "post_attention_norm"
};

// Values that a key gets when it is absent; each family has its own.
struct DenseDefaults {
  int kv_heads = 0;  // 0: as many as heads
  int head_dim = 0;  // 0: hidden / heads
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  double partial_rotary = 1;
  bool truncate_yarn = true;  // where the file does not say
  bool tied = false;
  // Keys of config.json.
  const char* ffn_key = "intermediate_size";
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool experts_only =
      false;  // no layer has a feed-forward without experts: GGUF files do not state its width
};

Result<DenseConfig> read_dense(const FamilySource& source, const DenseDefaults& defaults);

// Changes a layer that was made with standard names: another mixer, experts. `names` are the layer's.
using EditLayer = std::function<Status(const TensorNames& names, int layer, LayerSpec& spec)>;

// The spec with standard tensor names.
Result<ModelSpec> dense_spec(const FamilySource& source, const DenseConfig& config,
                             const EditLayer& edit = nullptr);

// Of a list of GGUF metadata with a number for each of `blocks`, 0 where a block has no such part: the
// largest.
Result<int> read_largest(const Attributes& attributes, const std::string& key, size_t blocks);

// layer_types, one for each layer; nothing where the key is absent.
Result<std::span<const std::string_view>> read_layer_types(const Attributes& config, int layers);

// Whether each layer is a sliding one, as layer_types says; nothing where the key is absent.
Result<std::vector<bool>> read_sliding_layers(const Attributes& config, int layers);
// The same of a GGUF file: attention.sliding_window_pattern, an array.
Result<std::vector<bool>> read_gguf_sliding_layers(const FamilySource& source, int layers);

// The window of Qwen configs: only with use_sliding_window.
Result<Window> read_optional_window(const FamilySource& source);

// Windows of Qwen configs: only with use_sliding_window, in layers from max_window_layers on, or as
// layer_types says (families.md 6.3).
Result<std::vector<Window>> read_optional_windows(const FamilySource& source, int layers);

}  // namespace butter
