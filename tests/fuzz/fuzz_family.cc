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

void check(const TensorRef& ref) {
  touch(std::string_view(ref.name));
  int64_t elements = 1;
  for (int i = 0; i < ref.shape.rank(); ++i) {
    BUTTER_CHECK(ref.shape[i] > 0 && ref.shape[i] <= kMostElements / elements);
    elements *= ref.shape[i];
  }
  BUTTER_CHECK(ref.permuted_heads == 0 || ref.shape[0] % ref.permuted_heads == 0);
}

void check(const AttentionSpec& attention, const ModelSpec& spec) {
  BUTTER_CHECK(attention.kv_heads > 0 && attention.heads % attention.kv_heads == 0 && attention.head_dim > 0);
  BUTTER_CHECK(attention.window.max_size >= 0 && attention.window.keep == 0);
  for (const LinearSpec* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) {
    check(linear->weight);
    if (linear->bias) check(*linear->bias);
  }
  if (!attention.rope_table) return;
  const RopeTable& table = spec.rope_tables.at(static_cast<size_t>(*attention.rope_table));
  BUTTER_CHECK(!table.inv_freq.empty() && static_cast<int>(2 * table.inv_freq.size()) <= attention.head_dim);
}

void check(const ModelSpec& spec) {
  BUTTER_CHECK(!spec.layers.empty() && spec.vocabulary > 0 && spec.hidden > 0 && spec.max_positions > 0);
  check(spec.embedding);
  for (const LayerSpec& layer : spec.layers) check(std::get<AttentionSpec>(layer.mixer), spec);
  CacheOptions options;
  options.scheme = *parse_scheme("raw", spec.kv_dtype);
  options.max_context = spec.max_positions;
  options.prefill_rows = 512;
  const auto plan =
      plan_caches({static_cast<int>(spec.layers.size()), kv_layers(spec), window_classes(spec)}, options);
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
