#include "families/nemotron.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/printable.h"
#include "families/dense.h"
#include "families/experts.h"
#include "families/mamba.h"
#include "families/tensor_names.h"

namespace butter {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr size_t kMaxBlocks = 4096;
constexpr int64_t kMaxKvValues = int64_t{1} << 28;  // keys of one position, in all layers

enum class Block { kMamba, kAttention, kMlp, kExperts };

Result<Block> block_of(std::string_view word, size_t index) {
  if (word == "M" || word == "mamba" || word == "linear_attention") return Block::kMamba;
  if (word == "*" || word == "attention" || word == "full_attention") return Block::kAttention;
  if (word == "-" || word == "mlp") return Block::kMlp;
  if (word == "E" || word == "moe") return Block::kExperts;
  return fail(StatusCode::kUnsupported,
              "block {} is \"{}\"; mamba, attention, mlp or moe (M, *, - or E) is expected", index,
              printable(word));
}

// The letters of a text, each with all of its bytes.
std::vector<std::string_view> letters_of(std::string_view text) {
  std::vector<std::string_view> letters;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    letters.push_back(text.substr(at, end - at));
  }
  return letters;
}

// A word for each block, or in older files a letter.
Result<std::vector<Block>> read_hf_blocks(const Attributes& config) {
  const bool has_words = config.kind("layers_block_type") != AttributeKind::kAbsent;
  const char* key = has_words ? "layers_block_type" : "hybrid_override_pattern";
  std::vector<std::string_view> words;
  if (has_words) {
    BUTTER_ASSIGN(const auto found, config.get_strings(key));
    words.assign(found.begin(), found.end());
  } else {
    BUTTER_ASSIGN(const std::string_view pattern, config.get_string(key));
    words = letters_of(pattern);
  }
  const auto count = static_cast<int64_t>(words.size());
  BUTTER_ASSIGN(const int64_t stated, config.get_int_or("num_hidden_layers", count));
  if (stated != count) {
    return fail(StatusCode::kCorrupt, "{} has {} blocks, and num_hidden_layers is {}; as many are expected",
                key, count, stated);
  }
  std::vector<Block> blocks;
  for (size_t i = 0; i < words.size(); ++i) {
    BUTTER_ASSIGN(const Block block, block_of(words[i], i));
    blocks.push_back(block);
  }
  return blocks;
}

// By what a block's tensors are: its arrays of head counts and widths say the same.
Result<std::vector<Block>> read_gguf_blocks(const FamilySource& source) {
  BUTTER_ASSIGN(const int64_t count,
                source.config.require_int(source.model_type + ".block_count", 1, kMaxBlocks));
  std::vector<Block> blocks;
  for (int64_t i = 0; i < count; ++i) {
    const TensorNames names(source, "", fmt::format("blk.{}.", i));
    Block block = Block::kMlp;
    if (names.has({"", "ssm_in.weight"})) block = Block::kMamba;
    if (names.has({"", "attn_q.weight"})) block = Block::kAttention;
    if (names.has({"", "ffn_gate_inp.weight"})) block = Block::kExperts;
    blocks.push_back(block);
  }
  return blocks;
}

Result<std::vector<Block>> read_blocks(const FamilySource& source) {
  BUTTER_ASSIGN(std::vector<Block> blocks,
                source.gguf() ? read_gguf_blocks(source) : read_hf_blocks(source.config));
  if (!blocks.empty() && blocks.size() <= kMaxBlocks) return blocks;
  return fail(StatusCode::kCorrupt, "{}: {} blocks; 1 to {} are expected", source.config.source(),
              blocks.size(), kMaxBlocks);
}

// The configuration, from either kind of file.
struct Config {
  explicit Config(const FamilySource& from) : source(from) {}

  const FamilySource& source;
  std::string prefix;  // of Hugging Face names
  int hidden = 0, vocabulary = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  int64_t max_positions = 0;
  float eps = 1e-5f;
  bool attention_bias = false, mlp_bias = false;
  std::vector<Block> blocks;
  Mamba2Config mamba;
  ExpertsConfig experts;
  int latent = 0;  // columns of what the routed experts read, where that is not `hidden`
};

// `otherwise` 0: the key has to be there.
Result<int> read_width(const FamilySource& source, const char* hf, const char* gguf, int64_t otherwise) {
  const std::string key = source.gguf() ? source.model_type + "." + gguf : hf;
  BUTTER_ASSIGN(const int64_t value, otherwise == 0
                                         ? source.config.require_int(key, 1, kMaxWidth)
                                         : source.config.require_int_or(key, otherwise, 1, kMaxWidth));
  return static_cast<int>(value);
}

// A number that GGUF files may state for each of `blocks`, 0 where a block has no such part: the largest.
Result<int> read_block_width(const FamilySource& source, const char* hf, const char* gguf, int64_t otherwise,
                             size_t blocks) {
  const std::string key = source.model_type + "." + gguf;
  if (!source.gguf() || source.config.kind(key) != AttributeKind::kArray)
    return read_width(source, hf, gguf, otherwise);
  BUTTER_ASSIGN(const int largest, read_largest(source.config, key, blocks));
  return std::max(largest, 1);
}

Status read_mamba(const FamilySource& source, Config& config) {
  const Mamba2Keys keys{"mamba_num_heads",
                        "mamba_head_dim",
                        "n_groups",
                        "ssm_state_size",
                        "conv_kernel",
                        "use_conv_bias",
                        128,
                        64,
                        8,
                        128};
  BUTTER_ASSIGN(config.mamba, read_mamba2(source, config.hidden, keys, 0));
  config.mamba.norm_eps = config.eps;
  config.mamba.norm_groups = config.mamba.groups;
  BUTTER_TRY(check_silu(source.config, "mamba_hidden_act"));
  if (source.gguf()) return {};  // which have no floor of dt
  // Both forms of the original hold dt above time_step_min, or only one does: here both, so that an answer
  // does not depend on how a prompt is cut (families.md 6.15).
  BUTTER_ASSIGN(const double floor, source.config.require_float_or("time_step_min", 0.001, 0, 1e6));
  config.mamba.dt_min = static_cast<float>(floor);
  return {};
}

Status read_routing(const FamilySource& source, Config& config) {
  const ExpertKeys keys{"n_routed_experts", "num_local_experts", "num_experts_per_tok",
                        "moe_intermediate_size", "moe_shared_expert_intermediate_size"};
  BUTTER_ASSIGN(config.experts,
                read_experts(source, {config.hidden, static_cast<int>(config.blocks.size())}, keys, {}));
  BUTTER_TRY(check_gating(source, config.experts, {Gating::kSigmoid}));
  Routing& routing = config.experts.routing;
  const Attributes& attributes = source.config;
  const bool gguf = source.gguf();
  const std::string prefix = gguf ? source.model_type + "." : "";
  BUTTER_ASSIGN(routing.normalise,
                attributes.get_bool_or(prefix + (gguf ? "expert_weights_norm" : "norm_topk_prob"), true));
  BUTTER_ASSIGN(const double scale,
                attributes.require_float_or(
                    prefix + (gguf ? "expert_weights_scale" : "routed_scaling_factor"), 1, 1e-6, 1e6));
  BUTTER_ASSIGN(
      const int64_t groups,
      attributes.require_int_or(prefix + (gguf ? "expert_group_count" : "n_group"), 1, 1, routing.experts));
  BUTTER_ASSIGN(
      const int64_t chosen,
      attributes.require_int_or(prefix + (gguf ? "expert_group_used_count" : "topk_group"), 1, 1, groups));
  if (routing.experts % groups != 0 || chosen * (routing.experts / groups) < routing.chosen) {
    return fail(StatusCode::kCorrupt,
                "{}: {} experts in {} groups, {} experts of {} groups for a token; equal groups that hold as "
                "many are expected",
                attributes.source(), routing.experts, groups, routing.chosen, chosen);
  }
  routing.score = RouterScore::kSigmoid;
  routing.scale = static_cast<float>(scale);
  routing.groups = static_cast<int>(groups);
  routing.chosen_groups = static_cast<int>(chosen);
  config.experts.gated = false;
  config.experts.function = Activation::kRelu;
  if (gguf) return {};
  BUTTER_ASSIGN(const int64_t latent, attributes.require_int_or("moe_latent_size", 0, 0, kMaxWidth));
  config.latent = static_cast<int>(latent);
  return {};
}

// The function of feed-forwards and experts is not a choice of released models.
Status check_function(const Attributes& config) {
  BUTTER_ASSIGN(const std::string function, config.get_string_or("mlp_hidden_act", "relu2"));
  if (function == "relu2") return {};
  return fail(StatusCode::kUnsupported, "mlp_hidden_act is {}; relu2 is expected",
              config.describe("mlp_hidden_act"));
}

Result<Config> read_config(const FamilySource& source) {
  Config config(source);
  const Attributes& attributes = source.config;
  const bool gguf = source.gguf();
  config.prefix = find_prefix(source, {"backbone.", "model."}, "layers.0.norm.weight");
  BUTTER_TRY(check_function(attributes));
  BUTTER_ASSIGN(config.blocks, read_blocks(source));
  const size_t blocks = config.blocks.size();
  BUTTER_ASSIGN(config.hidden, read_width(source, "hidden_size", "embedding_length", 0));
  BUTTER_ASSIGN(config.vocabulary, read_width(source, "vocab_size", "vocab_size", gguf ? 1 : 0));
  const TensorView* embedding =
      gguf && source.checkpoint ? source.checkpoint->find_tensor("token_embd.weight") : nullptr;
  if (embedding != nullptr && embedding->shape.rank() == 2)
    config.vocabulary = static_cast<int>(std::min<int64_t>(embedding->shape[0], 1 << 24));
  BUTTER_ASSIGN(config.heads,
                read_block_width(source, "num_attention_heads", "attention.head_count", 0, blocks));
  BUTTER_ASSIGN(config.kv_heads,
                read_block_width(source, "num_key_value_heads", "attention.head_count_kv", 8, blocks));
  BUTTER_ASSIGN(config.head_dim, read_width(source, "head_dim", "attention.key_length", 128));
  BUTTER_ASSIGN(config.ffn, read_block_width(source, "intermediate_size", "feed_forward_length", 1, blocks));
  const std::string eps_key =
      gguf ? source.model_type + ".attention.layer_norm_rms_epsilon" : "layer_norm_epsilon";
  BUTTER_ASSIGN(const double eps, attributes.require_float_or(eps_key, 1e-5, 0, 1));
  config.eps = static_cast<float>(eps);
  const std::string context = gguf ? source.model_type + ".context_length" : "max_position_embeddings";
  BUTTER_ASSIGN(config.max_positions, attributes.require_int_or(context, 4096, 1, int64_t{1} << 31));
  BUTTER_ASSIGN(config.attention_bias, attributes.get_bool_or("attention_bias", false));
  BUTTER_ASSIGN(config.mlp_bias, attributes.get_bool_or("mlp_bias", false));
  if (config.heads % config.kv_heads != 0 || config.head_dim > 1024) {
    return fail(
        StatusCode::kCorrupt,
        "{}: {} query heads, {} KV heads of {} values; a multiple, of at most 1024 values, is expected",
        attributes.source(), config.heads, config.kv_heads, config.head_dim);
  }
  const int64_t heads_values = int64_t{config.heads} * config.head_dim,
                kv_values =
                    int64_t{config.kv_heads} * config.head_dim * static_cast<int64_t>(config.blocks.size());
  if (heads_values > kMaxWidth || kv_values > kMaxKvValues) {
    return fail(
        StatusCode::kCorrupt,
        "{}: {} blocks with {} query heads and {} KV heads of {} values; at most {} values of queries "
        "and {} of keys are expected",
        attributes.source(), config.blocks.size(), config.heads, config.kv_heads, config.head_dim, kMaxWidth,
        kMaxKvValues);
  }
  const auto has = [&](Block kind) {
    return std::find(config.blocks.begin(), config.blocks.end(), kind) != config.blocks.end();
  };
  if (has(Block::kMamba)) BUTTER_TRY(read_mamba(source, config));
  if (has(Block::kExperts)) BUTTER_TRY(read_routing(source, config));
  if (has(Block::kExperts) && config.experts.routing.experts == 0) {
    return fail(StatusCode::kCorrupt,
                "{}: a block of experts, and no count of them; n_routed_experts is expected",
                attributes.source());
  }
  return config;
}

AttentionSpec attention(const TensorNames& names, const Config& config) {
  const int q_width = config.heads * config.head_dim, kv_width = config.kv_heads * config.head_dim;
  const bool bias = config.attention_bias;
  AttentionSpec spec;
  spec.heads = config.heads;
  spec.kv_heads = config.kv_heads;
  spec.head_dim = config.head_dim;
  spec.q = names.linear({"q_proj", "attn_q"}, q_width, config.hidden, bias);
  spec.k = names.linear({"k_proj", "attn_k"}, kv_width, config.hidden, bias);
  spec.v = names.linear({"v_proj", "attn_v"}, kv_width, config.hidden, bias);
  spec.o = names.linear({"o_proj", "attn_output"}, config.hidden, q_width, bias);
  spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  return spec;
}

PlainFfnSpec plain_ffn(const TensorNames& names, const TensorNames::Name& up, const TensorNames::Name& down,
                       int width, const Config& config) {
  return {names.linear(up, width, config.hidden, config.mlp_bias),
          names.linear(down, config.hidden, width, config.mlp_bias), width};
}

ExpertsSpec experts(const TensorNames& names, const Config& config) {
  ExpertNames own;
  own.each = "experts.";
  own.stacked = "switch_mlp.";
  own.stacked_up = "fc1";
  own.stacked_down = "fc2";
  // GGUF files do not state the width of a latent space; its tensors show it.
  int latent = config.latent;
  const TensorRef down = names.linear({"fc1_latent_proj", "ffn_latent_down"}, latent, config.hidden).weight;
  if (names.gguf()) latent = static_cast<int>(names.stored_shape(down.name, Shape{0})[0]);
  ExpertsSpec spec = experts_spec(names, "gate", own, config.experts);
  if (latent > 0) {
    ExpertsConfig narrow = config.experts;
    narrow.hidden = latent;
    spec.experts = expert_matrices(names, own, narrow);
    spec.latent_in = names.linear({"fc1_latent_proj", "ffn_latent_down"}, latent, config.hidden);
    spec.latent_out = names.linear({"fc2_latent_proj", "ffn_latent_up"}, config.hidden, latent);
  }
  spec.choice_bias =
      names.vector({"gate.e_score_correction_bias", "exp_probs_b.bias"}, config.experts.routing.experts);
  if (config.experts.shared_width > 0) {
    spec.shared =
        plain_ffn(names, {"shared_experts.up_proj", "ffn_up_shexp"},
                  {"shared_experts.down_proj", "ffn_down_shexp"}, config.experts.shared_width, config);
  }
  return spec;
}

LayerSpec layer_spec(const Config& config, int index) {
  const TensorNames layer(config.source, fmt::format("{}layers.{}.", config.prefix, index),
                          fmt::format("blk.{}.", index));
  const TensorNames names = layer.within("mixer.");
  const NormSpec norm = layer.norm({"norm", "attn_norm"}, config.hidden, config.eps);
  LayerSpec spec;
  switch (config.blocks[static_cast<size_t>(index)]) {
    case Block::kMamba:
      spec.pre_norm = norm;
      spec.mixers = {{mamba2_mixer(names, config.mamba)}};
      break;
    case Block::kAttention:
      spec.pre_norm = norm;
      spec.mixers = {{attention(names, config)}};
      break;
    case Block::kMlp:
      spec.ffn_norm = norm;
      spec.ffn = plain_ffn(names, {"up_proj", "ffn_up"}, {"down_proj", "ffn_down"}, config.ffn, config);
      break;
    case Block::kExperts:
      spec.ffn_norm = norm;
      spec.ffn = experts(names, config);
      break;
  }
  return spec;
}

}  // namespace

Result<ModelSpec> nemotron_h_spec(const FamilySource& source) {
  BUTTER_ASSIGN(const Config config, read_config(source));
  const TensorNames model(source, config.prefix, "");
  ModelSpec spec;
  spec.vocabulary = config.vocabulary;
  spec.hidden = config.hidden;
  spec.max_positions = config.max_positions;
  spec.embedding = model.linear({"embeddings", "token_embd"}, config.vocabulary, config.hidden).weight;
  BUTTER_ASSIGN(const bool tied, source.config.get_bool_or("tie_word_embeddings", false));
  spec.head = head_or_tied(source, source.gguf() ? "output.weight" : "lm_head.weight",
                           Shape{config.vocabulary, config.hidden}, tied);
  spec.final_norm = model.norm({"norm_f", "output_norm"}, config.hidden, config.eps);
  for (size_t i = 0; i < config.blocks.size(); ++i)
    spec.layers.push_back(layer_spec(config, static_cast<int>(i)));
  spec.kv_dtype = raw_kv_dtype(source, spec);
  return spec;
}

}  // namespace butter
