#include "families/qwen.h"

#include <algorithm>

#include "checkpoint/printable.h"
#include "families/dense.h"
#include "families/experts.h"
#include "families/mamba.h"

namespace butter {
namespace {

Status read_attention_traits(const FamilySource& source, DenseConfig& config) {
  BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
  config.o_bias = config.qkv_bias;
  config.qk_norm = true;
  return {};
}

// Which layers have experts: every step-th, but for those that are named.
struct ExpertLayers {
  ExpertsConfig config;
  int64_t step = 1;
  std::vector<int64_t> dense;

  bool has(int layer) const {
    return config.routing.experts > 0 && (layer + 1) % step == 0 &&
           std::find(dense.begin(), dense.end(), layer) == dense.end();
  }
};

Result<ExpertLayers> read_expert_layers(const FamilySource& source, const DenseConfig& config,
                                        const ExpertDefaults& defaults, bool normalise) {
  ExpertLayers layers;
  BUTTER_ASSIGN(layers.config, read_experts(source, {config.hidden, config.layers}, {}, defaults));
  BUTTER_TRY(check_gating(source, layers.config, {Gating::kSoftmax, Gating::kSoftmaxOfChosen}));
  layers.config.function = config.activation;
  // GGUF files do not say; their runtime always does.
  BUTTER_ASSIGN(layers.config.routing.normalise,
                source.config.get_bool_or("norm_topk_prob", source.gguf() || normalise));
  BUTTER_ASSIGN(layers.step, source.config.require_int_or("decoder_sparse_step", 1, 1, 1 << 20));
  if (source.config.kind("mlp_only_layers") != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(layers.dense, source.config.get_ints("mlp_only_layers"));
  }
  return layers;
}

LinearSpec shared_gate(const TensorNames& layer, int hidden) {
  LinearSpec spec = layer.linear({"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}, 1, hidden);
  if (layer.stored_shape(spec.weight.name, spec.weight.shape) == Shape{hidden})  // GGUF: a vector
    spec.weight.stored = Shape{hidden};
  return spec;
}

}  // namespace

Result<ModelSpec> qwen2_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 32;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.qkv_bias = true;
  BUTTER_ASSIGN(config.windows, read_optional_windows(source, config.layers));
  return dense_spec(source, config);
}

Result<ModelSpec> qwen3_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.head_dim = 128;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_TRY(read_attention_traits(source, config));
  BUTTER_ASSIGN(config.windows, read_optional_windows(source, config.layers));
  return dense_spec(source, config);
}

Result<ModelSpec> qwen3_moe_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 4;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_TRY(read_attention_traits(source, config));
  BUTTER_ASSIGN(const Window window, read_optional_window(source));
  config.windows.assign(static_cast<size_t>(config.layers), window);
  BUTTER_ASSIGN(const ExpertLayers experts, read_expert_layers(source, config, {128, 8, 768, 0}, false));
  return dense_spec(source, config, [&](const TensorNames& names, int layer, LayerSpec& spec) -> Status {
    if (experts.has(layer)) spec.ffn = experts_spec(names, "mlp.gate", {}, experts.config);
    return {};
  });
}

namespace {

// Qwen3-Next and Qwen3.5: full attention, with a gate, in one of a few layers; gated delta rules in the
// others.
struct HybridConfig {
  DenseConfig dense;
  std::vector<bool> full;  // by layer
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  bool fused = false;  // projections by key head (Qwen3-Next)
};

Result<std::vector<bool>> read_full_layers(const FamilySource& source, int layers) {
  std::vector<bool> full;
  if (!source.gguf()) {
    BUTTER_ASSIGN(const auto types, read_layer_types(source.config, layers));
    for (size_t i = 0; i < types.size(); ++i) {
      full.push_back(types[i] == "full_attention" || types[i] == "attention");
      if (full.back() || types[i] == "linear_attention") continue;
      return fail(StatusCode::kUnsupported,
                  "layer_types[{}] is \"{}\"; full_attention or linear_attention is expected", i,
                  printable(types[i]));
    }
    if (!full.empty()) return full;
  }
  const std::string key = source.gguf() ? source.model_type + "." : "";
  BUTTER_ASSIGN(const int64_t interval,
                source.config.require_int_or(key + "full_attention_interval", 4, 1, 1 << 20));
  for (int i = 0; i < layers; ++i) full.push_back((i + 1) % interval == 0);
  return full;
}

Status read_delta_widths(const FamilySource& source, HybridConfig& config) {
  const Attributes& attributes = source.config;
  const auto read = [&](const char* hf, const char* gguf, int64_t otherwise, int& value) -> Status {
    const std::string key = source.gguf() ? source.model_type + ".ssm." + gguf : hf;
    BUTTER_ASSIGN(const int64_t found, attributes.require_int_or(key, otherwise, 1, 1 << 16));
    value = static_cast<int>(found);
    return {};
  };
  BUTTER_TRY(read("linear_num_key_heads", "group_count", 16, config.key_heads));
  BUTTER_TRY(read("linear_num_value_heads", "time_step_rank", 32, config.value_heads));
  BUTTER_TRY(read("linear_key_head_dim", "state_size", 128, config.key_dim));
  BUTTER_TRY(read("linear_conv_kernel_dim", "conv_kernel", 4, config.taps));
  if (source.gguf()) {
    int inner = 0;
    BUTTER_TRY(read("", "inner_size", config.value_heads * config.key_dim, inner));
    if (inner % config.value_heads != 0) {
      return fail(StatusCode::kCorrupt,
                  "{}.ssm.inner_size is {}; a multiple of the {} value heads is expected", source.model_type,
                  inner, config.value_heads);
    }
    config.value_dim = inner / config.value_heads;
  } else {
    BUTTER_TRY(read("linear_value_head_dim", "", 128, config.value_dim));
  }
  if (config.value_heads % config.key_heads != 0) {
    return fail(StatusCode::kCorrupt, "{}: {} value heads and {} key heads; a multiple is expected",
                attributes.source(), config.value_heads, config.key_heads);
  }
  if (int64_t{config.value_heads} * config.value_dim > 1 << 20 ||
      int64_t{config.key_heads} * config.key_dim > 1 << 20 || config.key_dim > 1024 ||
      config.value_dim > 1024) {
    return fail(StatusCode::kCorrupt,
                "{}: {} key heads of {} values and {} value heads of {}; heads of at most 1024 and {} values "
                "in all are expected",
                attributes.source(), config.key_heads, config.key_dim, config.value_heads, config.value_dim,
                1 << 20);
  }
  return {};
}

Result<HybridConfig> read_hybrid(const FamilySource& source, const DenseDefaults& defaults) {
  HybridConfig config;
  BUTTER_ASSIGN(config.dense, read_dense(source, defaults));
  BUTTER_TRY(check_silu(source.config, "hidden_act"));
  BUTTER_TRY(read_attention_traits(source, config.dense));
  BUTTER_TRY(read_delta_widths(source, config));
  BUTTER_ASSIGN(config.full, read_full_layers(source, config.dense.layers));
  config.dense.gated_q = true;
  // MLX files hold 1 + w in the norms of these families.
  config.dense.centred_norms =
      !source.gguf() && !has_mlx_convolution(source, "layers.0.linear_attn.conv1d.weight");
  config.dense.gguf_names = {{TensorRole::kFfnNorm, "post_attention_norm"}};
  return config;
}

// Rows of a projection that is grouped by key head: from each group of `group` rows, `take` from `first` on.
LinearSpec grouped(const TensorNames& names, const TensorNames::Name& name, const HybridConfig& config,
                   int group, int first, int take) {
  LinearSpec spec = names.linear(name, config.key_heads * take, config.dense.hidden);
  spec.weight.stored = Shape{config.key_heads * group, config.dense.hidden};
  spec.weight.first_row = first;
  spec.weight.group_rows = group;
  spec.weight.group_take = take;
  return spec;
}

// q, k and v are convolved together; z, beta and alpha (in files: b and a) are not.
void add_projections(const TensorNames& names, const HybridConfig& config, DeltaNetSpec& spec) {
  const int hidden = config.dense.hidden, heads = config.value_heads;
  const int keys = config.key_heads * config.key_dim, values = heads * config.value_dim;
  const int share = heads / config.key_heads;  // value heads of a key head
  if (config.fused && !names.gguf()) {
    const int own_values = share * config.value_dim, group = 2 * config.key_dim + 2 * own_values;
    const TensorNames::Name qkvz{"in_proj_qkvz"};
    spec.qkv = {grouped(names, qkvz, config, group, 0, config.key_dim),
                grouped(names, qkvz, config, group, config.key_dim, config.key_dim),
                grouped(names, qkvz, config, group, 2 * config.key_dim, own_values)};
    spec.z = grouped(names, qkvz, config, group, 2 * config.key_dim + own_values, own_values);
  } else {
    spec.qkv = {names.linear({"in_proj_qkv", "attn_qkv"}, 2 * keys + values, hidden)};
    spec.z = names.linear({"in_proj_z", "attn_gate"}, values, hidden);
  }
  if (config.fused) {
    const TensorNames::Name ba{"in_proj_ba", "ssm_ba"};
    spec.beta = grouped(names, ba, config, 2 * share, 0, share);
    spec.alpha = grouped(names, ba, config, 2 * share, share, share);
  } else {
    spec.beta = names.linear({"in_proj_b", "ssm_beta"}, heads, hidden);
    spec.alpha = names.linear({"in_proj_a", "ssm_alpha"}, heads, hidden);
  }
}

DeltaNetSpec delta_net(const TensorNames& layer, const HybridConfig& config) {
  const TensorNames names = layer.within("linear_attn.");
  const int values = config.value_heads * config.value_dim;
  DeltaNetSpec spec;
  spec.key_heads = config.key_heads;
  spec.value_heads = config.value_heads;
  spec.key_dim = config.key_dim;
  spec.value_dim = config.value_dim;
  // Converters of Qwen3.5 reorder value heads; for as many as there are key heads it is the same.
  spec.tiled = names.gguf() && !config.fused;
  add_projections(names, config, spec);
  spec.conv = names.conv({"conv1d", "ssm_conv1d"}, 2 * config.key_heads * config.key_dim + values,
                         config.taps, false);
  spec.decay = names.decay({"A_log", "ssm_a"}, config.value_heads);
  spec.dt_bias = names.vector({"dt_bias", "ssm_dt.bias"}, config.value_heads);
  spec.norm = names.norm({"norm", "ssm_norm"}, config.value_dim, config.dense.norm_eps);
  spec.out = names.linear({"out_proj", "ssm_out"}, config.dense.hidden, values);
  return spec;
}

// With experts in the layers that have some.
Result<ModelSpec> hybrid_spec(const FamilySource& source, const HybridConfig& config,
                              const ExpertLayers& experts) {
  return dense_spec(source, config.dense,
                    [&](const TensorNames& names, int layer, LayerSpec& spec) -> Status {
                      if (!config.full[static_cast<size_t>(layer)])
                        spec.mixers = {{delta_net(names, config)}};
                      if (!experts.has(layer)) return {};
                      ExpertsSpec ffn = experts_spec(names, "mlp.gate", {}, experts.config);
                      if (experts.config.shared_width > 0) {
                        ffn.shared = shared_expert(names, "mlp.shared_expert.", experts.config);
                        ffn.shared_gate = shared_gate(names, experts.config.hidden);
                      }
                      spec.ffn = std::move(ffn);
                      return {};
                    });
}

}  // namespace

Result<ModelSpec> qwen3_next_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.head_dim = 256;
  defaults.kv_heads = 2;
  defaults.partial_rotary = 0.25;
  defaults.experts_only = true;
  BUTTER_ASSIGN(HybridConfig config, read_hybrid(source, defaults));
  config.fused = true;
  BUTTER_ASSIGN(const ExpertLayers experts,
                read_expert_layers(source, config.dense, {512, 10, 512, 512}, true));
  return hybrid_spec(source, config, experts);
}

Result<ModelSpec> qwen3_5_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.head_dim = 256;
  defaults.kv_heads = 4;
  defaults.partial_rotary = 0.25;
  BUTTER_ASSIGN(const HybridConfig config, read_hybrid(source, defaults));
  return hybrid_spec(source, config, {});
}

Result<ModelSpec> qwen3_5_moe_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.head_dim = 256;
  defaults.kv_heads = 2;
  defaults.partial_rotary = 0.25;
  defaults.ffn_key = "moe_intermediate_size";
  defaults.experts_only = true;
  BUTTER_ASSIGN(const HybridConfig config, read_hybrid(source, defaults));
  BUTTER_ASSIGN(ExpertLayers experts, read_expert_layers(source, config.dense, {256, 8, 512, 512}, true));
  experts.config.routing.normalise = true;  // there is no key
  return hybrid_spec(source, config, experts);
}

}  // namespace butter
