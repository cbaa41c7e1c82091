#include "families/muse.h"

#include <cmath>

#include "families/dense.h"
#include "families/rope.h"

namespace butter {
namespace {

constexpr double kLeast = 1e-9, kMost = 1e9;  // of a multiplier
constexpr int kPattern = 4;                   // every fourth layer, counted from the last, sees everything
constexpr double kTheta = 500000;

std::vector<bool> usual_sliding_layers(int layers) {
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) sliding.push_back((layers - 1 - i) % kPattern != 0);
  return sliding;
}

// The base of the rotation that all turning layers share.
Result<double> read_theta(const Attributes& config) {
  BUTTER_ASSIGN(const double outer, config.get_float_or("rope_theta", kTheta));
  BUTTER_ASSIGN(const Attributes parameters, find_hf_rope_object(config));
  return parameters.get_float_or("rope_theta", outer);
}

// Which layers turn: those of a theta other than 0, or the sliding ones.
Result<std::vector<bool>> read_turning_layers(const Attributes& config, const std::vector<bool>& sliding) {
  if (config.kind("layer_rope_theta") == AttributeKind::kAbsent) return sliding;
  BUTTER_ASSIGN(const auto thetas, config.get_floats("layer_rope_theta"));
  if (thetas.size() != sliding.size()) {
    return fail(StatusCode::kCorrupt, "layer_rope_theta has {} entries; {}, one a layer, are expected",
                thetas.size(), sliding.size());
  }
  BUTTER_ASSIGN(const double shared, read_theta(config));
  std::vector<bool> turning;
  for (size_t i = 0; i < thetas.size(); ++i) {
    if (thetas[i] != 0 && thetas[i] != shared) {
      return fail(StatusCode::kUnsupported, "layer_rope_theta[{}] is {}; 0 or rope_theta, {}, is expected", i,
                  thetas[i], shared);
    }
    turning.push_back(thetas[i] != 0);
  }
  return turning;
}

Status read_hf_traits(const Attributes& attributes, DenseConfig& config) {
  BUTTER_ASSIGN(const bool bias, attributes.get_bool_or("attention_bias", false));
  if (bias) return fail(StatusCode::kUnsupported, "attention_bias is true; false is expected");
  BUTTER_ASSIGN(const double eps, attributes.require_float_or("post_norm_eps", 1e-8, 0, 1));
  BUTTER_ASSIGN(const double query, attributes.require_float_or("qk_scale_factor", 3.87, kLeast, kMost));
  BUTTER_ASSIGN(const double output,
                attributes.require_float_or("output_multiplier", 0.19611613513818404, kLeast, kMost));
  BUTTER_ASSIGN(const double cap, attributes.require_float_or("final_logit_softcapping", 20, 0, kMost));
  config.post_norm_eps = static_cast<float>(eps);
  // Queries are multiplied after their norm: the same as scores.
  config.attention_scale = static_cast<float>(query / std::sqrt(static_cast<double>(config.head_dim)));
  config.logit_multiplier = static_cast<float>(output);
  config.logit_cap = static_cast<float>(cap);
  config.weightless_qk_norm = config.centred_norms = config.plain_final_norm = true;
  config.hf_names = {{TensorRole::kFfnNorm, "pre_feedforward_layernorm"}};
  return {};
}

// Converters fold the 1 of centred norms into their weights, and make norms of q and k that have weights: the
// query's factor, and 1.
Status read_gguf_traits(const Attributes& attributes, const std::string& prefix, DenseConfig& config) {
  BUTTER_ASSIGN(const double output, attributes.require_float_or(prefix + "logit_scale", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double cap,
                attributes.require_float_or(prefix + "final_logit_softcapping", 0, 0, kMost));
  config.post_norm_eps = 1e-8f;
  config.logit_multiplier = static_cast<float>(output);
  config.logit_cap = static_cast<float>(cap);
  config.qk_norm = config.permuted_qk = true;
  return {};
}

}  // namespace

Result<ModelSpec> muse_glimmer_spec(const FamilySource& source) {
  const Attributes& attributes = source.config;
  DenseDefaults defaults;
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = kTheta;
  defaults.activation_key = "hidden_activation";
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  const std::string prefix = source.model_type + ".";
  BUTTER_TRY(source.gguf() ? read_gguf_traits(attributes, prefix, config)
                           : read_hf_traits(attributes, config));
  BUTTER_ASSIGN(auto sliding, source.gguf() ? read_gguf_sliding_layers(source, config.layers)
                                            : read_sliding_layers(attributes, config.layers));
  if (sliding.empty()) sliding = usual_sliding_layers(config.layers);
  BUTTER_ASSIGN(const auto turning, read_turning_layers(attributes, sliding));
  BUTTER_ASSIGN(
      const int64_t width,
      attributes.require_int_or(source.gguf() ? prefix + "attention.sliding_window" : "sliding_window", 2048,
                                1, int64_t{1} << 31));
  for (size_t i = 0; i < sliding.size(); ++i) {
    config.windows.push_back(sliding[i] ? Window{width, 0} : Window{});
    config.layer_ropes.push_back(turning[i] ? std::optional(0) : std::nullopt);
  }
  config.output_gate = config.heads * config.head_dim;
  config.embedding_norm = config.post_norms = true;
  return dense_spec(source, config);
}

}  // namespace butter
