#include "families/smollm.h"

#include "families/dense.h"

namespace butter {
namespace {

constexpr int kUsualInterval = 4;  // every fourth layer does not turn; GGUF files do not say it

// Which layers turn: no_rope_layers says 1 for those that do.
Result<std::vector<bool>> read_turning_layers(const FamilySource& source, int layers) {
  const Attributes& config = source.config;
  std::vector<bool> turning(static_cast<size_t>(layers));
  int64_t interval = kUsualInterval;
  if (!source.gguf()) {
    if (config.kind("no_rope_layers") != AttributeKind::kAbsent) {
      BUTTER_ASSIGN(const auto flags, config.get_ints("no_rope_layers"));
      if (static_cast<int>(flags.size()) != layers) {
        return fail(StatusCode::kCorrupt, "no_rope_layers has {} entries; {}, one a layer, are expected",
                    flags.size(), layers);
      }
      for (size_t i = 0; i < flags.size(); ++i) turning[i] = flags[i] != 0;
      return turning;
    }
    BUTTER_ASSIGN(interval,
                  config.require_int_or("no_rope_layer_interval", kUsualInterval, 1, int64_t{1} << 31));
  }
  for (size_t i = 0; i < turning.size(); ++i) turning[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
  return turning;
}

// Only with use_sliding_window, on the layers that layer_types says, or on those that do not turn.
Result<std::vector<Window>> read_windows(const FamilySource& source, const std::vector<bool>& turning) {
  const Attributes& config = source.config;
  if (source.gguf()) return std::vector<Window>{};
  BUTTER_ASSIGN(const bool use, config.get_bool_or("use_sliding_window", false));
  if (!use || config.kind("sliding_window") == AttributeKind::kAbsent) return std::vector<Window>{};
  BUTTER_ASSIGN(const int64_t width, config.require_int("sliding_window", 1, int64_t{1} << 31));
  BUTTER_ASSIGN(const auto sliding, read_sliding_layers(config, static_cast<int>(turning.size())));
  std::vector<Window> windows(turning.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    if (sliding.empty() ? !turning[i] : sliding[i]) windows[i] = Window{width, 0};
  }
  return windows;
}

}  // namespace

Result<ModelSpec> smollm3_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 4;
  defaults.tied = true;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  if (!source.gguf()) {
    BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
    config.o_bias = config.qkv_bias;
    BUTTER_ASSIGN(config.mlp_bias, source.config.get_bool_or("mlp_bias", false));
  }
  config.permuted_qk = source.gguf();
  BUTTER_ASSIGN(const auto turning, read_turning_layers(source, config.layers));
  for (const bool turns : turning) config.layer_ropes.push_back(turns ? std::optional(0) : std::nullopt);
  BUTTER_ASSIGN(config.windows, read_windows(source, turning));
  return dense_spec(source, config);
}

}  // namespace butter
