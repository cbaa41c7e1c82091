// plan_caches: the bytes of a sequence's cache, as numbers, before anything is allocated.
//
// The same rules as CacheSet's, which tests hold to the byte: a sequence that reaches max_context holds
// total_bytes, and never more than total_bytes + prefill_bytes while it is fed in steps of up to prefill_rows.
#pragma once

#include <vector>

#include "cache/cache_layout.h"

namespace butter {

struct LayerPlan {
  int layer = 0;
  Window window;
  int64_t rows = 0;   // positions held at max_context, rounded up to pages
  int64_t bytes = 0;  // of total_bytes
};

struct CachePlan {
  int64_t sealed_bytes = 0;
  int64_t open_bytes = 0;
  int64_t pinned_bytes = 0;
  int64_t recurrent_bytes = 0;
  int64_t total_bytes = 0;    // their sum
  int64_t prefill_bytes = 0;  // more, while a prefill step is under way
  int64_t raw_bytes = 0;      // total_bytes of the raw scheme with the same window and context
  int64_t bytes_per_token = 0;  // of one more position, once sealed, in the layers without a window
  double ratio_sealed = 1;      // bytes of 64 raw rows / bytes of a sealed page, over all layers
  double ratio_at_context = 1;  // raw_bytes / total_bytes
  std::vector<LayerPlan> layers;
};

Result<CachePlan> plan_caches(const CacheModel& model, const CacheOptions& options);

}  // namespace butter
