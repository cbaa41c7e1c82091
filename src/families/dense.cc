#include "families/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/printable.h"
#include "families/rope.h"

namespace butter {
namespace {

// Bounds of what a configuration may say; far beyond any model, far below what would overflow.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxKvValues = int64_t{1}
                                 << 28;  // keys of one position, in all layers: a cache's bytes fit 63 bits

Result<int> require_small(const Attributes& config, const std::string& key, int64_t max) {
  BUTTER_ASSIGN(const int64_t value, config.require_int(key, 1, max));
  return static_cast<int>(value);
}

Result<int> require_small_or(const Attributes& config, const std::string& key, int64_t otherwise,
                             int64_t max) {
  BUTTER_ASSIGN(const int64_t value, config.require_int_or(key, otherwise, 1, max));
  return static_cast<int>(value);
}

Status check_heads(const DenseConfig& config, const Attributes& attributes) {
  if (config.head_dim < 1 || config.head_dim > 1024) {
    return fail(StatusCode::kCorrupt,
                "{}: heads of {} values (hidden size {}, {} heads); 1 to 1024 are expected",
                attributes.source(), config.head_dim, config.hidden, config.heads);
  }
  if (config.heads % config.kv_heads != 0) {
    return fail(StatusCode::kCorrupt, "{}: {} query heads and {} KV heads; a multiple is expected",
                attributes.source(), config.heads, config.kv_heads);
  }
  if (int64_t{config.heads} * config.head_dim > kMaxWidth) {
    return fail(StatusCode::kCorrupt, "{}: {} heads of {} values; at most {} values in all are expected",
                attributes.source(), config.heads, config.head_dim, kMaxWidth);
  }
  const int64_t kv_values = int64_t{config.layers} * config.kv_heads * config.head_dim;
  if (kv_values > kMaxKvValues) {
    return fail(StatusCode::kCorrupt,
                "{}: {} layers of {} KV heads of {} values; at most {} values in all are expected",
                attributes.source(), config.layers, config.kv_heads, config.head_dim, kMaxKvValues);
  }
  return {};
}

// Head width where no key states it.
Result<int> default_head_dim(const DenseConfig& config, const DenseDefaults& defaults,
                             const Attributes& attributes) {
  if (defaults.head_dim > 0) return defaults.head_dim;
  if (config.hidden % config.heads != 0) {
    return fail(StatusCode::kCorrupt, "{}: the hidden size {} is not a multiple of the {} heads",
                attributes.source(), config.hidden, config.heads);
  }
  return config.hidden / config.heads;
}

Result<Activation> read_activation(const Attributes& attributes, const DenseDefaults& defaults) {
  BUTTER_ASSIGN(const std::string name,
                attributes.get_string_or(defaults.activation_key, defaults.activation));
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  return fail(StatusCode::kUnsupported,
              "{} is \"{}\"; silu, gelu, gelu_pytorch_tanh and gelu_new are supported",
              defaults.activation_key, printable(name));
}

Result<DenseConfig> read_hf(const FamilySource& source, const DenseDefaults& defaults) {
  const Attributes& attributes = source.config;
  DenseConfig config;
  BUTTER_ASSIGN(config.hidden, require_small(attributes, "hidden_size", kMaxWidth));
  BUTTER_ASSIGN(config.layers, require_small(attributes, "num_hidden_layers", kMaxLayers));
  BUTTER_ASSIGN(config.heads, require_small(attributes, "num_attention_heads", kMaxWidth));
  const int kv_heads = defaults.kv_heads > 0 ? defaults.kv_heads : config.heads;
  BUTTER_ASSIGN(config.kv_heads, require_small_or(attributes, "num_key_value_heads", kv_heads, kMaxWidth));
  if (attributes.kind("head_dim") == AttributeKind::kAbsent) {
    BUTTER_ASSIGN(config.head_dim, default_head_dim(config, defaults, attributes));
  } else {
    BUTTER_ASSIGN(config.head_dim, require_small(attributes, "head_dim", kMaxWidth));
  }
  BUTTER_TRY(check_heads(config, attributes));
  BUTTER_ASSIGN(config.ffn, require_small(attributes, defaults.ffn_key, kMaxWidth));
  BUTTER_ASSIGN(config.vocabulary, require_small(attributes, "vocab_size", kMaxVocabulary));
  BUTTER_ASSIGN(config.max_positions,
                attributes.require_int_or("max_position_embeddings", 2048, 1, kMaxPositions));
  BUTTER_ASSIGN(const double eps, attributes.require_float_or("rms_norm_eps", defaults.norm_eps, 0, 1));
  config.norm_eps = static_cast<float>(eps);
  BUTTER_ASSIGN(config.activation, read_activation(attributes, defaults));
  BUTTER_ASSIGN(config.tied, attributes.get_bool_or("tie_word_embeddings", defaults.tied));
  BUTTER_ASSIGN(RopeTable rope,
                read_hf_rope(attributes, config.head_dim, {defaults.rope_theta, defaults.partial_rotary},
                             config.max_positions));
  config.ropes.push_back(std::move(rope));
  return config;
}

// Rows of the embedding: the vocabulary, whatever the metadata say (files are padded or cut).
Result<int> gguf_vocabulary(const FamilySource& source, const std::string& prefix, int hidden) {
  const TensorView* embedding =
      source.checkpoint ? source.checkpoint->find_tensor("token_embd.weight") : nullptr;
  if (embedding == nullptr) return require_small(source.config, prefix + "vocab_size", kMaxVocabulary);
  if (embedding->shape.rank() != 2 || embedding->shape[0] < 1 || embedding->shape[0] > kMaxVocabulary) {
    return fail(StatusCode::kCorrupt, "token_embd.weight is {}; [rows, {}] with 1 to {} rows is expected",
                embedding->shape.to_string(), hidden, kMaxVocabulary);
  }
  return static_cast<int>(embedding->shape[0]);
}

// A number that some files state for each block.
Result<int> read_width(const Attributes& attributes, const std::string& key, int blocks, int64_t otherwise) {
  if (attributes.kind(key) != AttributeKind::kArray)
    return require_small_or(attributes, key, otherwise, kMaxWidth);
  BUTTER_ASSIGN(const int largest, read_largest(attributes, key, static_cast<size_t>(blocks)));
  return largest > 0 ? largest : static_cast<int>(otherwise);
}

Result<DenseConfig> read_gguf(const FamilySource& source, const DenseDefaults& defaults) {
  const Attributes& attributes = source.config;
  const std::string prefix = source.model_type + ".";
  DenseConfig config;
  BUTTER_ASSIGN(config.hidden, require_small(attributes, prefix + "embedding_length", kMaxWidth));
  BUTTER_ASSIGN(const int blocks, require_small(attributes, prefix + "block_count", kMaxLayers));
  // Blocks that predict further tokens stand behind the model's own.
  BUTTER_ASSIGN(const int64_t predicting,
                attributes.require_int_or(prefix + "nextn_predict_layers", 0, 0, blocks - 1));
  config.layers = blocks - static_cast<int>(predicting);
  BUTTER_ASSIGN(config.heads, require_small(attributes, prefix + "attention.head_count", kMaxWidth));
  BUTTER_ASSIGN(config.kv_heads,
                read_width(attributes, prefix + "attention.head_count_kv", blocks, config.heads));
  const std::string head_dim_key = prefix + "attention.key_length";
  if (attributes.kind(head_dim_key) == AttributeKind::kAbsent) {
    DenseDefaults without_number = defaults;
    without_number.head_dim = 0;
    BUTTER_ASSIGN(config.head_dim, default_head_dim(config, without_number, attributes));
  } else {
    BUTTER_ASSIGN(config.head_dim, require_small(attributes, head_dim_key, kMaxWidth));
  }
  BUTTER_TRY(check_heads(config, attributes));
  const char* ffn_key = defaults.experts_only ? "expert_feed_forward_length" : "feed_forward_length";
  if (attributes.kind(prefix + ffn_key) == AttributeKind::kArray) {
    BUTTER_ASSIGN(config.ffn, read_width(attributes, prefix + ffn_key, blocks, 1));
  } else {
    BUTTER_ASSIGN(config.ffn, require_small(attributes, prefix + ffn_key, kMaxWidth));
  }
  BUTTER_ASSIGN(config.vocabulary, gguf_vocabulary(source, prefix, config.hidden));
  BUTTER_ASSIGN(config.max_positions,
                attributes.require_int_or(prefix + "context_length", 2048, 1, kMaxPositions));
  BUTTER_ASSIGN(const double eps, attributes.require_float_or(prefix + "attention.layer_norm_rms_epsilon",
                                                              defaults.norm_eps, 0, 1));
  config.norm_eps = static_cast<float>(eps);
  config.tied = !source.has_tensor("output.weight");
  BUTTER_ASSIGN(RopeTable rope,
                read_gguf_rope(source, prefix, config.head_dim,
                               {defaults.rope_theta, defaults.partial_rotary, defaults.truncate_yarn}));
  config.ropes.push_back(std::move(rope));
  return config;
}

// Names, shapes and traits of one file, put together layer by layer.
class SpecBuilder {
 public:
  SpecBuilder(const FamilySource& source, const DenseConfig& config)
      : source_(source),
        config_(config),
        prefix_(find_prefix(source, {"model.", "model.language_model.", "language_model.model."},
                            "layers.0.input_layernorm.weight")) {}

  Result<ModelSpec> build(const EditLayer& edit) const {
    ModelSpec spec;
    spec.vocabulary = config_.vocabulary;
    spec.hidden = config_.hidden;
    spec.max_positions = config_.max_positions;
    spec.embedding = weight(TensorRole::kEmbedding, -1, Shape{config_.vocabulary, config_.hidden});
    const TensorRef head = weight(TensorRole::kHead, -1, Shape{config_.vocabulary, config_.hidden});
    spec.head = head_or_tied(source_, head.name, head.shape, config_.tied);
    spec.final_norm = norm(TensorRole::kFinalNorm, -1, config_.hidden);
    if (config_.plain_final_norm) spec.final_norm.centred = false;
    if (config_.embedding_norm) spec.embedding_norm = NormSpec{std::nullopt, config_.norm_eps, false};
    spec.rope_tables = config_.ropes;
    spec.embedding_scale = config_.embedding_scale;
    spec.logit_multiplier = config_.logit_multiplier;
    spec.logit_cap = config_.logit_cap;
    for (int layer = 0; layer < config_.layers; ++layer) {
      spec.layers.push_back(layer_spec(layer));
      const TensorNames names(source_, fmt::format("{}layers.{}.", prefix_, layer),
                              fmt::format("blk.{}.", layer));
      if (edit) BUTTER_TRY(edit(names, layer, spec.layers.back()));
    }
    spec.kv_dtype = raw_kv_dtype(source_, spec);
    return spec;
  }

 private:
  std::string name(TensorRole role, int layer) const {
    const std::string usual = tensor_name(source_.format, role, layer);
    if (source_.gguf()) {
      const auto own = config_.gguf_names.find(role);
      return own == config_.gguf_names.end() ? usual : fmt::format("blk.{}.{}", layer, own->second);
    }
    if (const auto own = config_.hf_names.find(role); own != config_.hf_names.end())
      return layer < 0 ? own->second : fmt::format("{}layers.{}.{}", prefix_, layer, own->second);
    constexpr std::string_view kUsual = "model.", kDeepest = "language_model.";
    if (usual.starts_with(kUsual)) return prefix_ + usual.substr(kUsual.size());
    return prefix_.starts_with(kDeepest) ? std::string(kDeepest) + usual : usual;  // the head
  }

  TensorRef weight(TensorRole role, int layer, Shape shape, const char* suffix = ".weight") const {
    TensorRef ref;
    ref.name = name(role, layer) + suffix;
    ref.shape = shape;
    return ref;
  }

  NormSpec norm(TensorRole role, int layer, int width) const {
    return NormSpec{weight(role, layer, Shape{width}), config_.norm_eps, config_.centred_norms};
  }

  LinearSpec linear(TensorRole role, int layer, int out, int in, bool bias) const {
    LinearSpec spec{weight(role, layer, Shape{out, in}), std::nullopt};
    if (bias) spec.bias = weight(role, layer, Shape{out}, ".bias");
    return spec;
  }

  // Rows [first, first + out) of a tensor of `all` rows.
  LinearSpec rows_of(TensorRole role, int layer, int out, int in, int first, int all) const {
    LinearSpec spec = linear(role, layer, out, in, false);
    spec.weight.first_row = first;
    spec.weight.stored = Shape{all, in};
    return spec;
  }

  // q or k: rows may be permuted, and their bias with them.
  LinearSpec rotated_linear(TensorRole role, int layer, int heads) const {
    LinearSpec spec = linear(role, layer, heads * config_.head_dim, config_.hidden, config_.qkv_bias);
    if (config_.permuted_qk) {
      spec.weight.permuted_heads = heads;
      if (spec.bias) spec.bias->permuted_heads = heads;
    }
    return spec;
  }

  LayerSpec layer_spec(int layer) const {
    LayerSpec spec;
    spec.pre_norm = norm(TensorRole::kPreNorm, layer, config_.hidden);
    spec.mixers.push_back({attention(layer)});
    spec.ffn_norm = norm(TensorRole::kFfnNorm, layer, config_.hidden);
    spec.ffn = ffn(layer);
    if (config_.post_norms) {
      spec.mixer_post_norm = norm(TensorRole::kMixerPostNorm, layer, config_.hidden);
      spec.ffn_post_norm = norm(TensorRole::kFfnPostNorm, layer, config_.hidden);
      if (config_.post_norm_eps > 0)
        spec.mixer_post_norm->eps = spec.ffn_post_norm->eps = config_.post_norm_eps;
    }
    spec.residual_multiplier = config_.residual_multiplier;
    return spec;
  }

  AttentionSpec attention(int layer) const {
    AttentionSpec spec;
    spec.heads = config_.heads;
    spec.kv_heads = config_.kv_heads;
    spec.head_dim = config_.head_dim;
    add_qkv(layer, spec);
    spec.o = linear(TensorRole::kO, layer, config_.hidden, config_.heads * config_.head_dim, config_.o_bias);
    if (config_.output_gate > 0)
      spec.gate = linear(TensorRole::kOutputGate, layer, config_.output_gate, config_.hidden, false);
    if (config_.weightless_qk_norm)
      spec.q_norm = spec.k_norm = NormSpec{std::nullopt, config_.norm_eps, false};
    if (config_.qk_norm) {
      spec.q_norm = norm(TensorRole::kQNorm, layer, config_.head_dim);
      spec.k_norm = norm(TensorRole::kKNorm, layer, config_.head_dim);
    }
    spec.rope_table =
        config_.layer_ropes.empty() ? std::optional(0) : config_.layer_ropes[static_cast<size_t>(layer)];
    const auto usual_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    spec.scale = config_.attention_scale.value_or(usual_scale);
    if (!config_.windows.empty()) spec.window = config_.windows[static_cast<size_t>(layer)];
    // As wide as the model reaches: it cuts nothing.
    if (spec.window.max_size >= config_.max_positions) spec.window = {};
    return spec;
  }

  // The query rows of each head, followed by its gate rows, in one tensor.
  void split_gated_q(AttentionSpec& spec) const {
    const int width = config_.heads * config_.head_dim;
    spec.gate = spec.q;
    for (LinearSpec* half : {&spec.q, &*spec.gate}) {
      half->weight.stored = Shape{2 * width, config_.hidden};
      half->weight.group_rows = 2 * config_.head_dim;
      half->weight.group_take = config_.head_dim;
    }
    spec.gate->weight.first_row = config_.head_dim;
    if (!spec.q.bias) return;
    for (LinearSpec* half : {&spec.q, &*spec.gate}) {
      half->bias->stored = Shape{2 * width};
      half->bias->group_rows = 2 * config_.head_dim;
      half->bias->group_take = config_.head_dim;
    }
    spec.gate->bias->first_row = config_.head_dim;
  }

  void add_qkv(int layer, AttentionSpec& spec) const {
    const int q_width = config_.heads * config_.head_dim, kv_width = config_.kv_heads * config_.head_dim;
    if (config_.fused_qkv) {
      const int all = q_width + 2 * kv_width;
      spec.q = rows_of(TensorRole::kQkv, layer, q_width, config_.hidden, 0, all);
      spec.k = rows_of(TensorRole::kQkv, layer, kv_width, config_.hidden, q_width, all);
      spec.v = rows_of(TensorRole::kQkv, layer, kv_width, config_.hidden, q_width + kv_width, all);
      return;
    }
    spec.q = rotated_linear(TensorRole::kQ, layer, config_.heads);
    if (config_.gated_q) split_gated_q(spec);
    spec.k = rotated_linear(TensorRole::kK, layer, config_.kv_heads);
    spec.v = linear(TensorRole::kV, layer, kv_width, config_.hidden, config_.qkv_bias);
  }

  GatedFfnSpec ffn(int layer) const {
    GatedFfnSpec spec;
    spec.width = config_.ffn;
    spec.function = config_.activation;
    if (config_.fused_gate_up) {
      spec.gate = rows_of(TensorRole::kGateUp, layer, config_.ffn, config_.hidden, 0, 2 * config_.ffn);
      spec.up =
          rows_of(TensorRole::kGateUp, layer, config_.ffn, config_.hidden, config_.ffn, 2 * config_.ffn);
    } else {
      spec.gate = linear(TensorRole::kGate, layer, config_.ffn, config_.hidden, config_.mlp_bias);
      spec.up = linear(TensorRole::kUp, layer, config_.ffn, config_.hidden, config_.mlp_bias);
    }
    spec.down = linear(TensorRole::kDown, layer, config_.hidden, config_.ffn, config_.mlp_bias);
    return spec;
  }

  const FamilySource& source_;
  const DenseConfig& config_;
  const std::string prefix_;
};

}  // namespace

Result<DenseConfig> read_dense(const FamilySource& source, const DenseDefaults& defaults) {
  return source.gguf() ? read_gguf(source, defaults) : read_hf(source, defaults);
}

Result<ModelSpec> dense_spec(const FamilySource& source, const DenseConfig& config, const EditLayer& edit) {
  return SpecBuilder(source, config).build(edit);
}

Result<int> read_largest(const Attributes& attributes, const std::string& key, size_t blocks) {
  BUTTER_ASSIGN(const auto values, attributes.get_ints(key));
  if (values.size() != blocks) {
    return fail(StatusCode::kCorrupt, "{} has {} entries; {}, one a layer, are expected", key, values.size(),
                blocks);
  }
  int64_t largest = 0;
  for (const int64_t value : values) {
    if (value < 0 || value > kMaxWidth)
      return fail(StatusCode::kCorrupt, "{} has {}; 0 to {} is expected", key, value, kMaxWidth);
    largest = std::max(largest, value);
  }
  return static_cast<int>(largest);
}

Result<std::span<const std::string_view>> read_layer_types(const Attributes& config, int layers) {
  if (config.kind("layer_types") == AttributeKind::kAbsent) return std::span<const std::string_view>{};
  BUTTER_ASSIGN(const auto types, config.get_strings("layer_types"));
  if (static_cast<int>(types.size()) != layers) {
    return fail(StatusCode::kCorrupt, "layer_types has {} entries; {}, one a layer, are expected",
                types.size(), layers);
  }
  return types;
}

Result<std::vector<bool>> read_gguf_sliding_layers(const FamilySource& source, int layers) {
  const std::string key = source.model_type + ".attention.sliding_window_pattern";
  if (source.config.kind(key) == AttributeKind::kAbsent) return std::vector<bool>();
  BUTTER_ASSIGN(std::vector<bool> sliding, source.config.get_bools(key));
  if (static_cast<int>(sliding.size()) != layers) {
    return fail(StatusCode::kCorrupt, "{} has {} entries; {}, one a layer, are expected", key, sliding.size(),
                layers);
  }
  return sliding;
}

Result<std::vector<bool>> read_sliding_layers(const Attributes& config, int layers) {
  BUTTER_ASSIGN(const auto types, read_layer_types(config, layers));
  std::vector<bool> sliding;
  for (size_t i = 0; i < types.size(); ++i) {
    sliding.push_back(types[i] == "sliding_attention");
    if (!sliding.back() && types[i] != "full_attention") {
      return fail(StatusCode::kUnsupported,
                  "layer_types[{}] is \"{}\"; full_attention or sliding_attention is expected", i,
                  printable(types[i]));
    }
  }
  return sliding;
}

Result<Window> read_optional_window(const FamilySource& source) {
  if (source.gguf()) return Window{};
  const Attributes& attributes = source.config;
  BUTTER_ASSIGN(const bool use, attributes.get_bool_or("use_sliding_window", false));
  if (!use || attributes.kind("sliding_window") == AttributeKind::kAbsent) return Window{};
  BUTTER_ASSIGN(const int64_t width, attributes.require_int("sliding_window", 1, kMaxPositions));
  return Window{width, 0};
}

Result<std::vector<Window>> read_optional_windows(const FamilySource& source, int layers) {
  std::vector<Window> windows(static_cast<size_t>(layers));
  BUTTER_ASSIGN(const Window window, read_optional_window(source));
  if (window.none()) return windows;
  const Attributes& attributes = source.config;
  BUTTER_ASSIGN(const auto sliding, read_sliding_layers(attributes, layers));
  if (!sliding.empty()) {
    for (size_t i = 0; i < sliding.size(); ++i) windows[i] = sliding[i] ? window : Window{};
    return windows;
  }
  BUTTER_ASSIGN(const int64_t first, attributes.require_int_or("max_window_layers", 28, 0, kMaxLayers));
  for (int64_t i = first; i < layers; ++i) windows[static_cast<size_t>(i)] = window;
  return windows;
}

}  // namespace butter
