#include "families/gemma.h"

#include <cmath>

#include "families/dense.h"
#include "families/rope.h"

namespace butter {
namespace {

constexpr int kPattern = 6;  // every sixth layer sees everything
constexpr double kLocalTheta = 10000;
constexpr int kFull = 0, kSliding = 1;  // rope tables

Result<std::vector<bool>> read_sliding(const FamilySource& source, int layers) {
  const Attributes& config = source.config;
  std::string key = source.model_type + ".attention.sliding_window_pattern";
  if (!source.gguf()) {
    BUTTER_ASSIGN(const auto stated, read_sliding_layers(config, layers));
    if (!stated.empty()) return stated;
    key = config.kind("sliding_window_pattern") != AttributeKind::kAbsent ? "sliding_window_pattern"
                                                                          : "_sliding_window_pattern";
  }
  BUTTER_ASSIGN(const int64_t pattern, config.require_int_or(key, kPattern, 1, int64_t{1} << 31));
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) sliding.push_back((i + 1) % pattern != 0);
  return sliding;
}

// Newer files have an object for each kind of layer; older ones two bases, and scaling of the full layers
// alone.
Result<std::vector<RopeTable>> read_hf_ropes(const Attributes& config, int head_dim, int64_t max_positions) {
  constexpr double kGlobalTheta = 1e6;
  Attributes full, sliding;
  BUTTER_ASSIGN(const double theta, config.require_float_or("rope_theta", kGlobalTheta, 1e-3, 1e15));
  BUTTER_ASSIGN(const double local, config.require_float_or("rope_local_base_freq", kLocalTheta, 1e-3, 1e15));
  if (config.kind("rope_parameters") != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(const Attributes parameters, config.get_object("rope_parameters"));
    BUTTER_ASSIGN(full, parameters.get_object("full_attention"));
    BUTTER_ASSIGN(sliding, parameters.get_object("sliding_attention"));
  } else if (config.kind("rope_scaling") != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(full, config.get_object("rope_scaling"));
  }
  std::vector<RopeTable> tables(2);
  BUTTER_ASSIGN(tables[kFull], read_hf_rope_object(full, head_dim, {theta, 1}, max_positions));
  BUTTER_ASSIGN(tables[kSliding], read_hf_rope_object(sliding, head_dim, {local, 1}, max_positions));
  return tables;
}

// What config.json may ask for and no released model does.
Status check_supported(const Attributes& config) {
  if (config.kind("attn_logit_softcapping") != AttributeKind::kAbsent) {
    return fail(StatusCode::kUnsupported, "attn_logit_softcapping is {}; null is expected",
                config.describe("attn_logit_softcapping"));
  }
  for (const char* key : {"attention_bias", "use_bidirectional_attention"}) {
    BUTTER_ASSIGN(const bool stated, config.get_bool_or(key, false));
    if (stated) return fail(StatusCode::kUnsupported, "{} is true; false is expected", key);
  }
  return {};
}

Status read_hf_traits(const FamilySource& source, DenseConfig& config) {
  const Attributes& attributes = source.config;
  BUTTER_TRY(check_supported(attributes));
  BUTTER_ASSIGN(config.ropes, read_hf_ropes(attributes, config.head_dim, config.max_positions));
  BUTTER_ASSIGN(const double width, attributes.require_float_or("query_pre_attn_scalar", 256, 1e-9, 1e9));
  config.attention_scale = static_cast<float>(1 / std::sqrt(width));
  BUTTER_ASSIGN(const double cap, attributes.require_float_or("final_logit_softcapping", 0, 0, 1e9));
  config.logit_cap = static_cast<float>(cap);
  config.centred_norms = true;  // converters to GGUF fold the 1 into the weights
  config.hf_names = {{TensorRole::kFfnNorm, "pre_feedforward_layernorm"}};
  return {};
}

Status read_gguf_traits(const FamilySource& source, DenseConfig& config) {
  config.activation = Activation::kGeluTanh;
  constexpr int kLayersOf27B = 62;  // whose queries are scaled by another width than the head's
  if (config.layers == kLayersOf27B)
    config.attention_scale =
        static_cast<float>(1 / std::sqrt(static_cast<double>(config.hidden) / config.heads));
  BUTTER_ASSIGN(RopeTable sliding, read_gguf_sliding_rope(source, config.head_dim, kLocalTheta));
  config.ropes.push_back(std::move(sliding));
  return {};
}

}  // namespace

Result<ModelSpec> gemma3_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 4;
  defaults.head_dim = 256;
  defaults.rope_theta = 1e6;
  defaults.tied = true;
  defaults.activation_key = "hidden_activation";
  defaults.activation = "gelu_pytorch_tanh";
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.qk_norm = config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  BUTTER_TRY(source.gguf() ? read_gguf_traits(source, config) : read_hf_traits(source, config));
  const std::string key = source.gguf() ? source.model_type + ".attention.sliding_window" : "sliding_window";
  BUTTER_ASSIGN(const int64_t width, source.config.require_int_or(key, 4096, 1, int64_t{1} << 31));
  BUTTER_ASSIGN(const auto sliding, read_sliding(source, config.layers));
  for (const bool slides : sliding) {
    config.windows.push_back(slides ? Window{width, 0} : Window{});
    config.layer_ropes.emplace_back(slides ? kSliding : kFull);
  }
  return dense_spec(source, config);
}

}  // namespace butter
