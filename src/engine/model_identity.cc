#include "engine/model_identity.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace butter {
namespace {

constexpr size_t kSampleBytes = 1024;

// XXH3 over values, one after the other.
class Hasher {
 public:
  Hasher() {
    XXH3_INITSTATE(&state_);
    XXH3_64bits_reset(&state_);
  }
  void add_bytes(const void* data, size_t bytes) { XXH3_64bits_update(&state_, data, bytes); }
  template <typename... Numbers>
  void add(Numbers... numbers) {
    static_assert((std::is_arithmetic_v<Numbers> && ...));
    (add_bytes(&numbers, sizeof numbers), ...);
  }
  void add_text(std::string_view text) {
    add(uint64_t{text.size()});
    add_bytes(text.data(), text.size());
  }
  uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

void add_norm(Hasher& hasher, const NormSpec& norm) {
  hasher.add(norm.eps, norm.centred);
}

void add_norm(Hasher& hasher, const std::optional<NormSpec>& norm) {
  hasher.add(norm.has_value());
  if (norm) add_norm(hasher, *norm);
}

void add_mixer(Hasher& hasher, const AttentionSpec& attention) {
  hasher.add(attention.heads, attention.kv_heads, attention.head_dim, attention.scale);
  hasher.add(attention.rope_table.value_or(-1), attention.window.max_size, attention.window.keep);
  add_norm(hasher, attention.q_norm);
  add_norm(hasher, attention.k_norm);
}
void add_mixer(Hasher& hasher, const Mamba1Spec& mamba) {
  hasher.add(mamba.width, mamba.state_size, mamba.dt_rank, mamba.conv.taps);
  for (const auto* norm : {&mamba.dt_norm, &mamba.b_norm, &mamba.c_norm}) add_norm(hasher, *norm);
}
void add_mixer(Hasher& hasher, const Mamba2Spec& mamba) {
  hasher.add(mamba.heads, mamba.head_dim, mamba.groups, mamba.state_size, mamba.conv.taps);
  hasher.add(mamba.dt_min, mamba.dt_max, static_cast<int>(mamba.output), mamba.norm_groups);
  for (const float multiplier : mamba.multipliers) hasher.add(multiplier);
  add_norm(hasher, mamba.norm);
}
void add_mixer(Hasher& hasher, const DeltaNetSpec& delta) {
  hasher.add(delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim, delta.conv.taps,
             delta.tiled);
  add_norm(hasher, delta.norm);
}

void add_function(Hasher& hasher, const GateFunction& function) {
  hasher.add(static_cast<int>(function.activation), function.multiplier, function.limit, function.alpha);
}
void add_ffn(Hasher& hasher, const GatedFfnSpec& ffn) {
  hasher.add(ffn.width, ffn.multiplier);
  add_function(hasher, ffn.function);
}
void add_ffn(Hasher& hasher, const PlainFfnSpec& ffn) {
  hasher.add(ffn.width);
}
void add_ffn(Hasher& hasher, const ExpertsSpec& ffn) {
  const Routing& routing = ffn.routing;
  hasher.add(static_cast<int>(routing.score), routing.experts, routing.chosen, routing.groups,
             routing.chosen_groups, routing.normalise, routing.scale);
  hasher.add(ffn.width, uint64_t{ffn.shared.index()});
  add_function(hasher, ffn.function);
}

// Which tensors the model reads, and how.
void add_tensors(Hasher& hasher, const ModelSpec& spec) {
  for_each_tensor(spec, [&](const TensorRef& ref) {
    hasher.add_text(ref.name);
    for (int i = 0; i < ref.shape.rank(); ++i) hasher.add(ref.shape[i]);
    hasher.add(ref.matrix, ref.transposed, ref.convolution, ref.first_row, ref.group_rows, ref.group_take);
    hasher.add(ref.permuted_heads, ref.log_decay);
  });
}

void add_layer(Hasher& hasher, const LayerSpec& layer) {
  add_norm(hasher, layer.pre_norm);
  for (const MixerSpec& mixer : layer.mixers) {
    hasher.add(mixer.in_multiplier, mixer.out_multiplier);
    std::visit([&](const auto& kind) { add_mixer(hasher, kind); }, mixer.kind);
  }
  add_norm(hasher, layer.mixer_post_norm);
  add_norm(hasher, layer.ffn_norm);
  if (layer.ffn) std::visit([&](const auto& ffn) { add_ffn(hasher, ffn); }, *layer.ffn);
  add_norm(hasher, layer.ffn_post_norm);
  hasher.add(layer.residual_multiplier);
}

void add_spec(Hasher& hasher, const ModelSpec& spec) {
  hasher.add_text(spec.family);
  hasher.add(spec.vocabulary, spec.hidden, static_cast<int>(spec.kv_dtype));
  hasher.add(spec.embedding_scale, spec.logit_multiplier, spec.logit_cap);
  add_norm(hasher, spec.embedding_norm);
  add_norm(hasher, spec.final_norm);
  add_tensors(hasher, spec);
  for (const RopeTable& table : spec.rope_tables) {
    hasher.add(uint64_t{table.inv_freq.size()}, table.amplitude);
    for (double frequency : table.inv_freq) hasher.add(frequency);
    if (table.long_inv_freq.empty()) continue;
    hasher.add(table.reach);
    for (double frequency : table.long_inv_freq) hasher.add(frequency);
  }
  for (const LayerSpec& layer : spec.layers) add_layer(hasher, layer);
}

void add_sample(Hasher& hasher, const TensorEntry& tensor) {
  hasher.add_text(tensor.name);
  hasher.add(static_cast<int>(tensor.view.dtype), tensor.bytes);
  for (const std::span<const std::byte> part : tensor.view.parts()) {
    const size_t sample = std::min(part.size(), kSampleBytes);
    for (const size_t at : {size_t{0}, (part.size() - sample) / 2, part.size() - sample})
      hasher.add_bytes(part.data() + at, sample);
  }
}

}  // namespace

Result<std::string> model_identity(const ModelSpec& spec, const Checkpoint& checkpoint) {
  Hasher hasher;
  add_spec(hasher, spec);
  for (const TensorEntry& tensor : checkpoint.tensors()) add_sample(hasher, tensor);
  BUTTER_TRY(checkpoint.check_undamaged());
  return fmt::format("{}-{}x{}-{:016x}", spec.family, spec.layers.size(), spec.hidden, hasher.digest());
}

}  // namespace butter
