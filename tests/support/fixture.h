// Fixture: one of the tiny recorded models of tests/data/fixtures, with what it must answer.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/check.h"
#include "core/dequantise.h"
#include "families/family.h"
#include "support/test_data.h"

namespace butter {

// A tensor as floats.
struct FloatTensor {
  Shape shape;
  std::vector<float> values;

  const float* row(int64_t r) const { return values.data() + r * shape[shape.rank() - 1]; }
};

inline FloatTensor float_tensor(const TensorView& view) {
  FloatTensor tensor{view.shape, std::vector<float>(static_cast<size_t>(view.shape.elements()))};
  for (int64_t r = 0; r < view.rows(); ++r) {
    dequantise_row(view, r, tensor.values.data() + r * view.columns());
  }
  return tensor;
}

struct Fixture {
  std::string name;
  std::string folder;
  Attributes config;
  std::map<std::string, FloatTensor> weights;  // by their Hugging Face names
  std::vector<int32_t> input_ids;              // 208
  std::vector<int32_t> greedy;                 // the first 16 of them, then 24 generated ones
  FloatTensor logits;                          // [208, vocabulary]

  int number(const std::string& key) const { return static_cast<int>(*config.require_int(key, 1, 1 << 20)); }
  int vocabulary() const { return number("vocab_size"); }
  int head_dim() const {
    return static_cast<int>(
        *config.get_int_or("head_dim", number("hidden_size") / number("num_attention_heads")));
  }
  std::string family() const { return std::string(*config.get_string("model_type")); }
};

// Every folder of tests/data/fixtures, sorted: a test of all models takes a new one by its being there.
inline std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("fixtures")))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

template <typename Has>
bool any_layer(const std::string& fixture, const Has& has) {
  const auto model = Checkpoint::open(test_data("fixtures/" + fixture));
  const auto spec = make_model_spec(*model);
  return std::any_of(spec->layers.begin(), spec->layers.end(), has);
}

// Whether a fixture's layers have experts: where two are nearly as good, roundings choose between them, and
// logits move by more than any bound.
inline bool has_experts(const std::string& fixture) {
  return any_layer(fixture, [](const LayerSpec& layer) {
    return layer.ffn && std::holds_alternative<ExpertsSpec>(*layer.ffn);
  });
}

// Whether it has states that enlarge roundings: those of delta rules and of Mamba1.
inline bool enlarges_roundings(const std::string& fixture) {
  return any_layer(fixture, [](const LayerSpec& layer) {
    return std::any_of(layer.mixers.begin(), layer.mixers.end(), [](const MixerSpec& mixer) {
      return std::holds_alternative<DeltaNetSpec>(mixer.kind) ||
             std::holds_alternative<Mamba1Spec>(mixer.kind);
    });
  });
}

inline std::vector<int32_t> int_tensor(const TensorView& view) {
  std::vector<int32_t> values(static_cast<size_t>(view.shape.elements()));
  std::memcpy(values.data(), view.data, values.size() * sizeof(int32_t));
  return values;
}

inline Fixture load_fixture(const std::string& name) {
  Fixture fixture;
  fixture.name = name;
  fixture.folder = test_data("fixtures/" + name);
  const auto model = Checkpoint::open(fixture.folder);
  const auto expected = Checkpoint::open(fixture.folder + "/expected.safetensors");
  BUTTER_CHECK(model && expected);
  fixture.config = model->config();
  if (fixture.config.kind("text_config") == AttributeKind::kObject)
    fixture.config = *fixture.config.get_object("text_config");
  for (const TensorEntry& entry : model->tensors()) {
    fixture.weights[std::string(entry.name)] = float_tensor(entry.view);
  }
  fixture.input_ids = int_tensor(*expected->find_tensor("input_ids"));
  fixture.greedy = int_tensor(*expected->find_tensor("greedy"));
  fixture.logits = float_tensor(*expected->find_tensor("logits"));
  return fixture;
}

}  // namespace butter
