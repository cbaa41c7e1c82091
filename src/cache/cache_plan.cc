#include "cache/cache_plan.h"

#include <algorithm>
#include <cmath>

#include "cache/cache_scheme.h"
#include "cache/state_ring.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

struct PageCounts {
  int64_t sealed = 0;  // at max_context
  int64_t open = 0;
  int64_t prefill = 0;  // sealed pages more, at the worst moment
  int64_t prefill_open = 0;
};

// Pages of the recent part, from the window's first live page up to the page that holds the query.
int64_t recent_pages(const Window& window) {
  return (window.max_size - window.keep - 1 + kPageRows - 1) / kPageRows;
}

// Sealed pages that are held when `pages` have been written in all.
int64_t held_pages(const Window& window, int64_t pages, bool pins) {
  if (window.none()) return pages;
  return std::min(pages, kept_pages(window, pins) + recent_pages(window));
}

PageCounts count_pages(const Window& window, const CacheOptions& options) {
  const bool seals = options.scheme.seals(), pins = options.scheme.pins();
  const int64_t context = options.max_context;
  const int64_t full = context / kPageRows;
  PageCounts counts;
  counts.sealed = held_pages(window, full, pins);
  counts.open = seals || context % kPageRows != 0 ? 1 : 0;
  // At the worst a step finds the pages of a whole window and adds those that its own rows touch: in raw
  // schemes two where a few rows stand on both sides of a page boundary.
  const int64_t rows = std::min<int64_t>(std::max(options.prefill_rows, 1), context);
  const int64_t step_pages = seals || rows == 1 ? pages_for(rows) : std::max<int64_t>(pages_for(rows), 2);
  const int64_t all = seals ? full : pages_for(context);
  const int64_t peak =
      window.none() ? all : std::min(all, kept_pages(window, pins) + recent_pages(window) + step_pages);
  counts.prefill = peak - counts.sealed - (seals ? 0 : counts.open);
  counts.prefill_open = seals && rows > 1 && context > kPageRows ? 1 : 0;
  return counts;
}

// Bytes of pages at the worst moment, in floating point, which holds any number of them.
double page_bytes(const CacheLayout& layout, const CacheOptions& options) {
  double bytes = 0;
  for (const WindowClass& window_class : layout.classes) {
    const PageCounts counts = count_pages(window_class.window, options);
    bytes +=
        static_cast<double>(counts.sealed + counts.prefill) * static_cast<double>(window_class.sealed.bytes) +
        static_cast<double>(counts.open + counts.prefill_open) *
            static_cast<double>(std::max(window_class.sealed.bytes, window_class.raw.bytes));
  }
  return bytes;
}

// So that a few sums of bytes stay within 63 bits.
Status check_size(const CacheLayout& layout, const CacheOptions& options) {
  constexpr int kMostBits = 61;
  const double bytes = page_bytes(layout, options);
  if (bytes <= std::ldexp(1.0, kMostBits)) return {};
  return fail(
      StatusCode::kLimit,
      "the cache of {} positions takes {:.3g} bytes; at most 2^{} are counted (a smaller --max-context "
      "takes less)",
      options.max_context, bytes, kMostBits);
}

// Of one layer of a block that not every scheme has.
int64_t layer_bytes(const BlockLayout& block, size_t layer) {
  return block.layers.empty() ? 0 : block.layers[layer].bytes;
}

}  // namespace

Result<CachePlan> plan_caches(const CacheModel& model, const CacheOptions& options) {
  BUTTER_ASSIGN(const auto layout, make_cache_layout(model, options));
  BUTTER_TRY(check_size(*layout, options));
  const bool seals = layout->seals();
  CachePlan plan;
  plan.kv_cache = scheme_name(options.scheme);
  plan.max_context = options.max_context;
  int64_t sealed_page = 0, raw_page = 0;
  for (const WindowClass& window_class : layout->classes) {
    if (window_class.layers.empty()) continue;
    const PageCounts counts = count_pages(window_class.window, options);
    const BlockLayout& open = layout->open_block(window_class);
    plan.sealed_bytes += counts.sealed * window_class.sealed.bytes;
    plan.open_bytes += counts.open * open.bytes;
    plan.pinned_bytes += window_class.pinned.bytes;
    const bool centred = options.max_context >= kPageRows;  // made when page 0 is full
    if (centred) plan.centre_bytes += window_class.centre.bytes;
    plan.prefill_bytes +=
        counts.prefill * window_class.sealed.bytes + counts.prefill_open * window_class.raw.bytes;
    sealed_page += window_class.sealed.bytes;
    raw_page += window_class.raw.bytes;
    if (window_class.window.none()) plan.bytes_per_token += window_class.sealed.bytes / kPageRows;
    for (size_t i = 0; i < window_class.layers.size(); ++i) {
      const int64_t bytes = counts.sealed * window_class.sealed.layers[i].bytes +
                            counts.open * open.layers[i].bytes + layer_bytes(window_class.pinned, i) +
                            (centred ? layer_bytes(window_class.centre, i) : 0);
      plan.layers.push_back(layer_memory(window_class, i, (counts.sealed + counts.open) * kPageRows, bytes));
    }
  }
  const int blocks = layout->state_blocks(), snapshots = std::max(0, blocks - StateRing::blocks(0));
  plan.recurrent_bytes = (blocks - snapshots) * layout->state.bytes;
  plan.snapshot_bytes = snapshots * layout->state.bytes;
  add_state_layers(*layout, blocks, plan.layers);
  std::sort(plan.layers.begin(), plan.layers.end(),
            [](const LayerMemory& a, const LayerMemory& b) { return a.layer < b.layer; });
  plan.total_bytes = plan.sealed_bytes + plan.open_bytes + plan.pinned_bytes + plan.centre_bytes +
                     plan.recurrent_bytes + plan.snapshot_bytes;
  plan.raw_bytes = plan.total_bytes;
  if (seals) {
    CacheOptions raw_options = options;
    raw_options.scheme = {&raw_format(), &raw_format(), options.scheme.raw};
    BUTTER_ASSIGN(const CachePlan raw, plan_caches(model, raw_options));
    plan.raw_bytes = raw.total_bytes;
  }
  if (sealed_page > 0) plan.ratio_sealed = static_cast<double>(raw_page) / static_cast<double>(sealed_page);
  if (plan.total_bytes > 0) {
    plan.ratio_at_context = static_cast<double>(plan.raw_bytes) / static_cast<double>(plan.total_bytes);
  }
  return plan;
}

}  // namespace butter
