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

// Calls `visit` with every reference in a part of a model.
class TensorWalk {
 public:
  explicit TensorWalk(const std::function<void(const TensorRef&)>& visit) : visit_(visit) {}

  template <typename... Parts>
  void all(const Parts&... parts) const {
    (one(parts), ...);
  }

 private:
  template <typename Part>
  void one(const std::optional<Part>& part) const {
    if (part) one(*part);
  }
  template <typename Part>
  void one(const std::vector<Part>& parts) const {
    for (const Part& part : parts) one(part);
  }
  template <typename... Kinds>
  void one(const std::variant<Kinds...>& part) const {
    std::visit([this](const auto& kind) { this->one(kind); }, part);
  }
  void one(std::monostate) const {}
  void one(const TensorRef& ref) const { visit_(ref); }
  void one(const NormSpec& norm) const { all(norm.weight); }
  void one(const LinearSpec& linear) const { all(linear.weight, linear.bias); }
  void one(const ConvSpec& conv) const { all(conv.weight, conv.bias); }
  void one(const AttentionSpec& mixer) const {
    all(mixer.q, mixer.k, mixer.v, mixer.gate, mixer.q_norm, mixer.k_norm, mixer.sinks, mixer.o);
  }
  void one(const Mamba1Spec& mixer) const {
    all(mixer.x, mixer.z, mixer.conv, mixer.dt_low, mixer.b, mixer.c);
    all(mixer.dt_norm, mixer.b_norm, mixer.c_norm, mixer.dt, mixer.decay, mixer.skip, mixer.out);
  }
  void one(const Mamba2Spec& mixer) const {
    all(mixer.z, mixer.xbc, mixer.dt, mixer.conv);
    all(mixer.decay, mixer.skip, mixer.dt_bias, mixer.norm, mixer.out);
  }
  void one(const DeltaNetSpec& mixer) const {
    all(mixer.qkv, mixer.z, mixer.beta, mixer.alpha, mixer.conv);
    all(mixer.decay, mixer.dt_bias, mixer.norm, mixer.out);
  }
  void one(const MixerSpec& mixer) const { all(mixer.kind); }
  void one(const GatedFfnSpec& ffn) const { all(ffn.gate, ffn.up, ffn.down); }
  void one(const PlainFfnSpec& ffn) const { all(ffn.up, ffn.down); }
  void one(const ExpertSpec& expert) const { all(expert.gate, expert.up, expert.down); }
  void one(const ExpertsSpec& ffn) const {
    all(ffn.router, ffn.choice_bias, ffn.experts, ffn.latent_in, ffn.latent_out, ffn.shared, ffn.shared_gate);
  }
  void one(const LayerSpec& layer) const {
    all(layer.pre_norm, layer.mixers, layer.mixer_post_norm);
    all(layer.ffn_norm, layer.ffn, layer.ffn_post_norm);
  }

  const std::function<void(const TensorRef&)>& visit_;
};

}  // namespace

void for_each_tensor(const ModelSpec& spec, const std::function<void(const TensorRef&)>& visit) {
  TensorWalk(visit).all(spec.embedding, spec.embedding_norm, spec.layers, spec.final_norm, spec.head);
}

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
