#include "families/granite.h"

#include <algorithm>

#include "checkpoint/printable.h"
#include "core/check.h"
#include "families/dense.h"
#include "families/experts.h"
#include "families/mamba.h"

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

// Those without KV heads; without a list, none.
Result<std::vector<bool>> read_gguf_mamba_layers(const FamilySource& source, int layers) {
  const std::string key = source.model_type + ".attention.head_count_kv";
  std::vector<bool> mamba(static_cast<size_t>(layers), false);
  if (source.config.kind(key) != AttributeKind::kArray) return mamba;
  BUTTER_ASSIGN(const auto heads, source.config.get_ints(key));
  BUTTER_CHECK(heads.size() >= mamba.size());  // which read_dense() has seen to
  for (size_t i = 0; i < mamba.size(); ++i) mamba[i] = heads[i] == 0;
  return mamba;
}

// Which layers are Mamba2; without a list, all are.
Result<std::vector<bool>> read_mamba_layers(const FamilySource& source, int layers) {
  if (source.gguf()) return read_gguf_mamba_layers(source, layers);
  std::vector<bool> mamba(static_cast<size_t>(layers), true);
  BUTTER_ASSIGN(const auto types, read_layer_types(source.config, layers));
  for (size_t i = 0; i < types.size(); ++i) {
    mamba[i] = types[i] == "mamba" || types[i] == "linear_attention";
    if (mamba[i] || types[i] == "attention" || types[i] == "full_attention") continue;
    return fail(StatusCode::kUnsupported, "layer_types[{}] is \"{}\"; mamba or attention is expected", i,
                printable(types[i]));
  }
  return mamba;
}

struct GraniteConfig {
  DenseConfig dense;
  std::vector<bool> mamba_layers;
  Mamba2Config mamba;
  ExpertsConfig experts;

  bool any_mamba() const {
    return std::find(mamba_layers.begin(), mamba_layers.end(), true) != mamba_layers.end();
  }
};

Status read_rope_use(const FamilySource& source, DenseConfig& config) {
  bool turns = true;
  if (source.gguf()) {
    if (source.model_type == "granitehybrid") {
      BUTTER_ASSIGN(turns, source.config.get_bool_or("granitehybrid.rope.scaling.finetuned", true));
    }
  } else {
    BUTTER_ASSIGN(const std::string positions,
                  source.config.get_string_or("position_embedding_type", "nope"));
    turns = positions == "rope";
    if (!turns && positions != "nope") {
      return fail(StatusCode::kUnsupported, "position_embedding_type is {}; rope or nope is expected",
                  source.config.describe("position_embedding_type"));
    }
  }
  if (!turns) config.layer_ropes.assign(static_cast<size_t>(config.layers), std::nullopt);
  return {};
}

Result<GraniteConfig> read_config(const FamilySource& source) {
  const Attributes& attributes = source.config;
  DenseDefaults defaults;
  defaults.ffn_key = "shared_intermediate_size";
  GraniteConfig config;
  BUTTER_ASSIGN(config.dense, read_dense(source, defaults));
  config.dense.permuted_qk = source.gguf();
  BUTTER_TRY(source.gguf() ? read_gguf_multipliers(attributes, source.model_type + ".", config.dense)
                           : read_hf_multipliers(attributes, config.dense));
  BUTTER_ASSIGN(config.dense.qkv_bias, attributes.get_bool_or("attention_bias", false));
  config.dense.o_bias = config.dense.qkv_bias;
  BUTTER_TRY(read_rope_use(source, config.dense));
  BUTTER_ASSIGN(config.mamba_layers, read_mamba_layers(source, config.dense.layers));
  if (config.any_mamba()) {
    BUTTER_TRY(check_silu(attributes, "hidden_act"));
    BUTTER_ASSIGN(const int64_t expand, attributes.require_int_or("mamba_expand", 2, 1, 64));
    BUTTER_ASSIGN(config.mamba, read_mamba2(source, config.dense.hidden, {}, expand * config.dense.hidden));
    config.mamba.norm_eps = config.dense.norm_eps;
    if (!source.gguf()) BUTTER_TRY(read_dt_limit(attributes, config.mamba));
  }
  ExpertKeys keys;
  keys.experts = "num_local_experts";
  keys.width = "intermediate_size";
  BUTTER_ASSIGN(config.experts, read_experts(source, {config.dense.hidden, config.dense.layers}, keys,
                                             {0, 8, config.dense.ffn, 0}));
  BUTTER_TRY(check_gating(source, config.experts, {Gating::kSoftmax, Gating::kSoftmaxOfChosen}));
  // Converters of these state the width of the experts as that of feed-forwards.
  if (source.gguf() && config.experts.routing.experts > 0) {
    const std::string key = source.model_type + ".expert_feed_forward_length";
    if (attributes.kind(key) == AttributeKind::kAbsent) config.experts.width = config.dense.ffn;
  } else {
    config.experts.shared_width = config.dense.ffn;
  }
  config.experts.routing.score = RouterScore::kSoftmaxOfBest;
  config.experts.function = config.dense.activation;
  return config;
}

// The feed-forward that every token sees: merged gate and up rows in the original files, two matrices in MLX
// and GGUF ones.
GatedFfnSpec shared_mlp(const TensorNames& names, const GraniteConfig& config, bool beside_experts) {
  const int width = beside_experts ? config.experts.shared_width : config.dense.ffn;
  const int hidden = config.dense.hidden;
  GatedFfnSpec spec;
  spec.width = width;
  spec.function = config.dense.activation;
  if (names.gguf() || !names.has({"shared_mlp.input_linear.weight"})) {
    if (names.gguf() && names.has({"", "ffn_gate_shexp.weight"}))
      return shared_expert(names, "", config.experts);
    spec.gate = names.linear({"mlp.gate_proj", "ffn_gate"}, width, hidden);
    spec.up = names.linear({"mlp.up_proj", "ffn_up"}, width, hidden);
    spec.down = names.linear({"mlp.down_proj", "ffn_down"}, hidden, width);
    if (names.has({"mlp.gate_proj.weight", "ffn_gate.weight"})) return spec;
  }
  const TensorNames::Name merged{"shared_mlp.input_linear"};
  spec.gate = names.rows(merged, width, hidden, 0, 2 * width);
  spec.up = names.rows(merged, width, hidden, width, 2 * width);
  spec.down = names.linear({"shared_mlp.output_linear"}, hidden, width);
  return spec;
}

ExpertsSpec granite_experts(const TensorNames& names, const GraniteConfig& config) {
  const ExpertsConfig& experts = config.experts;
  ExpertNames own;
  own.stacked = "block_sparse_moe.switch_mlp.";
  ExpertsSpec spec = experts_spec(names, "block_sparse_moe.router.layer", own, experts);
  if (names.gguf() || names.has({"block_sparse_moe.switch_mlp.up_proj.weight"})) return spec;
  const std::string in = names.full({"block_sparse_moe.input_linear.weight"}),
                    out = names.full({"block_sparse_moe.output_linear.weight"});
  for (int e = 0; e < experts.routing.experts; ++e) {
    ExpertSpec& expert = spec.experts[static_cast<size_t>(e)];
    expert.gate = stacked_rows(in, experts, e, experts.width, experts.hidden, 0, 2 * experts.width);
    expert.up = stacked_rows(in, experts, e, experts.width, experts.hidden, experts.width, 2 * experts.width);
    expert.down = stacked_rows(out, experts, e, experts.hidden, experts.width, 0, experts.hidden);
  }
  return spec;
}

}  // namespace

Result<ModelSpec> granite_spec(const FamilySource& source) {
  BUTTER_ASSIGN(const GraniteConfig config, read_config(source));
  const bool has_experts = config.experts.routing.experts > 0;
  return dense_spec(source, config.dense,
                    [&](const TensorNames& names, int layer, LayerSpec& spec) -> Status {
                      if (config.mamba_layers[static_cast<size_t>(layer)])
                        spec.mixers = {{mamba2_mixer(names.within("mamba."), config.mamba)}};
                      if (!has_experts) {
                        spec.ffn = shared_mlp(names, config, false);
                        return {};
                      }
                      ExpertsSpec ffn = granite_experts(names, config);
                      if (config.experts.shared_width > 0) ffn.shared = shared_mlp(names, config, true);
                      spec.ffn = std::move(ffn);
                      return {};
                    });
}

}  // namespace butter
