#include "model/model_spec.h"

#include <algorithm>

namespace butter {

std::vector<Window> window_classes(const ModelSpec& spec) {
  std::vector<Window> classes;
  for (const LayerSpec& layer : spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr) continue;
    if (std::find(classes.begin(), classes.end(), attention->window) == classes.end()) {
      classes.push_back(attention->window);
    }
  }
  return classes;
}

std::vector<KvLayerShape> kv_layers(const ModelSpec& spec) {
  const std::vector<Window> classes = window_classes(spec);
  std::vector<KvLayerShape> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* attention = std::get_if<AttentionSpec>(&spec.layers[i].mixer);
    if (attention == nullptr) continue;
    const auto window_class = std::find(classes.begin(), classes.end(), attention->window) - classes.begin();
    layers.push_back({static_cast<int>(i), attention->kv_heads, attention->head_dim, attention->head_dim,
                      static_cast<int>(window_class), attention->rope_table.value_or(-1)});
  }
  return layers;
}

}  // namespace butter
