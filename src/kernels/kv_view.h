// KvView: one sequence's cache of one layer, as attention reads it. Plain pointers and integers.
//
// Who sees what (kv-cache.md): a query at p reads raw the rows of its own page span [64·(p/64), p], and
// sealed rows before it. In a scheme that seals, rows of positions 0..3 before the query's page come from
// the pinned segment; the records of page 0 hold zero rows there and those are never visible.
// It depends on positions alone, so chunk size, batch and threads never change which rows a query sees.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/check.h"
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

struct KvView {
  KvLayerShape shape;
  KvScheme scheme;
  Window window;

  // Sealed pages in two runs, by logical page number: kept[page] for page < kept_end, and
  // sealed[page - first_sealed] for first_sealed <= page < end_sealed. Pages between the runs went back to the
  // pool because no query can see them. Read them through sealed_page().
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

  // Raw rows of positions 0..3; null in schemes that do not seal, and before position 0 was written.
  RawPage pinned;

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
