#include "families/granite.h"

#include "families/dense.h"

namespace butter {
namespace {

constexpr double kLeast = 1e-9, kMost = 1e9;  // of a multiplier

Status read_hf_multipliers(const Attributes& attributes, DenseConfig& config) {
  BUTTER_ASSIGN(const double embedding,
                attributes.require_float_or("embedding_multiplier", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double residual, attributes.require_float_or("residual_multiplier", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double attention,
                attributes.require_float_or("attention_multiplier", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double divisor, attributes.require_float_or("logits_scaling", 1, kLeast, kMost));
  config.embedding_scale = static_cast<float>(embedding);
  config.residual_multiplier = static_cast<float>(residual);
  config.attention_scale = static_cast<float>(attention);
  config.logit_multiplier = static_cast<float>(1 / divisor);
  return {};
}

Status read_gguf_multipliers(const Attributes& attributes, const std::string& prefix, DenseConfig& config) {
  BUTTER_ASSIGN(const double embedding,
                attributes.require_float_or(prefix + "embedding_scale", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double residual,
                attributes.require_float_or(prefix + "residual_scale", 1, kLeast, kMost));
  BUTTER_ASSIGN(const double divisor, attributes.require_float_or(prefix + "logit_scale", 1, kLeast, kMost));
  config.embedding_scale = static_cast<float>(embedding);
  config.residual_multiplier = static_cast<float>(residual);
  config.logit_multiplier = static_cast<float>(1 / divisor);
  const std::string scale_key = prefix + "attention.scale";
  if (attributes.kind(scale_key) == AttributeKind::kAbsent) return {};
  BUTTER_ASSIGN(const double attention, attributes.require_float(scale_key, kLeast, kMost));
  config.attention_scale = static_cast<float>(attention);
  return {};
}

// Layers that are not attention, and experts, come with other kinds of mixer and feed-forward.
Status check_dense(const Attributes& config, int layers) {
  BUTTER_ASSIGN(const int64_t experts, config.require_int_or("num_local_experts", 0, 0, 1 << 20));
  if (experts > 0) {
    return fail(StatusCode::kUnsupported,
                "num_local_experts is {}; Granite models without experts are supported", experts);
  }
  if (config.kind("layer_types") == AttributeKind::kAbsent) {
    return fail(
        StatusCode::kUnsupported,
        "layer_types is absent, which means Mamba2 layers; Granite models of attention layers alone are "
        "supported");
  }
  BUTTER_ASSIGN(const auto types, read_layer_types(config, layers));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "attention" || types[i] == "full_attention") continue;
    return fail(StatusCode::kUnsupported,
                "layer_types[{}] is \"{}\"; Granite models of attention layers alone are supported", i,
                types[i]);
  }
  return {};
}

}  // namespace

Result<ModelSpec> granite_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.ffn_key = "shared_intermediate_size";
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.permuted_qk = source.gguf();
  if (source.gguf()) {
    BUTTER_TRY(read_gguf_multipliers(source.config, source.model_type + ".", config));
    return dense_spec(source, config);
  }
  BUTTER_TRY(check_dense(source.config, config.layers));
  BUTTER_TRY(read_hf_multipliers(source.config, config));
  BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
  config.o_bias = config.qkv_bias;
  BUTTER_ASSIGN(const std::string positions, source.config.get_string_or("position_embedding_type", "nope"));
  if (positions != "rope") config.layer_ropes.assign(static_cast<size_t>(config.layers), std::nullopt);
  config.fused_gate_up = true;
  config.hf_names = {{TensorRole::kGateUp, "shared_mlp.input_linear"},
                     {TensorRole::kDown, "shared_mlp.output_linear"}};
  return dense_spec(source, config);
}

}  // namespace butter
