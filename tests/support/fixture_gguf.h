// Writes a fixture's weights as the GGUF file that a converter would make of them: GGUF names and keys, q and
// k rows of the Llama architecture permuted so that rope pairs are adjacent, Llama 3 scaling as a tensor of
// divisors.
#pragma once

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <utility>

#include "support/fixture.h"
#include "support/gguf_conversion.h"
#include "support/gguf_writer.h"

namespace butter {

struct FixtureGgufOptions {
  DType linear = DType::kF32;  // type of matrices; vectors are F32
  // Called with every tensor's GGUF name and values (permuted already), to spoil some.
  std::function<void(const std::string& name, std::vector<float>& values)> edit;
  // Called last, to add or contradict.
  std::function<void(GgufWriter& writer)> finish;
};

namespace fixture_gguf {

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"
inline std::string gguf_name(const std::string& hf, const std::string& architecture) {
  static const std::pair<const char*, const char*> parts[] = {{"model.embed_tokens", "token_embd"},
                                                              {"model.embedding", "token_embd"},
                                                              {"model.norm", "output_norm"},
                                                              {"lm_head", "output"},
                                                              {"model.layers", "blk"},
                                                              {"input_layernorm", "attn_norm"},
                                                              {"post_attention_layernorm", "ffn_norm"},
                                                              {"self_attn.q_proj", "attn_q"},
                                                              {"self_attn.k_proj", "attn_k"},
                                                              {"self_attn.v_proj", "attn_v"},
                                                              {"self_attn.o_proj", "attn_output"},
                                                              {"self_attn.out_proj", "attn_output"},
                                                              {"self_attn.q_k_v_proj", "attn_qkv"},
                                                              {"self_attn.g_proj", "attn_gate"},
                                                              {"self_attn.q_norm", "attn_q_norm"},
                                                              {"self_attn.k_norm", "attn_k_norm"},
                                                              {"self_attn.gate_proj", "attn_gate"},
                                                              {"self_attn.qkv_proj", "attn_qkv"},
                                                              {"pre_feedforward_layernorm", "ffn_norm"},
                                                              {"post_feedforward_layernorm", "post_ffw_norm"},
                                                              {"mlp.gate_up_proj", "ffn_up"},
                                                              {"shared_mlp.output_linear", "ffn_down"},
                                                              {"mlp.gate_proj", "ffn_gate"},
                                                              {"mlp.up_proj", "ffn_up"},
                                                              {"mlp.down_proj", "ffn_down"}};
  std::string name = hf;
  if (const size_t at = name.find("language_model."); at != std::string::npos)
    name.erase(at, std::strlen("language_model."));
  if (architecture == "gemma3" ||
      architecture == "muse-glimmer") {  // whose norm of that name stands behind attention
    const std::string post_norm = "post_attention_layernorm";
    if (const size_t at = name.find(post_norm); at != std::string::npos)
      name.replace(at, post_norm.size(), "post_attention_norm");
  }
  for (const auto& [from, to] : parts) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
  }
  return name;
}

// New row 2i + s of a head is its old row s·D/2 + i.
inline std::vector<float> permute_rows(const FloatTensor& tensor, int head_dim) {
  const int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
  std::vector<float> permuted(tensor.values.size());
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    const int64_t head = row / head_dim, within = row % head_dim;
    const int64_t from = head * head_dim + within % 2 * (head_dim / 2) + within / 2;
    std::copy_n(tensor.values.begin() + from * columns, columns, permuted.begin() + row * columns);
  }
  return permuted;
}

// What each frequency is divided by, from config.json's Llama 3 scaling.
inline std::vector<float> llama3_divisors(const Attributes& scaling, int head_dim) {
  const double theta = *scaling.get_float("rope_theta"), factor = *scaling.get_float("factor");
  const double low = *scaling.get_float("low_freq_factor"), high = *scaling.get_float("high_freq_factor");
  const double original = *scaling.get_float("original_max_position_embeddings");
  std::vector<float> divisors;
  for (int i = 0; i < head_dim / 2; ++i) {
    const double frequency = std::pow(theta, -2.0 * i / head_dim);
    const double turns = original * frequency / (2 * std::numbers::pi);  // in the original context
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
  }
  return divisors;
}

inline std::string architecture_of(const Fixture& fixture) {
  const std::string family = fixture.family();
  if (family == "mistral") return "llama";
  if (family == "granitemoehybrid") return fixture.name == "granite4_hybrid" ? "granitehybrid" : "granite";
  static const std::pair<const char*, const char*> renamed[] = {
      {"qwen3_moe", "qwen3moe"}, {"qwen3_next", "qwen3next"},       {"qwen3_5_text", "qwen35"},
      {"gpt_oss", "gpt-oss"},    {"qwen3_5_moe_text", "qwen35moe"}, {"falcon_h1", "falcon-h1"}};
  for (const auto& [hf, gguf] : renamed) {
    if (family == hf) return gguf;
  }
  if (fixture.name == "nemotron_h_moe") return fixture.name;
  if (family == "muse_glimmer_text") return "muse-glimmer";
  return family == "gemma3_text" ? "gemma3" : family;
}

// What the families' own configurations say beside the common keys.
// Windows and rotations of each kind of layer.
inline void write_spark_keys(const Fixture& fixture, GgufWriter& writer) {
  const Attributes sliding = *fixture.config.get_object("rope_parameters")->get_object("sliding_attention");
  const auto types = *fixture.config.get_strings("layer_types");
  std::vector<bool> slides;
  for (const std::string_view type : types) slides.push_back(type == "sliding_attention");
  writer.value<uint32_t>("spark2_5.attention.sliding_window",
                         static_cast<uint32_t>(fixture.number("sliding_window")));
  writer.numbers("spark2_5.attention.sliding_window_pattern", slides);
  writer.value<float>("spark2_5.rope.freq_base_swa", static_cast<float>(*sliding.get_float("rope_theta")));
  writer.value<uint32_t>("spark2_5.rope.dimension_count_swa", static_cast<uint32_t>(fixture.head_dim()));
}

inline void write_family_keys(const Fixture& fixture, const std::string& architecture, GgufWriter& writer) {
  const auto copy = [&](const char* from, const char* to) {
    writer.value<float>(architecture + to, static_cast<float>(*fixture.config.get_float(from)));
  };
  if (architecture.rfind("granite", 0) == 0) {
    copy("embedding_multiplier", ".embedding_scale");
    copy("residual_multiplier", ".residual_scale");
    copy("attention_multiplier", ".attention.scale");
    copy("logits_scaling", ".logit_scale");
  }
  if (architecture == "muse-glimmer") {
    copy("output_multiplier", ".logit_scale");
    copy("final_logit_softcapping", ".final_logit_softcapping");
    const auto layers = static_cast<int>(fixture.number("num_hidden_layers"));
    const std::vector<float> query(static_cast<size_t>(fixture.head_dim()),
                                   static_cast<float>(*fixture.config.get_float("qk_scale_factor")));
    const std::vector<float> key(query.size(), 1.0f);
    for (int layer = 0; layer < layers; ++layer) {
      const std::string block = "blk." + std::to_string(layer);
      writer.floats(block + ".attn_q_norm.weight", DType::kF32, {fixture.head_dim()}, query);
      writer.floats(block + ".attn_k_norm.weight", DType::kF32, {fixture.head_dim()}, key);
    }
  }
  if (architecture == "gemma3" || architecture == "muse-glimmer" || architecture == "gpt-oss") {
    writer.value<uint32_t>(architecture + ".attention.sliding_window",
                           static_cast<uint32_t>(fixture.number("sliding_window")));
  }
  if (architecture == "gemma3") {
    writer.value<uint32_t>(architecture + ".attention.sliding_window_pattern", 4);
  }
  if (architecture == "spark2_5") write_spark_keys(fixture, writer);
}

// Keys of experts, recurrent layers and their order, by what the configuration calls them.
inline void write_hybrid_keys(const Fixture& fixture, const std::string& architecture, GgufWriter& writer) {
  const auto copy = [&](std::initializer_list<const char*> names, const char* to) {
    for (const char* name : names) {
      if (fixture.config.kind(name) == AttributeKind::kAbsent) continue;
      writer.value<uint32_t>(architecture + to, static_cast<uint32_t>(*fixture.config.get_int(name)));
      return;
    }
  };
  if (fixture.name != "nemotron_h")
    copy({"num_experts", "num_local_experts", "n_routed_experts"}, ".expert_count");
  copy({"num_experts_per_tok"}, ".expert_used_count");
  copy({"moe_intermediate_size", "intermediate_size"}, ".expert_feed_forward_length");
  copy({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"},
       ".expert_shared_feed_forward_length");
  copy({"linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"}, ".ssm.conv_kernel");
  copy({"linear_key_head_dim", "mamba_d_state", "state_size", "ssm_state_size"}, ".ssm.state_size");
  copy({"linear_num_key_heads", "mamba_n_groups", "n_groups"}, ".ssm.group_count");
  copy({"linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "num_heads", "mamba_dt_rank"},
       ".ssm.time_step_rank");
  // Inner width: heads times their width, or twice the hidden size.
  const auto number = [&](const char* name) { return *fixture.config.get_int_or(name, 0); };
  int64_t inner = 2 * number("hidden_size");
  if (number("linear_num_value_heads") > 0)
    inner = number("linear_num_value_heads") * number("linear_value_head_dim");
  writer.value<uint32_t>(architecture + ".ssm.inner_size", static_cast<uint32_t>(inner));
  if (architecture == "granitehybrid") writer.value<bool>(architecture + ".rope.scaling.finetuned", false);
  if (architecture == "gpt-oss") {
    writer.string(architecture + ".rope.scaling.type", "yarn");
    writer.value<float>(architecture + ".rope.scaling.factor", 32);
    writer.value<uint32_t>(architecture + ".rope.scaling.original_context_length", 4096);
  }
}

// Heads of each layer: 0 where there is no attention.
inline std::vector<uint32_t> kv_heads_of_layers(const Fixture& fixture, int64_t layers) {
  std::vector<uint32_t> heads;
  for (int64_t layer = 0; layer < layers; ++layer) {
    bool attends = false;
    for (const auto& [name, tensor] : fixture.weights)
      attends |= name.find("layers." + std::to_string(layer) + ".") != std::string::npos &&
                 name.find("k_proj.weight") != std::string::npos;
    heads.push_back(attends ? static_cast<uint32_t>(fixture.number("num_key_value_heads")) : 0);
  }
  return heads;
}

// A tensor under its GGUF name, or the two that it is stored as there.
struct NamedTensor {
  std::string name;
  FloatTensor tensor;
};
inline std::vector<NamedTensor> converted(const std::string& hf_name, const FloatTensor& tensor,
                                          const std::string& architecture, int head_dim) {
  const std::string merged = "shared_mlp.input_linear";
  if (const size_t at = hf_name.find(merged); at != std::string::npos) {
    std::vector<NamedTensor> parts;
    const int64_t rows = tensor.shape[0] / 2, columns = tensor.shape[1];
    for (int part = 0; part < 2; ++part) {
      std::string name = hf_name;
      name.replace(at, merged.size(), part == 0 ? "ffn_gate" : "ffn_up");
      const auto begin = tensor.values.begin() + part * rows * columns;
      parts.push_back({gguf_name(name, architecture),
                       {Shape{rows, columns}, std::vector<float>(begin, begin + rows * columns)}});
    }
    return parts;
  }
  NamedTensor named{gguf_name(hf_name, architecture), tensor};
  const auto has = [&](const char* part) { return named.name.find(part) != std::string::npos; };
  const bool permutes = architecture == "llama" || architecture == "smollm3" || architecture == "granite" ||
                        architecture == "muse-glimmer";
  if (permutes && (has("attn_q.") || has("attn_k."))) named.tensor.values = permute_rows(tensor, head_dim);
  const bool folds =
      architecture == "gemma3" || (architecture == "muse-glimmer" && named.name != "output_norm.weight");
  if (folds && has("norm")) {
    for (float& value : named.tensor.values) value += 1;
  }
  return {named};
}

// Types of matrices where the file has another than asked for: what is no matrix of a product, routers, and
// rows that are no whole blocks.
inline DType stored_type(const std::string& name, const FloatTensor& tensor, DType linear) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool product = has("ssm_in") || has("ssm_out") || has("ssm_x") || has("ssm_ba") || has("ssm_alpha") ||
                       has("ssm_beta") || !has("ssm_");
  const int64_t columns = tensor.shape[tensor.shape.rank() - 1];
  const bool matrix = tensor.shape.rank() >= 2 && !has("ffn_gate_inp") && !has(".bias");
  return matrix && product && columns % 32 == 0 ? linear : DType::kF32;
}

// Families of tests/support/gguf_conversion.h.
inline void write_converted(const Fixture& fixture, const std::string& architecture,
                            const FixtureGgufOptions& options, GgufWriter& writer) {
  const auto has = [&](const char* name) { return fixture.config.kind(name) != AttributeKind::kAbsent; };
  const auto number = [&](const char* name, const char* to) {
    if (has(name))
      writer.value<uint32_t>(architecture + "." + to, static_cast<uint32_t>(fixture.number(name)));
  };
  int64_t layers = *fixture.config.get_int_or("num_hidden_layers", 0);
  if (layers == 0) layers = static_cast<int64_t>(fixture.config.get_strings("layers_block_type")->size());
  writer.value<uint32_t>(architecture + ".block_count", static_cast<uint32_t>(layers));
  number("hidden_size", "embedding_length");
  number("num_attention_heads", "attention.head_count");
  number("max_position_embeddings", "context_length");
  number("vocab_size", "vocab_size");
  number("intermediate_size", "feed_forward_length");
  if (has("num_attention_heads")) {
    writer.value<uint32_t>(architecture + ".attention.key_length", static_cast<uint32_t>(fixture.head_dim()));
    writer.numbers<uint32_t>(architecture + ".attention.head_count_kv", kv_heads_of_layers(fixture, layers));
  }
  for (const char* eps : {"rms_norm_eps", "layer_norm_epsilon"}) {
    if (has(eps))
      writer.value<float>(architecture + ".attention.layer_norm_rms_epsilon",
                          static_cast<float>(*fixture.config.get_float(eps)));
  }
  if (has("rope_parameters")) {
    const Attributes rope = *fixture.config.get_object("rope_parameters");
    writer.value<float>(architecture + ".rope.freq_base", static_cast<float>(*rope.get_float("rope_theta")));
    const double partial = *rope.get_float_or("partial_rotary_factor", 1);
    writer.value<uint32_t>(architecture + ".rope.dimension_count",
                           static_cast<uint32_t>(fixture.head_dim() * partial));
  }
  write_family_keys(fixture, architecture, writer);
  write_hybrid_keys(fixture, architecture, writer);
  for (auto& [name, tensor] : gguf_conversion::convert(fixture, architecture)) {
    FloatTensor stored = tensor;
    const bool permutes = architecture == "granitehybrid" && (name.find("attn_q.") != std::string::npos ||
                                                              name.find("attn_k.") != std::string::npos);
    if (permutes) stored.values = permute_rows(tensor, fixture.head_dim());
    if (options.edit) options.edit(name, stored.values);
    writer.floats(name, stored_type(name, stored, options.linear), stored.shape, stored.values);
  }
}

}  // namespace fixture_gguf

inline void write_fixture_gguf(const Fixture& fixture, const std::string& path,
                               const FixtureGgufOptions& options = {}) {
  const std::string architecture = fixture_gguf::architecture_of(fixture);
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto count = [&](const char* name) { return static_cast<uint32_t>(fixture.number(name)); };
  GgufWriter writer;
  writer.string("general.architecture", architecture);
  if (gguf_conversion::is_converted(architecture)) {
    fixture_gguf::write_converted(fixture, architecture, options, writer);
    if (options.finish) options.finish(writer);
    writer.write(path);
    return;
  }
  writer.value<uint32_t>(key("block_count"), count("num_hidden_layers"));
  writer.value<uint32_t>(key("embedding_length"), count("hidden_size"));
  writer.value<uint32_t>(key("feed_forward_length"), count("intermediate_size"));
  writer.value<uint32_t>(key("attention.head_count"), count("num_attention_heads"));
  writer.value<uint32_t>(key("attention.head_count_kv"), count("num_key_value_heads"));
  writer.value<uint32_t>(key("attention.key_length"), static_cast<uint32_t>(fixture.head_dim()));
  writer.value<uint32_t>(key("context_length"), count("max_position_embeddings"));
  writer.value<uint32_t>(key("vocab_size"), count("vocab_size"));
  writer.value<float>(key("attention.layer_norm_rms_epsilon"),
                      static_cast<float>(*fixture.config.get_float("rms_norm_eps")));
  Attributes rope = *fixture.config.get_object("rope_parameters");
  if (rope.kind("full_attention") != AttributeKind::kAbsent) rope = *rope.get_object("full_attention");
  writer.value<float>(key("rope.freq_base"), static_cast<float>(*rope.get_float("rope_theta")));
  const double partial = *rope.get_float_or("partial_rotary_factor", 1);
  writer.value<uint32_t>(key("rope.dimension_count"), static_cast<uint32_t>(partial * fixture.head_dim()));
  fixture_gguf::write_family_keys(fixture, architecture, writer);
  for (const auto& [hf_name, stored] : fixture.weights) {
    for (auto& [name, tensor] : fixture_gguf::converted(hf_name, stored, architecture, fixture.head_dim())) {
      if (options.edit) options.edit(name, tensor.values);
      writer.floats(name, tensor.shape.rank() == 2 ? options.linear : DType::kF32, tensor.shape,
                    tensor.values);
    }
  }
  if (*rope.get_string_or("rope_type", "default") == "llama3") {
    const std::vector<float> divisors = fixture_gguf::llama3_divisors(rope, fixture.head_dim());
    writer.floats("rope_freqs.weight", DType::kF32, {static_cast<int64_t>(divisors.size())}, divisors);
  }
  if (options.finish) options.finish(writer);
  writer.write(path);
}

}  // namespace butter
