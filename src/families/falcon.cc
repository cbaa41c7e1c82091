#include "families/falcon.h"

#include <cmath>

#include "families/dense.h"
#include "families/mamba.h"

namespace butter {
namespace {

constexpr double kMost = 1e9;  // of a multiplier

// Factors of what goes through a layer. GGUF files have them in their weights.
struct Multipliers {
  float attention_in = 1, attention_out = 1, key = 1;
  float mamba_in = 1, mamba_out = 1;
  float gate = 1, down = 1;
};

Result<std::vector<double>> read_list(const Attributes& config, const char* key, size_t count) {
  if (config.kind(key) == AttributeKind::kAbsent) return std::vector<double>(count, 1.0);
  BUTTER_ASSIGN(const auto values, config.get_floats(key));
  if (values.size() != count) {
    return fail(StatusCode::kCorrupt, "{} has {} entries; {} are expected", key, values.size(), count);
  }
  return values;
}

Status read_multipliers(const Attributes& config, DenseConfig& dense, Mamba2Config& mamba,
                        Multipliers& multipliers) {
  const auto read = [&](const char* key, float& value) -> Status {
    BUTTER_ASSIGN(const double found, config.require_float_or(key, 1, -kMost, kMost));
    value = static_cast<float>(found);
    return {};
  };
  BUTTER_TRY(read("attention_in_multiplier", multipliers.attention_in));
  BUTTER_TRY(read("attention_out_multiplier", multipliers.attention_out));
  BUTTER_TRY(read("key_multiplier", multipliers.key));
  BUTTER_TRY(read("ssm_in_multiplier", multipliers.mamba_in));
  BUTTER_TRY(read("ssm_out_multiplier", multipliers.mamba_out));
  BUTTER_TRY(read("embedding_multiplier", dense.embedding_scale));
  BUTTER_TRY(read("lm_head_multiplier", dense.logit_multiplier));
  BUTTER_ASSIGN(const auto mlp, read_list(config, "mlp_multipliers", 2));
  multipliers.gate = static_cast<float>(mlp[0]);
  multipliers.down = static_cast<float>(mlp[1]);
  BUTTER_ASSIGN(const auto parts, read_list(config, "ssm_multipliers", mamba.multipliers.size()));
  for (size_t i = 0; i < parts.size(); ++i) mamba.multipliers[i] = static_cast<float>(parts[i]);
  return {};
}

// MLX's converter puts the factors into the weights they stand before or behind: all but that of what is read
// by values, which is taken off behind attention, and that of keys.
void leave_folded(bool tied, DenseConfig& dense, Mamba2Config& mamba, Multipliers& by) {
  dense.logit_multiplier = tied ? dense.logit_multiplier / dense.embedding_scale : 1;
  dense.embedding_scale = 1;
  by.attention_out = by.attention_in;
  by.attention_in = by.mamba_in = by.mamba_out = by.gate = by.down = 1;
  mamba.multipliers.fill(1);
}

// A norm behind the mixer, which released models do without.
Status read_output_norm(const FamilySource& source, Mamba2Config& mamba) {
  mamba.output = OutputNorm::kGateOnly;
  if (source.gguf()) {
    // Converters keep the norm's weight where there is one; the runtime gates first.
    if (source.has_tensor("blk.0.ssm_norm.weight")) mamba.output = OutputNorm::kGateThenNorm;
  } else {
    BUTTER_ASSIGN(const bool norm, source.config.get_bool_or("mamba_rms_norm", false));
    BUTTER_ASSIGN(const bool first, source.config.get_bool_or("mamba_norm_before_gate", true));
    if (norm) mamba.output = first ? OutputNorm::kNormThenGate : OutputNorm::kGateThenNorm;
  }
  mamba.norm_groups = mamba.groups;
  return {};
}

// I: stated; or null for expand times the hidden size; or absent for a default.
Result<int64_t> read_inner(const Attributes& config, int hidden) {
  if (config.is_null("mamba_d_ssm")) {
    BUTTER_ASSIGN(const int64_t expand, config.require_int_or("mamba_expand", 2, 1, 64));
    return expand * hidden;
  }
  return config.require_int_or("mamba_d_ssm", 1024, 1, 1 << 20);
}

}  // namespace

Result<ModelSpec> falcon_h1_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 8;
  defaults.norm_eps = 1e-5;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_ASSIGN(const int64_t inner, read_inner(source.config, config.hidden));
  BUTTER_ASSIGN(Mamba2Config mamba, read_mamba2(source, config.hidden, {}, inner));
  BUTTER_TRY(check_silu(source.config, "hidden_act"));
  mamba.norm_eps = config.norm_eps;
  BUTTER_TRY(read_output_norm(source, mamba));
  Multipliers by;
  if (!source.gguf()) {
    BUTTER_TRY(read_dt_limit(source.config, mamba));
    BUTTER_TRY(read_multipliers(source.config, config, mamba, by));
    if (has_mlx_convolution(source, "layers.0.mamba.conv1d.weight"))
      leave_folded(config.tied, config, mamba, by);
  } else if (source.checkpoint != nullptr && config.tied) {
    return fail(StatusCode::kUnsupported,
                "there is no output.weight; falcon-h1 files, whose embedding and head have different factors "
                "in them, are expected to have one");
  }
  BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
  BUTTER_ASSIGN(config.mlp_bias, source.config.get_bool_or("mlp_bias", false));
  config.o_bias = config.qkv_bias;
  if (config.qkv_bias && by.key != 1) {
    return fail(StatusCode::kUnsupported,
                "attention_bias is true and key_multiplier {}; false, or 1, is expected", by.key);
  }
  // Keys are multiplied before they are turned: the same as scores.
  config.attention_scale = static_cast<float>(by.key / std::sqrt(static_cast<double>(config.head_dim)));
  config.hf_names = {{TensorRole::kFinalNorm, "model.final_layernorm"},
                     {TensorRole::kFfnNorm, "pre_ff_layernorm"},
                     {TensorRole::kGate, "feed_forward.gate_proj"},
                     {TensorRole::kUp, "feed_forward.up_proj"},
                     {TensorRole::kDown, "feed_forward.down_proj"}};
  return dense_spec(source, config, [&](const TensorNames& names, int, LayerSpec& spec) -> Status {
    spec.mixers[0].in_multiplier = by.attention_in;
    spec.mixers[0].out_multiplier = by.attention_out;
    spec.mixers.push_back({mamba2_mixer(names.within("mamba."), mamba), by.mamba_in, by.mamba_out});
    auto& ffn = std::get<GatedFfnSpec>(*spec.ffn);
    ffn.function.multiplier = by.gate;
    ffn.multiplier = by.down;
    return {};
  });
}

}  // namespace butter
