#include "engine/eval_sequences.h"

#include "core/status.h"

namespace butter {

Result<SchemeQuality> describe_scheme(const Engine& engine, const EvalOptions& options, size_t s) {
  BUTTER_ASSIGN(const CachePlan plan, engine.plan_caches(scheme_options(options, s)));
  SchemeQuality row;
  row.kv_cache = plan.kv_cache;
  row.ratio_sealed = plan.ratio_sealed;
  // Raw rows are 16 bits a value, but for the reference device's, which are float32.
  row.bits_per_value = (engine.info().device == "reference" ? 32 : 16) / plan.ratio_sealed;
  return row;
}

}  // namespace butter
