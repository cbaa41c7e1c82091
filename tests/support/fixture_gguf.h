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
                                                              {"model.norm", "output_norm"},
                                                              {"lm_head", "output"},
                                                              {"model.layers", "blk"},
                                                              {"input_layernorm", "attn_norm"},
                                                              {"post_attention_layernorm", "ffn_norm"},
                                                              {"self_attn.q_proj", "attn_q"},
                                                              {"self_attn.k_proj", "attn_k"},
                                                              {"self_attn.v_proj", "attn_v"},
                                                              {"self_attn.o_proj", "attn_output"},
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

inline std::string architecture_of(const std::string& family) {
  if (family == "mistral") return "llama";
  if (family == "granitemoehybrid") return "granite";
  if (family == "muse_glimmer_text") return "muse-glimmer";
  return family == "gemma3_text" ? "gemma3" : family;
}

// What the families' own configurations say beside the common keys.
inline void write_family_keys(const Fixture& fixture, const std::string& architecture, GgufWriter& writer) {
  const auto copy = [&](const char* from, const char* to) {
    writer.value<float>(architecture + to, static_cast<float>(*fixture.config.get_float(from)));
  };
  if (architecture == "granite") {
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
  if (architecture == "gemma3" || architecture == "muse-glimmer") {
    writer.value<uint32_t>(architecture + ".attention.sliding_window",
                           static_cast<uint32_t>(fixture.number("sliding_window")));
  }
  if (architecture == "gemma3") {
    writer.value<uint32_t>(architecture + ".attention.sliding_window_pattern", 4);
  }
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

}  // namespace fixture_gguf

inline void write_fixture_gguf(const Fixture& fixture, const std::string& path,
                               const FixtureGgufOptions& options = {}) {
  const std::string architecture = fixture_gguf::architecture_of(fixture.family());
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto count = [&](const char* name) { return static_cast<uint32_t>(fixture.number(name)); };
  GgufWriter writer;
  writer.string("general.architecture", architecture);
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
  writer.value<uint32_t>(key("rope.dimension_count"), static_cast<uint32_t>(fixture.head_dim()));
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
