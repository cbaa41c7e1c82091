#include "model/model_spec.h"

#include <algorithm>

namespace butter {
namespace {

// each(index of the layer, mixer of this kind), in the order in which the decoder meets them.
template <typename Kind, typename Each>
void for_mixers(const ModelSpec& spec, const Each& each) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    for (const MixerSpec& mixer : spec.layers[i].mixers) {
      if (const auto* kind = std::get_if<Kind>(&mixer.kind)) each(static_cast<int>(i), *kind);
    }
  }
}

int64_t state_values(const AttentionSpec&) {
  return 0;
}
int64_t state_values(const Mamba1Spec& mixer) {
  return int64_t{mixer.state_size} * mixer.width;
}
int64_t state_values(const Mamba2Spec& mixer) {
  return int64_t{mixer.heads} * mixer.state_size * mixer.head_dim;
}
int64_t state_values(const DeltaNetSpec& mixer) {
  return int64_t{mixer.value_heads} * mixer.key_dim * mixer.value_dim;
}

const ConvSpec* conv_of(const AttentionSpec&) {
  return nullptr;
}
template <typename Recurrent>
const ConvSpec* conv_of(const Recurrent& mixer) {
  return &mixer.conv;
}

}  // namespace

std::vector<Window> window_classes(const ModelSpec& spec) {
  std::vector<Window> classes;
  for_mixers<AttentionSpec>(spec, [&](int, const AttentionSpec& attention) {
    if (std::find(classes.begin(), classes.end(), attention.window) == classes.end())
      classes.push_back(attention.window);
  });
  return classes;
}

std::vector<KvLayerShape> kv_layers(const ModelSpec& spec) {
  const std::vector<Window> classes = window_classes(spec);
  std::vector<KvLayerShape> layers;
  for_mixers<AttentionSpec>(spec, [&](int layer, const AttentionSpec& attention) {
    const auto window_class = std::find(classes.begin(), classes.end(), attention.window) - classes.begin();
    layers.push_back({layer, attention.kv_heads, attention.head_dim, attention.head_dim,
                      static_cast<int>(window_class), attention.rope_table.value_or(-1)});
  });
  return layers;
}

std::vector<StateShape> state_layers(const ModelSpec& spec) {
  std::vector<StateShape> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    for (const MixerSpec& mixer : spec.layers[i].mixers) {
      const ConvSpec* conv = std::visit([](const auto& kind) { return conv_of(kind); }, mixer.kind);
      if (conv == nullptr) continue;
      const int64_t values = std::visit([](const auto& kind) { return state_values(kind); }, mixer.kind);
      layers.push_back(
          {static_cast<int>(i), conv->taps - 1, static_cast<int>(conv->weight.shape[1]), values});
    }
  }
  return layers;
}

}  // namespace butter
