// Writes a fixture's weights as the folder that MLX would make of them: linear weights and the embedding as
// words, scales and biases, under MLX's names; and, for comparison, as a Hugging Face folder whose weights
// are the values that those stand for.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/mlx_config.h"
#include "core/quant_levels.h"
#include "support/fixture.h"
#include "support/safetensors_writer.h"

namespace butter {

using NamedTensors = std::map<std::string, FloatTensor>;

// --- Names -----------------------------------------------------------------------------------------------

// A part of a Hugging Face name and what MLX has in its place: the rows of one tensor in as many tensors, one
// above the other; with a '#', which stands for a number, the tensors of all numbers as one with a leading
// dimension.
struct MlxName {
  const char* hf;
  std::vector<const char*> mlx;
  const char* unless = nullptr;  // a part of a name that no tensor of the model has
};

inline const std::vector<MlxName>& mlx_names() {
  static const std::vector<MlxName> table = {
      {"shared_mlp.input_linear", {"mlp.gate_proj", "mlp.up_proj"}, "block_sparse_moe"},
      {"shared_mlp.output_linear", {"mlp.down_proj"}, "block_sparse_moe"},
      {"block_sparse_moe.input_linear",
       {"block_sparse_moe.switch_mlp.gate_proj", "block_sparse_moe.switch_mlp.up_proj"}},
      {"block_sparse_moe.output_linear", {"block_sparse_moe.switch_mlp.down_proj"}},
      {"mlp.experts.#.gate_proj", {"mlp.switch_mlp.gate_proj"}},
      {"mlp.experts.#.up_proj", {"mlp.switch_mlp.up_proj"}},
      {"mlp.experts.#.down_proj", {"mlp.switch_mlp.down_proj"}},
      {"feed_forward.experts.#.gate_proj", {"feed_forward.switch_mlp.gate_proj"}},
      {"feed_forward.experts.#.up_proj", {"feed_forward.switch_mlp.up_proj"}},
      {"feed_forward.experts.#.down_proj", {"feed_forward.switch_mlp.down_proj"}},
      {"mixer.experts.#.up_proj", {"mixer.switch_mlp.fc1"}},
      {"mixer.experts.#.down_proj", {"mixer.switch_mlp.fc2"}},
  };
  return table;
}

// Where `pattern` stands in a name, between dots or its ends: the place and the length, and the number that
// its '#' stands for.
struct NamePlace {
  size_t at;
  size_t length;
  int number = -1;
};
inline std::optional<NamePlace> find_pattern(const std::string& name, const std::string& pattern) {
  const size_t hash = pattern.find('#');
  const std::string head = pattern.substr(0, hash),
                    tail = hash == std::string::npos ? "" : pattern.substr(hash + 1);
  const size_t at = name.find(head);
  if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) return std::nullopt;
  size_t end = at + head.size();
  NamePlace place{at, 0};
  if (hash != std::string::npos) {
    size_t digits = 0;
    while (end + digits < name.size() && std::isdigit(static_cast<unsigned char>(name[end + digits])))
      ++digits;
    if (digits == 0 || name.compare(end + digits, tail.size(), tail) != 0) return std::nullopt;
    place.number = std::stoi(name.substr(end, digits));
    end += digits + tail.size();
  }
  if (end < name.size() && name[end] != '.') return std::nullopt;
  place.length = end - at;
  return place;
}

// Rows of a tensor in equal parts; those of each of its matrices, where it has several.
inline std::vector<FloatTensor> split_rows(const FloatTensor& tensor, size_t parts) {
  const int rank = tensor.shape.rank(), row_dim = rank < 2 ? 0 : rank - 2;
  Shape shape;
  int64_t matrices = 1;
  for (int d = 0; d < rank; ++d) {
    shape.append(d == row_dim ? tensor.shape[d] / static_cast<int64_t>(parts) : tensor.shape[d]);
    if (d < row_dim) matrices *= tensor.shape[d];
  }
  std::vector<FloatTensor> split(parts, {shape, {}});
  const int64_t size = shape.elements() / matrices;
  auto from = tensor.values.begin();
  for (int64_t i = 0; i < matrices; ++i) {
    for (FloatTensor& part : split) {
      part.values.insert(part.values.end(), from, from + size);
      from += size;
    }
  }
  return split;
}

// The tensors of "experts.0", "experts.1", ... above one another.
inline FloatTensor stack(const std::map<int, FloatTensor>& experts) {
  FloatTensor stacked;
  stacked.shape = {static_cast<int64_t>(experts.size())};
  const Shape& shape = experts.begin()->second.shape;
  for (int d = 0; d < shape.rank(); ++d) stacked.shape.append(shape[d]);
  for (const auto& [number, tensor] : experts)
    stacked.values.insert(stacked.values.end(), tensor.values.begin(), tensor.values.end());
  return stacked;
}

// A depthwise convolution's (C, 1, K) as (C, K, 1).
inline FloatTensor channels_last(const FloatTensor& conv) {
  BUTTER_CHECK(conv.shape.rank() == 3 && conv.shape[1] == 1);
  return {Shape{conv.shape[0], conv.shape[2], 1}, conv.values};
}

// Columns of each matrix as rows, those from `first` on in steps of `step`.
inline FloatTensor turned(const FloatTensor& stacked, int64_t first, int64_t step) {
  const int64_t matrices = stacked.shape[0], rows = stacked.shape[1], columns = stacked.shape[2];
  FloatTensor turned{{matrices, columns / step, rows}, {}};
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    for (int64_t column = first; column < columns; column += step) {
      for (int64_t row = 0; row < rows; ++row)
        turned.values.push_back(
            stacked.values[static_cast<size_t>((matrix * rows + row) * columns + column)]);
    }
  }
  return turned;
}

// gpt-oss keeps its experts' matrices with rows as columns, and gate and up by turns; MLX has three tensors.
inline void untangle_experts(NamedTensors& tensors) {
  const auto take = [&](const std::string& name, int64_t first, int64_t step) {
    FloatTensor from = tensors.at(name);
    if (from.shape.rank() == 3) return turned(from, first, step);
    from.shape = {from.shape[0], 1, from.shape[1]};
    FloatTensor bias = turned(from, first, step);
    bias.shape = {bias.shape[0], bias.shape[1]};
    return bias;
  };
  std::vector<std::string> tangled;
  for (const auto& [name, tensor] : tensors) {
    if (find_pattern(name, "mlp.experts.gate_up_proj"))
      tangled.push_back(name.substr(0, name.rfind("gate_up")));
  }
  for (const std::string& prefix : tangled) {
    for (const auto& [from, to] : {std::pair{"", ".weight"}, std::pair{"_bias", ".bias"}}) {
      tensors[prefix + "gate_proj" + to] = take(prefix + "gate_up_proj" + from, 0, 2);
      tensors[prefix + "up_proj" + to] = take(prefix + "gate_up_proj" + from, 1, 2);
      tensors[prefix + "down_proj" + to] = take(prefix + "down_proj" + from, 0, 1);
      tensors.erase(prefix + "gate_up_proj" + from);
      tensors.erase(prefix + "down_proj" + from);
    }
  }
}

// Where layers are a gated delta rule, norms hold 1 + w, those of the rule itself aside.
inline void fold_norms(NamedTensors& tensors) {
  const auto is_delta = [](const auto& tensor) {
    return find_pattern(tensor.first, "linear_attn").has_value();
  };
  if (std::none_of(tensors.begin(), tensors.end(), is_delta)) return;
  for (auto& [name, tensor] : tensors) {
    if (!name.ends_with("norm.weight") || find_pattern(name, "linear_attn")) continue;
    for (float& value : tensor.values) value += 1;
  }
}

inline void scale_rows(FloatTensor& tensor, int64_t first, int64_t count, double factor) {
  const int64_t columns = tensor.shape[1];
  for (int64_t i = first * columns; i < (first + count) * columns; ++i) {
    float& value = tensor.values[static_cast<size_t>(i)];
    value = static_cast<float>(value * factor);
  }
}

// Falcon-H1's factors stand in the weights, but for those of keys and of what values read.
inline void fold_multipliers(const Attributes& config, NamedTensors& tensors) {
  if (!config.has("ssm_multipliers")) return;
  const auto number = [&](const char* key) { return *config.get_float(key); };
  const auto parts = *config.get_floats("ssm_multipliers"), mlp = *config.get_floats("mlp_multipliers");
  const int64_t inner = *config.get_int("mamba_d_ssm"), heads = *config.get_int("mamba_n_heads");
  const int64_t state = *config.get_int("mamba_n_groups") * *config.get_int("mamba_d_state");
  const int64_t rows_of_parts[] = {inner, inner, state, state, heads};
  const std::pair<const char*, double> factors[] = {{"embed_tokens", number("embedding_multiplier")},
                                                    {"lm_head", number("lm_head_multiplier")},
                                                    {"q_proj", number("attention_in_multiplier")},
                                                    {"k_proj", number("attention_in_multiplier")},
                                                    {"o_proj", number("attention_out_multiplier")},
                                                    {"out_proj", number("ssm_out_multiplier")},
                                                    {"gate_proj", mlp[0]},
                                                    {"down_proj", mlp[1]}};
  for (auto& [name, tensor] : tensors) {
    for (const auto& [part, factor] : factors) {
      if (find_pattern(name, part)) scale_rows(tensor, 0, tensor.shape[0], factor);
    }
    if (!find_pattern(name, "in_proj")) continue;
    int64_t row = 0;
    for (size_t i = 0; i < parts.size(); row += rows_of_parts[i++])
      scale_rows(tensor, row, rows_of_parts[i], parts[i] * number("ssm_in_multiplier"));
  }
}

// All tensors under MLX's names and in its shapes.
inline NamedTensors mlx_tensors(const NamedTensors& hf) {
  NamedTensors mlx;
  std::map<std::string, std::map<int, FloatTensor>> experts;
  const auto find_row = [&](const std::string& name) -> std::optional<std::pair<const MlxName*, NamePlace>> {
    for (const MlxName& row : mlx_names()) {
      const bool is_left_out =
          row.unless != nullptr && std::any_of(hf.begin(), hf.end(), [&](const auto& tensor) {
            return tensor.first.find(row.unless) != std::string::npos;
          });
      const auto place = find_pattern(name, row.hf);
      if (place && !is_left_out) return std::pair{&row, *place};
    }
    return std::nullopt;
  };
  for (const auto& [name, tensor] : hf) {
    const auto found = find_row(name);
    if (!found) {
      mlx[name] = find_pattern(name, "conv1d") && tensor.shape.rank() == 3 ? channels_last(tensor) : tensor;
      continue;
    }
    const auto& [row, place] = *found;
    const std::vector<FloatTensor> parts = split_rows(tensor, row->mlx.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      std::string renamed = name;
      renamed.replace(place.at, place.length, row->mlx[i]);
      if (place.number < 0) {
        mlx[renamed] = parts[i];
      } else {
        experts[renamed][place.number] = parts[i];
      }
    }
  }
  for (const auto& [name, tensors] : experts) mlx[name] = stack(tensors);
  untangle_experts(mlx);
  fold_norms(mlx);
  return mlx;
}

// --- Codes -----------------------------------------------------------------------------------------------

// The parts of a quantised tensor as a file has them, and the values that they stand for.
struct MlxTensor {
  std::string words, scales, biases;
  std::vector<float> values;
};

inline float rounded(DType dtype, float value) {
  if (dtype == DType::kF16) return fp16_to_float(float_to_fp16(value));
  return dtype == DType::kBF16 ? bf16_to_float(float_to_bf16(value)) : value;
}

// Codes in a little-endian bit stream.
class BitStream {
 public:
  void put(int code, int bits) {
    for (int i = 0; i < bits; ++i, ++at_) {
      if (at_ % 8 == 0) bytes_ += '\0';
      bytes_.back() = static_cast<char>(bytes_.back() | (code >> i & 1) << at_ % 8);
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

inline MlxTensor quantise_mlx(const FloatTensor& tensor, const MlxSetting& setting, DType scale_dtype) {
  MlxTensor quantised;
  BitStream codes;
  const auto group = static_cast<size_t>(setting.group);
  std::vector<float> scales, biases;
  for (size_t begin = 0; begin < tensor.values.size(); begin += group) {
    const float* values = tensor.values.data() + begin;
    const auto [least, most] = std::minmax_element(values, values + group);
    float scale = 0, bias = 0;
    if (setting.exponents) {
      const float largest = std::max(std::max(-*least, *most), 1e-20f);
      const int exponent = static_cast<int>(std::ceil(std::log2(largest / 6)));
      quantised.scales += static_cast<char>(exponent + 127);
      scale = std::ldexp(1.0f, exponent - 1);
    } else {
      scale = rounded(scale_dtype, (*most - *least) / static_cast<float>((1 << setting.bits) - 1));
      bias = rounded(scale_dtype, *least);
      scales.push_back(scale);
      biases.push_back(bias);
    }
    for (size_t i = 0; i < group; ++i) {
      const float wanted = scale == 0 ? 0 : (values[i] - bias) / scale;
      int code = std::clamp(static_cast<int>(std::lround(wanted)), 0, (1 << setting.bits) - 1);
      float level = static_cast<float>(code);
      if (setting.exponents) {
        const auto* nearest = std::min_element(
            std::begin(kFp4Levels), std::end(kFp4Levels),
            [&](int8_t a, int8_t b) { return std::fabs(a - wanted) < std::fabs(b - wanted); });
        code = static_cast<int>(nearest - kFp4Levels);
        level = *nearest;
      }
      codes.put(code, setting.bits);
      quantised.values.push_back(scale * level + bias);
    }
  }
  quantised.words = codes.bytes();
  if (!setting.exponents) {
    quantised.scales = encode_floats(scale_dtype, scales);
    quantised.biases = encode_floats(scale_dtype, biases);
  }
  return quantised;
}

// --- Folders ---------------------------------------------------------------------------------------------

struct FixtureMlxOptions {
  MlxSetting setting{4, 32, false};  // bits 0: nothing is quantised
  DType floats = DType::kF16;        // of scales, biases and what is not quantised
  // What a module has in place of `setting`, if that returns something; bits 0: not quantised.
  std::function<std::optional<MlxSetting>(const std::string& module)> own;
};

class FixtureMlx {
 public:
  FixtureMlx(const Fixture& fixture, FixtureMlxOptions options)
      : fixture_(fixture), options_(std::move(options)), tensors_(mlx_tensors(fixture.weights)) {
    fold_multipliers(fixture.config, tensors_);
  }

  // A folder of one file, as MLX writes it, with config.json.
  void write(const std::string& folder) const {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) put(name, tensor, writer);
    write_test_file(folder + "/model.safetensors", writer.bytes_unpadded());
    write_test_file(folder + "/config.json", config());
  }

  // The same in two files and an index, the parts of a tensor in both.
  void write_shards(const std::string& folder) const {
    SafetensorsWriter shards[2];
    std::string map;
    for (const auto& [name, tensor] : tensors_) {
      SafetensorsWriter all;
      put(name, tensor, all);
      for (const SafetensorsWriter::Part& part : all.parts()) {
        const size_t shard = part.name.ends_with(".weight") ? 0 : 1;
        shards[shard].tensor(part.name, part.dtype, part.dims, part.data);
        map += fmt::format("{}\"{}\": \"model-0000{}-of-00002.safetensors\"", map.empty() ? "" : ", ",
                           part.name, shard + 1);
      }
    }
    shards[0].write(folder + "/model-00001-of-00002.safetensors");
    shards[1].write(folder + "/model-00002-of-00002.safetensors");
    write_test_file(folder + "/model.safetensors.index.json", fmt::format("{{\"weight_map\": {{{}}}}}", map));
    write_test_file(folder + "/config.json", config());
  }

  // The same tensors with float32 values where the others have codes.
  void write_values(const std::string& folder) const {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) {
      const auto setting = setting_of(name, tensor);
      if (setting) {
        writer.floats(name, DType::kF32, tensor.shape,
                      quantise_mlx(tensor, *setting, options_.floats).values);
      } else {
        writer.floats(name, options_.floats, tensor.shape, tensor.values);
      }
    }
    writer.write(folder + "/model.safetensors");
    write_test_file(folder + "/config.json", read_test_file(fixture_.folder + "/config.json"));
  }

 private:
  static std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

  // Matrices are quantised whose rows are whole groups, and convolutions are none.
  std::optional<MlxSetting> setting_of(const std::string& name, const FloatTensor& tensor) const {
    const int rank = tensor.shape.rank();
    if (rank < 2 || find_pattern(name, "conv1d") || !name.ends_with(".weight")) return std::nullopt;
    MlxSetting setting = options_.setting;
    if (const auto own = options_.own ? options_.own(module_of(name)) : std::nullopt) setting = *own;
    if (setting.bits == 0 || tensor.shape[rank - 1] % setting.group != 0) return std::nullopt;
    return setting;
  }

  void put(const std::string& name, const FloatTensor& tensor, SafetensorsWriter& writer) const {
    const auto setting = setting_of(name, tensor);
    if (!setting) {
      writer.floats(name, options_.floats, tensor.shape, tensor.values);
      return;
    }
    const MlxTensor quantised = quantise_mlx(tensor, *setting, options_.floats);
    std::vector<int64_t> dims;
    for (int i = 0; i < tensor.shape.rank(); ++i) dims.push_back(tensor.shape[i]);
    const int64_t columns = dims.back();
    dims.back() = columns * setting->bits / 32;
    writer.tensor(name, "U32", dims, quantised.words);
    dims.back() = columns / setting->group;
    const char* scale_type = setting->exponents ? "U8" : dtype_name(options_.floats);
    writer.tensor(module_of(name) + ".scales", scale_type, dims, quantised.scales);
    if (!setting->exponents) writer.tensor(module_of(name) + ".biases", scale_type, dims, quantised.biases);
  }

  static std::string setting_json(const MlxSetting& setting) {
    return fmt::format("\"group_size\": {}, \"bits\": {}, \"mode\": \"{}\"", setting.group, setting.bits,
                       setting.exponents ? "mxfp4" : "affine");
  }

  // The fixture's, with what says how it is quantised.
  std::string config() const {
    std::string quantization = setting_json(options_.setting);
    for (const auto& [name, tensor] : tensors_) {
      const auto own = options_.own ? options_.own(module_of(name)) : std::nullopt;
      if (!own || !name.ends_with(".weight")) continue;
      quantization += fmt::format(", \"{}\": {}", module_of(name),
                                  own->bits == 0 ? "false" : fmt::format("{{{}}}", setting_json(*own)));
    }
    std::string text = read_test_file(fixture_.folder + "/config.json");
    if (options_.setting.bits == 0) return text;
    return text.insert(text.find('{') + 1, fmt::format("\"quantization\": {{{}}},", quantization));
  }

  const Fixture& fixture_;
  const FixtureMlxOptions options_;
  NamedTensors tensors_;
};

}  // namespace butter
