#include "families/mamba.h"

#include <fmt/format.h>

namespace butter {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocabulary = 1 << 24;

Status check_widths(const Attributes& attributes, const Mamba2Config& config) {
  if (config.heads % config.groups != 0) {
    return fail(StatusCode::kCorrupt, "{}: {} Mamba2 heads and {} groups; a multiple is expected",
                attributes.source(), config.heads, config.groups);
  }
  const int64_t values = int64_t{config.heads} * config.head_dim,
                group_values = int64_t{config.groups} * config.state_size;
  if (values > kMaxWidth || group_values > kMaxWidth || config.head_dim > 4096 || config.state_size > 4096) {
    return fail(StatusCode::kCorrupt,
                "{}: {} Mamba2 heads of {} values and {} groups of {} states; at most 4096 of each, and {} "
                "values in all, are expected",
                attributes.source(), config.heads, config.head_dim, config.groups, config.state_size,
                kMaxWidth);
  }
  return {};
}

Result<Mamba2Config> read_gguf(const FamilySource& source) {
  const Attributes& attributes = source.config;
  const std::string prefix = source.model_type + ".ssm.";
  Mamba2Config config;
  BUTTER_ASSIGN(const int64_t heads, attributes.require_int(prefix + "time_step_rank", 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t inner, attributes.require_int(prefix + "inner_size", 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t groups, attributes.require_int_or(prefix + "group_count", 1, 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t size, attributes.require_int(prefix + "state_size", 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t taps, attributes.require_int(prefix + "conv_kernel", 1, 64));
  if (inner % heads != 0) {
    return fail(StatusCode::kCorrupt, "{}inner_size is {}; a multiple of the {} heads is expected", prefix,
                inner, heads);
  }
  config.heads = static_cast<int>(heads);
  config.head_dim = static_cast<int>(inner / heads);
  config.groups = static_cast<int>(groups);
  config.state_size = static_cast<int>(size);
  config.taps = static_cast<int>(taps);
  return config;
}

Result<Mamba2Config> read_hf(const Attributes& attributes, const Mamba2Keys& keys, int64_t inner) {
  Mamba2Config config;
  BUTTER_ASSIGN(const int64_t heads, attributes.require_int_or(keys.heads, keys.default_heads, 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t dim,
                read_number_or_auto(attributes, keys.head_dim,
                                    keys.default_head_dim > 0 ? keys.default_head_dim : inner / heads));
  BUTTER_ASSIGN(const int64_t groups,
                attributes.require_int_or(keys.groups, keys.default_groups, 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t size,
                attributes.require_int_or(keys.state_size, keys.default_state_size, 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t taps, attributes.require_int_or(keys.taps, 4, 1, 64));
  BUTTER_ASSIGN(config.conv_bias, attributes.get_bool_or(keys.conv_bias, true));
  if (dim < 1 || (keys.default_head_dim == 0 && heads * dim != inner)) {
    return fail(StatusCode::kCorrupt, "{}: {} Mamba2 heads of {} values; {} values in all are expected",
                attributes.source(), heads, dim, inner);
  }
  config.heads = static_cast<int>(heads);
  config.head_dim = static_cast<int>(dim);
  config.groups = static_cast<int>(groups);
  config.state_size = static_cast<int>(size);
  config.taps = static_cast<int>(taps);
  return config;
}

}  // namespace

Result<int64_t> read_number_or_auto(const Attributes& config, const char* key, int64_t otherwise) {
  if (config.kind(key) == AttributeKind::kString) {
    BUTTER_ASSIGN(const std::string_view word, config.get_string(key));
    if (word == "auto") return otherwise;
  }
  return config.require_int_or(key, otherwise, 1, kMaxWidth);
}

Status check_silu(const Attributes& config, const char* key) {
  BUTTER_ASSIGN(const std::string function, config.get_string_or(key, "silu"));
  if (function == "silu" || function == "swish") return {};
  return fail(StatusCode::kUnsupported, "{} is {}; silu, which recurrent layers have, is expected", key,
              config.describe(key));
}

Result<Mamba2Config> read_mamba2(const FamilySource& source, int hidden, const Mamba2Keys& keys,
                                 int64_t inner) {
  BUTTER_ASSIGN(Mamba2Config config, source.gguf() ? read_gguf(source) : read_hf(source.config, keys, inner));
  config.hidden = hidden;
  BUTTER_TRY(check_widths(source.config, config));
  return config;
}

Status read_dt_limit(const Attributes& config, Mamba2Config& mamba) {
  if (config.kind("time_step_limit") == AttributeKind::kAbsent) return {};
  BUTTER_ASSIGN(const auto limits, config.get_floats("time_step_limit"));
  if (limits.size() != 2 || !(limits[0] >= 0) || !(limits[1] >= limits[0])) {
    return fail(StatusCode::kCorrupt,
                "time_step_limit is {}; two numbers, the first not above the second, are expected",
                config.describe("time_step_limit"));
  }
  mamba.dt_min = static_cast<float>(limits[0]);
  mamba.dt_max = static_cast<float>(limits[1]);
  return {};
}

Mamba2Spec mamba2_mixer(const TensorNames& names, const Mamba2Config& config) {
  const int width = config.heads * config.head_dim, groups = config.groups * config.state_size;
  const int all = 2 * width + 2 * groups + config.heads;
  const TensorNames::Name in{"in_proj", "ssm_in"}, out{"out_proj", "ssm_out"};
  const bool in_bias = names.has({"in_proj.bias", "ssm_in.bias"});
  const bool out_bias = names.has({"out_proj.bias", "ssm_out.bias"});
  Mamba2Spec spec;
  spec.heads = config.heads;
  spec.head_dim = config.head_dim;
  spec.groups = config.groups;
  spec.state_size = config.state_size;
  spec.z = names.rows(in, width, config.hidden, 0, all, in_bias);
  spec.xbc = names.rows(in, width + 2 * groups, config.hidden, width, all, in_bias);
  spec.dt = names.rows(in, config.heads, config.hidden, all - config.heads, all, in_bias);
  spec.multipliers = config.multipliers;
  spec.conv = names.conv({"conv1d", "ssm_conv1d"}, width + 2 * groups, config.taps, config.conv_bias);
  spec.decay = names.decay({"A_log", "ssm_a"}, config.heads);
  spec.skip = names.vector({"D", "ssm_d"}, config.heads);
  spec.dt_bias = names.vector({"dt_bias", "ssm_dt.bias"}, config.heads);
  spec.dt_min = config.dt_min;
  spec.dt_max = config.dt_max;
  spec.output = config.output;
  spec.norm_groups = config.norm_groups;
  if (config.output != OutputNorm::kGateOnly)
    spec.norm = names.norm({"norm", "ssm_norm"}, width, config.norm_eps);
  spec.out = names.linear(out, config.hidden, width, out_bias);
  return spec;
}

namespace {

struct ModelWidths {
  int hidden = 0, layers = 0, vocabulary = 0;
  int64_t max_positions = 0;
  float eps = 0;
  bool tied = false;
};

Result<ModelWidths> read_widths(const FamilySource& source) {
  const Attributes& config = source.config;
  const bool gguf = source.gguf();
  const std::string prefix = gguf ? source.model_type + "." : "";
  const auto key = [&](const char* hf, const char* other) { return prefix + (gguf ? other : hf); };
  BUTTER_ASSIGN(const int64_t hidden,
                config.require_int(key("hidden_size", "embedding_length"), 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t layers,
                config.require_int(key("num_hidden_layers", "block_count"), 1, kMaxLayers));
  // Padded in converted files: the embedding knows.
  int64_t vocabulary = 0;
  const TensorView* embedding =
      gguf && source.checkpoint ? source.checkpoint->find_tensor("token_embd.weight") : nullptr;
  if (embedding != nullptr && embedding->shape.rank() == 2) {
    vocabulary = embedding->shape[0];
  } else {
    BUTTER_ASSIGN(vocabulary, config.require_int(key("vocab_size", "vocab_size"), 1, kMaxVocabulary));
  }
  BUTTER_ASSIGN(
      const double eps,
      config.require_float_or(key("layer_norm_epsilon", "attention.layer_norm_rms_epsilon"), 1e-5, 0, 1));
  ModelWidths widths{static_cast<int>(hidden),     static_cast<int>(layers),
                     static_cast<int>(vocabulary), 0,
                     static_cast<float>(eps),      false};
  BUTTER_ASSIGN(widths.tied, config.get_bool_or("tie_word_embeddings", false));
  // There are no positions that could end; this is where trained ones do, or as good as never.
  BUTTER_ASSIGN(widths.max_positions, config.require_int_or(key("max_position_embeddings", "context_length"),
                                                            1 << 20, 1, int64_t{1} << 31));
  return widths;
}

}  // namespace

Result<ModelSpec> mamba2_spec(const FamilySource& source) {
  BUTTER_ASSIGN(const ModelWidths widths, read_widths(source));
  const Mamba2Keys keys{"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "use_conv_bias",
                        128,         64,         8,          128};
  BUTTER_ASSIGN(Mamba2Config mamba, read_mamba2(source, widths.hidden, keys, 0));
  BUTTER_TRY(check_silu(source.config, "hidden_act"));
  mamba.norm_eps = widths.eps;
  // The original code, which GGUF files are made for, norms each group.
  if (source.gguf()) mamba.norm_groups = mamba.groups;
  if (!source.gguf()) BUTTER_TRY(read_dt_limit(source.config, mamba));
  const std::string prefix =
      find_prefix(source, {"backbone.", "model.backbone.", "model."}, "layers.0.norm.weight");
  const TensorNames model(source, prefix, "");
  ModelSpec spec;
  spec.vocabulary = widths.vocabulary;
  spec.hidden = widths.hidden;
  spec.max_positions = widths.max_positions;
  spec.embedding = model.linear({"embeddings", "token_embd"}, widths.vocabulary, widths.hidden).weight;
  spec.head = head_or_tied(source, source.gguf() ? "output.weight" : "lm_head.weight",
                           Shape{widths.vocabulary, widths.hidden}, widths.tied);
  spec.final_norm = model.norm({"norm_f", "output_norm"}, widths.hidden, widths.eps);
  for (int i = 0; i < widths.layers; ++i) {
    const TensorNames names(source, fmt::format("{}layers.{}.", prefix, i), fmt::format("blk.{}.", i));
    LayerSpec layer;
    layer.pre_norm = names.norm({"norm", "attn_norm"}, widths.hidden, widths.eps);
    layer.mixers = {{mamba2_mixer(names.within("mixer."), mamba)}};
    spec.layers.push_back(std::move(layer));
  }
  spec.kv_dtype = raw_kv_dtype(source, spec);
  return spec;
}

}  // namespace butter
