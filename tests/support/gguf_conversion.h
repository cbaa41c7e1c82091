// What converters to GGUF make of the weights of families with experts or recurrent layers: stacked experts,
// a for log(−a), reordered heads, factors folded in. By the rules of docs/families.md, on Hugging Face names.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/fixture.h"

namespace butter::gguf_conversion {

using Tensors = std::map<std::string, FloatTensor>;

inline bool contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// Rows of a matrix, or values of a vector, in another order: new row i is old row `from[i]`.
inline FloatTensor take_rows(const FloatTensor& tensor, const std::vector<int64_t>& from) {
  const int64_t columns = static_cast<int64_t>(tensor.values.size()) / tensor.shape[0];
  FloatTensor taken;
  taken.shape = tensor.shape.rank() == 1 ? Shape{static_cast<int64_t>(from.size())}
                                         : Shape{static_cast<int64_t>(from.size()), columns};
  for (const int64_t row : from)
    taken.values.insert(taken.values.end(), tensor.values.begin() + row * columns,
                        tensor.values.begin() + (row + 1) * columns);
  return taken;
}

inline std::vector<int64_t> row_range(int64_t begin, int64_t end) {
  std::vector<int64_t> rows;
  for (int64_t row = begin; row < end; ++row) rows.push_back(row);
  return rows;
}

inline void scale(FloatTensor& tensor, double factor) {
  for (float& value : tensor.values) value = static_cast<float>(value * factor);
}

// "…experts.3.up_proj.weight" of all experts as one "…experts.up_proj.weight" [experts, out, in].
inline void stack_experts(Tensors& tensors) {
  Tensors stacked;
  for (auto at = tensors.begin(); at != tensors.end();) {
    const size_t begin = at->first.find(".experts.");
    const size_t number = begin + 9;
    if (begin == std::string::npos || !std::isdigit(static_cast<unsigned char>(at->first[number]))) {
      ++at;
      continue;
    }
    // Fixtures have fewer than ten experts: names in order are experts in order.
    FloatTensor& all = stacked[at->first.substr(0, number) + at->first.substr(number + 2)];
    const Shape one = at->second.shape;
    all.shape = Shape{all.shape.rank() == 0 ? 1 : all.shape[0] + 1, one[0], one[1]};
    all.values.insert(all.values.end(), at->second.values.begin(), at->second.values.end());
    at = tensors.erase(at);
  }
  tensors.merge(stacked);
}

// gpt-oss: [experts, in, 2 · out], gate and up by turns, to gate and up [experts, out, in]; biases likewise.
inline void order_gpt_oss_experts(Tensors& tensors) {
  Tensors ordered;
  const auto transposed = [](const FloatTensor& tensor, int64_t first, int64_t step) {
    const int64_t experts = tensor.shape[0], in = tensor.shape[1], out = tensor.shape[2] / step;
    FloatTensor turned{Shape{experts, out, in}, {}};
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i)
          turned.values.push_back(
              tensor.values[static_cast<size_t>((e * in + i) * step * out + o * step + first)]);
      }
    }
    return turned;
  };
  for (auto at = tensors.begin(); at != tensors.end();) {
    const std::string name = at->first;
    const size_t begin = name.find("mlp.experts.");
    if (begin == std::string::npos) {
      ++at;
      continue;
    }
    const std::string prefix = name.substr(0, begin) + "mlp.experts.";
    const FloatTensor tensor = at->second;
    at = tensors.erase(at);
    const bool bias = contains(name, "_bias");
    FloatTensor as_matrix = tensor;
    if (bias) as_matrix.shape = Shape{tensor.shape[0], 1, tensor.shape[1]};
    const std::string suffix = bias ? ".bias" : ".weight";
    if (contains(name, "gate_up_proj")) {
      ordered[prefix + "gate_proj" + suffix] = transposed(as_matrix, 0, 2);
      ordered[prefix + "up_proj" + suffix] = transposed(as_matrix, 1, 2);
    } else {
      ordered[prefix + "down_proj" + suffix] = transposed(as_matrix, 0, 1);
    }
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      const auto made = ordered.find(prefix + part + ".bias");
      if (made != ordered.end()) made->second.shape = Shape{made->second.shape[0], made->second.shape[1]};
    }
  }
  tensors.merge(ordered);
}

// The tensor's rows [0, half) and [half, end) of every matrix, under two names.
inline void split_rows(Tensors& tensors, const std::string& part, const char* first, const char* second) {
  Tensors halves;
  for (auto at = tensors.begin(); at != tensors.end();) {
    const size_t begin = at->first.find(part);
    if (begin == std::string::npos) {
      ++at;
      continue;
    }
    const FloatTensor& both = at->second;
    const int64_t matrices = both.shape.rank() == 3 ? both.shape[0] : 1;
    const int64_t half = both.shape[both.shape.rank() - 2] / 2, columns = both.shape[both.shape.rank() - 1];
    for (int which = 0; which < 2; ++which) {
      std::string name = at->first;
      name.replace(begin, part.size(), which == 0 ? first : second);
      FloatTensor& to = halves[name];
      to.shape = both.shape.rank() == 3 ? Shape{matrices, half, columns} : Shape{half, columns};
      for (int64_t m = 0; m < matrices; ++m) {
        const auto from = both.values.begin() + (2 * m + which) * half * columns;
        to.values.insert(to.values.end(), from, from + half * columns);
      }
    }
    at = tensors.erase(at);
  }
  tensors.merge(halves);
}

// Falcon-H1: every factor goes into the weights that it acts on.
inline void fold_falcon(const Fixture& fixture, Tensors& tensors) {
  const auto factor = [&](const char* key) { return *fixture.config.get_float_or(key, 1); };
  const std::vector<double> parts = *fixture.config.get_floats("ssm_multipliers");
  const std::vector<double> mlp = *fixture.config.get_floats("mlp_multipliers");
  const int64_t inner = fixture.number("mamba_d_ssm");
  const int64_t group = int64_t{fixture.number("mamba_n_groups")} * fixture.number("mamba_d_state");
  for (auto& [name, tensor] : tensors) {
    if (contains(name, "q_proj") || contains(name, "v_proj"))
      scale(tensor, factor("attention_in_multiplier"));
    if (contains(name, "k_proj")) scale(tensor, factor("attention_in_multiplier") * factor("key_multiplier"));
    if (contains(name, "o_proj") && contains(name, "self_attn"))
      scale(tensor, factor("attention_out_multiplier"));
    if (contains(name, "mamba.out_proj")) scale(tensor, factor("ssm_out_multiplier"));
    if (contains(name, "feed_forward.gate_proj")) scale(tensor, mlp[0]);
    if (contains(name, "feed_forward.down_proj")) scale(tensor, mlp[1]);
    if (contains(name, "embed_tokens")) scale(tensor, factor("embedding_multiplier"));
    if (contains(name, "lm_head")) scale(tensor, factor("lm_head_multiplier"));
    if (!contains(name, "mamba.in_proj")) continue;
    scale(tensor, factor("ssm_in_multiplier"));
    const int64_t ends[] = {inner, 2 * inner, 2 * inner + group, 2 * inner + 2 * group, tensor.shape[0]};
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const auto part = std::upper_bound(std::begin(ends), std::end(ends), row) - std::begin(ends);
      for (int64_t i = 0; i < tensor.shape[1]; ++i)
        tensor.values[static_cast<size_t>(row * tensor.shape[1] + i)] *=
            static_cast<float>(parts[static_cast<size_t>(part)]);
    }
  }
}

// Qwen3.5: value heads from grouped to tiled order, old head g·r + j at j·hk + g, wherever they stand.
inline void tile_value_heads(const Fixture& fixture, Tensors& tensors) {
  const int64_t key_heads = fixture.number("linear_num_key_heads"),
                heads = fixture.number("linear_num_value_heads"),
                key_dim = fixture.number("linear_key_head_dim"),
                dim = fixture.number("linear_value_head_dim"), share = heads / key_heads;
  // `width` rows a head, behind `first` other rows.
  const auto order = [&](int64_t first, int64_t width) {
    std::vector<int64_t> rows = row_range(0, first);
    for (int64_t j = 0; j < share; ++j) {
      for (int64_t g = 0; g < key_heads; ++g) {
        const int64_t old = g * share + j;
        for (int64_t i = 0; i < width; ++i) rows.push_back(first + old * width + i);
      }
    }
    return rows;
  };
  const int64_t keys = 2 * key_heads * key_dim;
  for (auto& [name, tensor] : tensors) {
    if (!contains(name, "linear_attn")) continue;
    if (contains(name, "in_proj_qkv.") || contains(name, "conv1d"))
      tensor = take_rows(tensor, order(keys, dim));
    if (contains(name, "in_proj_z")) tensor = take_rows(tensor, order(0, dim));
    if (contains(name, "in_proj_a") || contains(name, "in_proj_b") || contains(name, "A_log") ||
        contains(name, "dt_bias"))
      tensor = take_rows(tensor, order(0, 1));
    if (!contains(name, "out_proj")) continue;
    const std::vector<int64_t> columns = order(0, dim);
    FloatTensor turned{tensor.shape, {}};
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      for (const int64_t column : columns) turned.values.push_back(tensor.row(row)[column]);
    }
    tensor = turned;
  }
}

// Qwen3-Next: q, k, v and z of each key head, side by side, to q, k, v of all heads, and z of all.
inline void separate_qkvz(const Fixture& fixture, Tensors& tensors) {
  const int64_t key_heads = fixture.number("linear_num_key_heads"),
                key_dim = fixture.number("linear_key_head_dim"),
                values = fixture.number("linear_num_value_heads") / key_heads *
                         fixture.number("linear_value_head_dim"),
                group = 2 * key_dim + 2 * values;
  const std::string part = "in_proj_qkvz";
  Tensors separate;
  for (auto at = tensors.begin(); at != tensors.end();) {
    const size_t begin = at->first.find(part);
    if (begin == std::string::npos) {
      ++at;
      continue;
    }
    std::vector<int64_t> qkv, z;
    const auto add = [&](std::vector<int64_t>& to, int64_t first, int64_t count) {
      for (int64_t head = 0; head < key_heads; ++head) {
        const std::vector<int64_t> rows = row_range(head * group + first, head * group + first + count);
        to.insert(to.end(), rows.begin(), rows.end());
      }
    };
    add(qkv, 0, key_dim);
    add(qkv, key_dim, key_dim);
    add(qkv, 2 * key_dim, values);
    add(z, 2 * key_dim + values, values);
    std::string name = at->first;
    separate[name.replace(begin, part.size(), "in_proj_qkv")] = take_rows(at->second, qkv);
    name = at->first;
    separate[name.replace(begin, part.size(), "in_proj_z")] = take_rows(at->second, z);
    at = tensors.erase(at);
  }
  tensors.merge(separate);
}

// a for log(−a); the shapes that converters give what has one value a head, and convolutions.
inline void reshape_recurrent(const Fixture& fixture, const std::string& architecture, Tensors& tensors) {
  const bool mamba2 = architecture != "jamba" && architecture.rfind("qwen3", 0) != 0;
  const int64_t groups = *fixture.config.get_int_or("n_groups", 1);
  for (auto& [name, tensor] : tensors) {
    if (contains(name, "A_log")) {
      for (float& value : tensor.values) value = -std::exp(value);
    }
    const bool a_head = contains(name, "A_log") || (name.size() > 2 && name.substr(name.size() - 2) == ".D");
    if (mamba2 && a_head) tensor.shape = Shape{tensor.shape[0], 1};
    if (contains(name, "conv1d.weight"))
      tensor.shape = Shape{tensor.shape[0], static_cast<int64_t>(tensor.values.size()) / tensor.shape[0]};
    if (mamba2 && (contains(name, "mixer.norm") || contains(name, "mamba.norm")))
      tensor.shape = Shape{groups, tensor.shape[0] / groups};
  }
}

inline bool is_converted(const std::string& architecture) {
  for (const char* known : {"granitehybrid", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "gpt-oss",
                            "mamba2", "nemotron_h", "nemotron_h_moe", "jamba", "falcon-h1"}) {
    if (architecture == known) return true;
  }
  return false;
}

// "model.layers.3.mamba.A_log" -> "blk.3.ssm_a"
inline std::string gguf_name(const std::string& hf, const std::string& architecture) {
  static const std::pair<const char*, const char*> parts[] = {
      {"backbone.layers", "blk"},
      {"model.layers", "blk"},
      {"backbone.embeddings", "token_embd"},
      {"model.embed_tokens", "token_embd"},
      {"model.final_layernorm", "output_norm"},
      {"backbone.norm_f", "output_norm"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"input_layernorm", "attn_norm"},
      {"pre_ff_layernorm", "ffn_norm"},
      {"self_attn.sinks", "attn_sinks.weight"},
      {"q_norm", "attn_q_norm"},
      {"k_norm", "attn_k_norm"},
      {"q_proj", "attn_q"},
      {"k_proj", "attn_k"},
      {"v_proj", "attn_v"},
      {"o_proj", "attn_output"},
      {".experts.gate_proj", ".ffn_gate_exps"},
      {".experts.up_proj", ".ffn_up_exps"},
      {".experts.down_proj", ".ffn_down_exps"},
      {"shared_expert_gate", "ffn_gate_inp_shexp"},
      {"gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"router.layer", "ffn_gate_inp"},
      {"router", "ffn_gate_inp"},
      {"mlp.gate.", "ffn_gate_inp."},
      {"mixer.gate.", "ffn_gate_inp."},
      {"in_proj_qkv", "attn_qkv"},
      {"in_proj_z", "attn_gate"},
      {"in_proj_ba", "ssm_ba"},
      {"in_proj_a", "ssm_alpha"},
      {"in_proj_b", "ssm_beta"},
      {"in_proj", "ssm_in"},
      {"x_proj", "ssm_x"},
      {"dt_proj", "ssm_dt"},
      {"dt_bias", "ssm_dt.bias"},
      {"dt_layernorm", "ssm_dt_norm"},
      {"b_layernorm", "ssm_b_norm"},
      {"c_layernorm", "ssm_c_norm"},
      {"conv1d", "ssm_conv1d"},
      {"A_log", "ssm_a"},
      {"out_proj", "ssm_out"},
      {"mixer.norm", "ssm_norm"},
      {"mamba.norm", "ssm_norm"},
      {"linear_attn.norm", "ssm_norm"},
      {"layers.", "layers."},
      {"gate_proj", "ffn_gate"},
      {"up_proj", "ffn_up"},
      {"down_proj", "ffn_down"}};
  std::string name = hf;
  const bool post = architecture.rfind("qwen3n", 0) == 0 || architecture.rfind("qwen35", 0) == 0 ||
                    architecture == "gpt-oss";
  if (const size_t at = name.find("post_attention_layernorm"); at != std::string::npos)
    name.replace(at, 24, post ? "post_attention_norm" : "ffn_norm");
  const bool shared = contains(name, "shared_");
  for (const auto& [from, to] : parts) {
    if (const size_t at = name.find(from); at != std::string::npos) {
      name.replace(at, std::char_traits<char>::length(from), to);
      if (std::string(from).find("layers") == std::string::npos) break;
    }
  }
  if (name.size() > 2 && name.substr(name.size() - 2) == ".D") name.replace(name.size() - 1, 1, "ssm_d");
  // What is left between the block and the tensor is the Hugging Face module.
  if (name.rfind("blk.", 0) == 0) {
    const size_t number_end = name.find('.', 4);
    std::string rest = name.substr(number_end + 1);
    for (const char* module :
         {"self_attn.", "linear_attn.", "mlp.shared_expert.", "mlp.", "feed_forward.", "block_sparse_moe.",
          "shared_mlp.", "mixer.shared_experts.", "mixer.", "mamba."}) {
      if (rest.rfind(module, 0) == 0) rest = rest.substr(std::char_traits<char>::length(module));
    }
    if (rest == "norm.weight") rest = "attn_norm.weight";
    if (shared && rest.rfind("ffn_", 0) == 0 && rest.rfind("ffn_gate_inp", 0) != 0)
      rest.insert(rest.find('.'), "_shexp");
    name = name.substr(0, number_end + 1) + rest;
  }
  return name;
}

// The fixture's tensors as such a file has them, under GGUF names.
inline Tensors convert(const Fixture& fixture, const std::string& architecture) {
  Tensors tensors = fixture.weights;
  if (architecture == "gpt-oss") {
    order_gpt_oss_experts(tensors);
  } else {
    stack_experts(tensors);
  }
  if (architecture == "falcon-h1") fold_falcon(fixture, tensors);
  if (architecture == "qwen3next") separate_qkvz(fixture, tensors);
  if (architecture.rfind("qwen35", 0) == 0) tile_value_heads(fixture, tensors);
  if (architecture == "granitehybrid") {
    split_rows(tensors, "block_sparse_moe.input_linear", "experts.gate_proj", "experts.up_proj");
    split_rows(tensors, "shared_mlp.input_linear", "shared_mlp.gate_proj", "shared_mlp.up_proj");
    for (auto& [from, to] : {std::pair{"block_sparse_moe.output_linear", "experts.down_proj"},
                             std::pair{"shared_mlp.output_linear", "shared_mlp.down_proj"}}) {
      Tensors renamed;
      for (auto at = tensors.begin(); at != tensors.end();) {
        const size_t begin = at->first.find(from);
        if (begin == std::string::npos) {
          ++at;
          continue;
        }
        std::string name = at->first;
        renamed[name.replace(begin, std::char_traits<char>::length(from), to)] = at->second;
        at = tensors.erase(at);
      }
      tensors.merge(renamed);
    }
  }
  reshape_recurrent(fixture, architecture, tensors);
  const bool folds = architecture.rfind("qwen3n", 0) == 0 || architecture.rfind("qwen35", 0) == 0;
  Tensors named;
  for (auto& [name, tensor] : tensors) {
    if (folds && contains(name, "norm.weight") && !contains(name, "linear_attn.norm")) {
      for (float& value : tensor.values) value += 1;
    }
    named[gguf_name(name, architecture)] = tensor;
  }
  return named;
}

}  // namespace butter::gguf_conversion
