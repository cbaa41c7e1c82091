#include "families/jamba.h"

#include <fmt/format.h>

#include "families/dense.h"
#include "families/experts.h"
#include "families/mamba.h"

namespace butter {
namespace {

struct MambaConfig {
  int hidden = 0, width = 0, state_size = 0, dt_rank = 0, taps = 0;
  bool conv_bias = true, projection_bias = false;
  float eps = 0;
};

Result<MambaConfig> read_mamba(const FamilySource& source, const DenseConfig& dense) {
  const Attributes& config = source.config;
  const bool gguf = source.gguf();
  const std::string prefix = gguf ? source.model_type + ".ssm." : "";
  const auto read = [&](const char* hf, const char* other, int64_t otherwise) {
    return config.require_int_or(prefix + (gguf ? other : hf), otherwise, 1, 1 << 20);
  };
  MambaConfig mamba;
  mamba.hidden = dense.hidden;
  mamba.eps = dense.norm_eps;
  BUTTER_ASSIGN(const int64_t size, read("mamba_d_state", "state_size", 16));
  BUTTER_ASSIGN(const int64_t taps, read("mamba_d_conv", "conv_kernel", 4));
  const int64_t usual_rank = (dense.hidden + 15) / 16;
  int64_t width = 0, rank = 0;
  if (gguf) {
    BUTTER_ASSIGN(width, config.require_int(prefix + "inner_size", 1, 1 << 20));
    BUTTER_ASSIGN(rank, config.require_int_or(prefix + "time_step_rank", usual_rank, 1, 1 << 20));
  } else {
    BUTTER_ASSIGN(const int64_t expand, config.require_int_or("mamba_expand", 2, 1, 64));
    width = expand * dense.hidden;
    BUTTER_ASSIGN(rank, read_number_or_auto(config, "mamba_dt_rank", usual_rank));
  }
  if (width > 1 << 20 || size > 4096 || taps > 64) {
    return fail(StatusCode::kCorrupt,
                "{}: Mamba of {} channels, {} states and {} taps; at most {}, 4096 and 64 are expected",
                config.source(), width, size, taps, 1 << 20);
  }
  BUTTER_TRY(check_silu(config, "hidden_act"));
  BUTTER_ASSIGN(mamba.conv_bias, config.get_bool_or("mamba_conv_bias", true));
  BUTTER_ASSIGN(mamba.projection_bias, config.get_bool_or("mamba_proj_bias", false));
  mamba.width = static_cast<int>(width);
  mamba.state_size = static_cast<int>(size);
  mamba.dt_rank = static_cast<int>(rank);
  mamba.taps = static_cast<int>(taps);
  return mamba;
}

// Older files write the last two of these norms with a capital.
NormSpec small_norm(const TensorNames& names, const char* usual, const char* older, const char* gguf,
                    int width, float eps) {
  const std::string weight = std::string(usual) + ".weight";
  const bool has_usual = names.gguf() || names.has({weight.c_str()});
  return names.norm({has_usual ? usual : older, gguf}, width, eps);
}

Mamba1Spec mamba1_mixer(const TensorNames& names, const MambaConfig& config) {
  const int width = config.width, size = config.state_size, rank = config.dt_rank;
  const TensorNames::Name in{"in_proj", "ssm_in"}, inputs{"x_proj", "ssm_x"};
  Mamba1Spec spec;
  spec.width = width;
  spec.state_size = size;
  spec.dt_rank = rank;
  spec.x = names.rows(in, width, config.hidden, 0, 2 * width, config.projection_bias);
  spec.z = names.rows(in, width, config.hidden, width, 2 * width, config.projection_bias);
  spec.conv = names.conv({"conv1d", "ssm_conv1d"}, width, config.taps, config.conv_bias);
  spec.dt_low = names.rows(inputs, rank, width, 0, rank + 2 * size);
  spec.b = names.rows(inputs, size, width, rank, rank + 2 * size);
  spec.c = names.rows(inputs, size, width, rank + size, rank + 2 * size);
  spec.dt_norm = small_norm(names, "dt_layernorm", "dt_layernorm", "ssm_dt_norm", rank, config.eps);
  spec.b_norm = small_norm(names, "b_layernorm", "B_layernorm", "ssm_b_norm", size, config.eps);
  spec.c_norm = small_norm(names, "c_layernorm", "C_layernorm", "ssm_c_norm", size, config.eps);
  spec.dt = names.linear({"dt_proj", "ssm_dt"}, width, rank, true);
  spec.decay = names.decay({"A_log", "ssm_a"}, width);
  spec.decay.shape = Shape{size, width};
  spec.decay.stored = Shape{width, size};
  spec.decay.transposed = true;
  spec.skip = names.vector({"D", "ssm_d"}, width);
  spec.out = names.linear({"out_proj", "ssm_out"}, config.hidden, width, config.projection_bias);
  return spec;
}

// Which layers are attention, and which have experts; GGUF files show it by their tensors.
struct Pattern {
  int64_t attention_period = 8, attention_offset = 4, expert_period = 2, expert_offset = 1;

  bool is_attention(const TensorNames& names, int layer) const {
    if (names.gguf() && names.source().checkpoint != nullptr) return names.has({"", "attn_q.weight"});
    return layer % attention_period == attention_offset;
  }
  bool has_experts(const TensorNames& names, int layer) const {
    if (names.gguf() && names.source().checkpoint != nullptr) return names.has({"", "ffn_gate_inp.weight"});
    return layer % expert_period == expert_offset;
  }
};

Result<Pattern> read_pattern(const Attributes& config) {
  Pattern pattern;
  BUTTER_ASSIGN(pattern.attention_period, config.require_int_or("attn_layer_period", 8, 1, 4096));
  BUTTER_ASSIGN(pattern.attention_offset, config.require_int_or("attn_layer_offset", 4, 0, 4095));
  BUTTER_ASSIGN(pattern.expert_period, config.require_int_or("expert_layer_period", 2, 1, 4096));
  BUTTER_ASSIGN(pattern.expert_offset, config.require_int_or("expert_layer_offset", 1, 0, 4095));
  return pattern;
}

}  // namespace

Result<ModelSpec> jamba_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 8;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.layer_ropes.assign(static_cast<size_t>(config.layers), std::nullopt);
  config.hf_names = {{TensorRole::kFinalNorm, "model.final_layernorm"},
                     {TensorRole::kFfnNorm, "pre_ff_layernorm"},
                     {TensorRole::kGate, "feed_forward.gate_proj"},
                     {TensorRole::kUp, "feed_forward.up_proj"},
                     {TensorRole::kDown, "feed_forward.down_proj"}};
  BUTTER_ASSIGN(const MambaConfig mamba, read_mamba(source, config));
  BUTTER_ASSIGN(const Pattern pattern, read_pattern(source.config));
  ExpertKeys keys;
  keys.width = "intermediate_size";
  BUTTER_ASSIGN(ExpertsConfig experts, read_experts(source, {config.hidden, config.layers}, keys,
                                                    {source.gguf() ? 0 : 16, 2, config.ffn, 0}));
  BUTTER_TRY(check_gating(source, experts, {Gating::kSoftmax}));
  if (source.gguf()) experts.width = config.ffn;
  experts.function = config.activation;
  return dense_spec(source, config, [&](const TensorNames& names, int layer, LayerSpec& spec) -> Status {
    if (!pattern.is_attention(names, layer)) spec.mixers = {{mamba1_mixer(names.within("mamba."), mamba)}};
    if (experts.routing.experts < 2 || !pattern.has_experts(names, layer)) return {};
    ExpertNames own;
    const bool older = names.has({"moe.router.weight"});
    own.each = older ? "moe.experts." : "feed_forward.experts.";
    own.stacked = older ? "moe.switch_mlp." : "feed_forward.switch_mlp.";
    spec.ffn = experts_spec(names, older ? "moe.router" : "feed_forward.router", own, experts);
    return {};
  });
}

}  // namespace butter
