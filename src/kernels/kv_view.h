// KvView: one sequence's cache of one layer, as attention reads it. Plain pointers and integers.
//
// Who sees what (kv-cache.md): a query at p reads raw the rows of its own page span [64·(p/64), p], and
// sealed rows before it. (In a scheme with a prefill span N, a step's rows read raw what the step holds of
// their own span of N positions.) In a scheme that seals, rows of positions 0..3 before the query's page come
// from the pinned segment; the records of page 0 hold zero rows there and those are never visible. It depends
// on positions alone, so chunk size, batch and threads never change which rows a query sees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "kernels/centre.h"
#include "kernels/kv_layout.h"
#include "kernels/row_format.h"
#include "kernels/window.h"

namespace butter {

// A block of raw rows of one page. `layout` says where the layer's records stand in it; a prefill chunk's
// inner pages live in scratch that holds one layer at a time, so layouts differ from block to block.
struct RawPage {
  std::byte* base = nullptr;
  const LayerLayout* layout = nullptr;

  std::byte* key(int head) const { return base + layout->heads[static_cast<size_t>(head)].key; }
  std::byte* value(int head) const { return base + layout->heads[static_cast<size_t>(head)].value; }
};

// Rows of a page that a query at p sees, as bits: bit i is position 64 · page + i.
inline uint64_t visible_rows(const Window& window, int64_t p, int64_t page) {
  const int64_t first = page * kPageRows;
  // Bits [0, count), count taken into 0..64.
  const auto low_bits = [](int64_t count) {
    return count <= 0 ? uint64_t{0} : count >= kPageRows ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  };
  const uint64_t kept = low_bits(window.none() ? 0 : window.keep - first);
  return low_bits(p + 1 - first) & (kept | ~low_bits(window.recent_begin(p) - first));
}

// The pages below `end` that hold a row that a query at p sees, counted from 0 in order of position: first
// the pages of kept positions, then those of the recent ones.
struct VisiblePages {
  int64_t kept_end = 0;      // pages [0, kept_end)
  int64_t recent_begin = 0;  // and [recent_begin, end)
  int64_t end = 0;

  VisiblePages(const Window& window, int64_t p, int64_t end_page) : end(end_page) {
    recent_begin = std::min(end, page_of(window.recent_begin(p)));
    kept_end = window.none() ? 0 : std::min(recent_begin, pages_for(window.keep));
  }
  // Those before the query's own page.
  VisiblePages(const Window& window, int64_t p) : VisiblePages(window, p, page_of(p)) {}
  int64_t count() const { return kept_end + end - recent_begin; }
  int64_t page(int64_t ordinal) const {
    return ordinal < kept_end ? ordinal : recent_begin + (ordinal - kept_end);
  }
};

struct KvView {
  KvLayerShape shape;
  KvScheme scheme;
  Window window;

  // Sealed pages in two runs, by logical page number: kept[page] for page < kept_end, and
  // sealed[page - first_sealed] for first_sealed <= page < end_sealed. Pages between the runs went back to
  // the pool because no query can see them. Read them through sealed_page().
  const std::byte* const* kept = nullptr;
  int64_t kept_end = 0;
  const std::byte* const* sealed = nullptr;
  int64_t first_sealed = 0;
  int64_t end_sealed = 0;
  const LayerLayout* sealed_layout = nullptr;

  // Raw pages: raw[page - first_raw] for first_raw <= page < end_raw; the step's own rows are among them.
  const RawPage* raw = nullptr;
  int64_t first_raw = 0;
  int64_t end_raw = 0;

  // Raw rows of positions 0..3; null in schemes that do not pin, and before position 0 was written.
  RawPage pinned;

  // What sealed keys were coded without; none in schemes that do not centre, and before position 63 was
  // written.
  CentreView centre;

  // The first page that a query at p reads raw; those before it are read sealed.
  int64_t raw_begin(int64_t p) const {
    return std::max(first_raw, p / scheme.span * scheme.span / kPageRows);
  }
  // The end of the positions that read a page raw, if it is among the raw ones.
  int64_t span_end(int64_t page) const { return (page * kPageRows / scheme.span + 1) * scheme.span; }

  // The block of a sealed page; null where it went back to the pool.
  const std::byte* sealed_page(int64_t page) const {
    if (page < kept_end) return kept[page];
    BUTTER_CHECK(page < end_sealed);
    return page < first_sealed ? nullptr : sealed[page - first_sealed];
  }
  const RawPage& raw_page(int64_t page) const {
    BUTTER_CHECK(page >= first_raw && page < end_raw);
    return raw[page - first_raw];
  }
};

}  // namespace butter
