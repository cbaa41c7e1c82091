#include "families/phi.h"

#include "families/dense.h"

namespace butter {

Result<ModelSpec> phi3_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.norm_eps = 1e-5;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.fused_qkv = config.fused_gate_up = true;
  const std::string key = source.gguf() ? source.model_type + ".attention.sliding_window" : "sliding_window";
  if (source.config.kind(key) != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(const int64_t window, source.config.require_int(key, 0, int64_t{1} << 31));
    if (window > 0) config.windows.assign(static_cast<size_t>(config.layers), Window{window, 0});
  }
  return dense_spec(source, config);
}

}  // namespace butter
