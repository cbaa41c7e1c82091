// plan_caches: the bytes of a sequence's cache, as numbers, before anything is allocated.
//
// The same rules as CacheSet's, which tests hold to the byte: a sequence that reaches max_context holds
// total_bytes, and never more than total_bytes + prefill_bytes while it is fed in steps of up to prefill_rows
// that end at the last token or at a page boundary, or of up to 64 rows anywhere.
#pragma once

#include "butter/plan.h"
#include "cache/cache_layout.h"

namespace butter {

Result<CachePlan> plan_caches(const CacheModel& model, const CacheOptions& options);

}  // namespace butter
