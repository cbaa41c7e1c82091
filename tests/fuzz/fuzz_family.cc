// From a configuration to a model: whatever config.json or GGUF metadata say, a ModelSpec whose numbers can
// be worked with (and a cache plan of it), or an Error.
#include "cache/cache_plan.h"
#include "cache/cache_scheme.h"
#include "checkpoint/gguf.h"
#include "families/family.h"
#include "fuzz/touch.h"

namespace butter {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;

// The rows that a reference takes are rows that the stored tensor has.
void check_rows(const TensorRef& ref) {
  const Shape& stored = ref.stored.rank() == 0 ? ref.shape : ref.stored;
  int64_t last = ref.shape[0] - 1;
  if (ref.group_take > 0) last = last / ref.group_take * ref.group_rows + last % ref.group_take;
  last += ref.first_row;
  BUTTER_CHECK(ref.matrix >= 0 && ref.first_row >= 0 && ref.group_take <= ref.group_rows);
  if (ref.shape.rank() == 1) {
    BUTTER_CHECK(ref.matrix * stored[stored.rank() - 1] + last < stored.elements());
  } else {
    const int64_t rows = stored[stored.rank() - 2], columns = stored[stored.rank() - 1];
    const int64_t matrices = stored.elements() / rows / columns;
    BUTTER_CHECK(ref.matrix < matrices || (ref.transposed && ref.matrix == 0));
    if (!ref.transposed) BUTTER_CHECK(last < rows && columns == ref.shape[1]);
  }
}

void check(const TensorRef& ref) {
  touch(std::string_view(ref.name));
  int64_t elements = 1;
  for (int i = 0; i < ref.shape.rank(); ++i) {
    BUTTER_CHECK(ref.shape[i] > 0 && ref.shape[i] <= kMostElements / elements);
    elements *= ref.shape[i];
  }
  BUTTER_CHECK(ref.permuted_heads == 0 || ref.shape[0] % ref.permuted_heads == 0);
  check_rows(ref);
}

void check(const LinearSpec& linear) {
  check(linear.weight);
  if (linear.bias) check(*linear.bias);
}

void check(const AttentionSpec& attention, const ModelSpec& spec) {
  BUTTER_CHECK(attention.kv_heads > 0 && attention.heads % attention.kv_heads == 0 && attention.head_dim > 0);
  BUTTER_CHECK(attention.window.max_size >= 0 && attention.window.keep == 0);
  for (const LinearSpec* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) check(*linear);
  if (attention.gate) check(*attention.gate);
  if (attention.sinks) check(*attention.sinks);
  if (!attention.rope_table) return;
  const RopeTable& table = spec.rope_tables.at(static_cast<size_t>(*attention.rope_table));
  BUTTER_CHECK(!table.inv_freq.empty() && static_cast<int>(2 * table.inv_freq.size()) <= attention.head_dim);
}

void check(const ConvSpec& conv) {
  BUTTER_CHECK(conv.taps > 0 && conv.weight.shape[0] == conv.taps);
  check(conv.weight);
  if (conv.bias) check(*conv.bias);
}

void check(const Mamba1Spec& mamba, const ModelSpec&) {
  BUTTER_CHECK(mamba.width > 0 && mamba.state_size > 0 && mamba.dt_rank > 0);
  for (const LinearSpec* linear :
       {&mamba.x, &mamba.z, &mamba.dt_low, &mamba.b, &mamba.c, &mamba.dt, &mamba.out})
    check(*linear);
  check(mamba.conv);
  check(mamba.decay);
  check(mamba.skip);
}

void check(const Mamba2Spec& mamba, const ModelSpec&) {
  BUTTER_CHECK(mamba.heads > 0 && mamba.head_dim > 0 && mamba.groups > 0 && mamba.state_size > 0);
  BUTTER_CHECK(mamba.heads % mamba.groups == 0 && mamba.dt_min <= mamba.dt_max);
  for (const LinearSpec* linear : {&mamba.z, &mamba.xbc, &mamba.dt, &mamba.out}) check(*linear);
  check(mamba.conv);
  for (const TensorRef* vector : {&mamba.decay, &mamba.skip, &mamba.dt_bias}) check(*vector);
}

void check(const DeltaNetSpec& delta, const ModelSpec&) {
  BUTTER_CHECK(delta.key_heads > 0 && delta.value_heads % delta.key_heads == 0);
  BUTTER_CHECK(delta.key_dim > 0 && delta.value_dim > 0);
  for (const LinearSpec& linear : delta.qkv) check(linear);
  for (const LinearSpec* linear : {&delta.z, &delta.beta, &delta.alpha, &delta.out}) check(*linear);
  check(delta.conv);
  check(delta.decay);
  check(delta.dt_bias);
}

void check(const GatedFfnSpec& ffn) {
  for (const LinearSpec* linear : {&ffn.gate, &ffn.up, &ffn.down}) check(*linear);
}
void check(const PlainFfnSpec& ffn) {
  check(ffn.up);
  check(ffn.down);
}
void check(std::monostate) {}
void check(const ExpertsSpec& ffn) {
  const Routing& routing = ffn.routing;
  BUTTER_CHECK(routing.chosen > 0 && routing.chosen <= routing.experts);
  BUTTER_CHECK(routing.groups > 0 && routing.experts % routing.groups == 0);
  BUTTER_CHECK(routing.chosen_groups * (routing.experts / routing.groups) >= routing.chosen);
  BUTTER_CHECK(static_cast<int>(ffn.experts.size()) == routing.experts);
  check(ffn.router);
  for (const ExpertSpec& expert : ffn.experts) {
    if (expert.gate) check(*expert.gate);
    check(expert.up);
    check(expert.down);
  }
  std::visit([](const auto& shared) { check(shared); }, ffn.shared);
}

void check(const LayerSpec& layer, const ModelSpec& spec) {
  BUTTER_CHECK(!layer.mixers.empty() || layer.ffn);
  for (const MixerSpec& mixer : layer.mixers)
    std::visit([&](const auto& kind) { check(kind, spec); }, mixer.kind);
  if (layer.ffn) std::visit([](const auto& ffn) { check(ffn); }, *layer.ffn);
}

void check(const ModelSpec& spec) {
  BUTTER_CHECK(!spec.layers.empty() && spec.vocabulary > 0 && spec.hidden > 0 && spec.max_positions > 0);
  check(spec.embedding);
  for (const LayerSpec& layer : spec.layers) check(layer, spec);
  CacheOptions options;
  options.scheme = *parse_scheme("raw", spec.kv_dtype);
  options.max_context = spec.max_positions;
  options.prefill_rows = 512;
  const auto plan = plan_caches(
      {static_cast<int>(spec.layers.size()), kv_layers(spec), window_classes(spec), state_layers(spec)},
      options);
  BUTTER_CHECK(plan && plan->total_bytes > 0);
}

void read(CheckpointFormat format, const Attributes& config) {
  const auto spec = make_model_spec(format, config);
  if (spec) {
    check(*spec);
  } else {
    BUTTER_CHECK(!spec.error().message().empty());
  }
}

}  // namespace
}  // namespace butter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.substr(0, 4) == "GGUF") {
    const auto gguf = butter::Gguf::parse({reinterpret_cast<const std::byte*>(data), size});
    if (gguf) butter::read(butter::CheckpointFormat::kGguf, gguf->metadata());
    return 0;
  }
  const auto config = butter::Attributes::parse_json(text, "config.json");
  if (config) butter::read(butter::CheckpointFormat::kSafetensors, *config);
  return 0;
}
