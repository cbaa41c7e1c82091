// What the parts of cpu::attend share: how work is split, and where scratch stands.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "kernels/attention.h"
#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/prefill_rows.h"

namespace butter::cpu {

constexpr float kLog2E = 1.44269504f;  // scores are base-2 logarithms: folded into the queries

// The states of `heads` queries that have seen their sinks and nothing else: a score each, without a value.
inline void start_with_sinks(const float* sinks, int heads, const SoftmaxState& state) {
  for (int h = 0; h < heads; ++h) {
    state.max[h] = sinks[h] * kLog2E;
    state.sum[h] = state.max[h] < INFINITY ? 1 : NAN;  // no softmax has a sink that is no number
  }
}

// --- decode: ranges of pages ---------------------------------------------------------------------
// A row's sealed pages are cut into ranges, by their number alone, so that many workers share one row; each
// range has a partial softmax state, and they merge in order.

constexpr int64_t kMaxRanges = 32;
// Pages in a range, where a row sees `pages` sealed pages: 4, and more in deep caches.
inline int64_t range_pages(int64_t pages) {
  int64_t size = 4;
  while (pages > size * kMaxRanges) size *= 2;
  return size;
}
inline int64_t range_count(int64_t pages) {
  return (pages + range_pages(pages) - 1) / range_pages(pages);
}
// Partial states of a row at most: its ranges and its raw rows.
inline int64_t max_parts(int64_t max_positions) {
  return std::min(kMaxRanges, pages_for(max_positions)) + 1;
}

// Floats of a partial state of one KV head: max and sum of each query head, then its accumulators.
inline int64_t part_floats(int group, int value_dim) {
  return round_up(int64_t{group} * (value_dim + 2), 16);
}

// The decode rows of a step are attended in rounds of as many rows as the partial states have room for.
constexpr int kRoundRows = 16;

// --- prefill: blocks of rows ---------------------------------------------------------------------

constexpr int kMaxBlockRows = 384;
// Positions of a block of query rows, for `group` query heads a KV head: a power of two. A result does not
// depend on it: blocks spread the cost of unpacking a page over many rows, and are made smaller to give all
// workers some.
inline int block_positions(int group) {
  int positions = 128;
  while (positions > 1 && positions * group > kMaxBlockRows) positions /= 2;
  return positions;
}

// --- scratch -------------------------------------------------------------------------------------

// What a worker does in one go for each of some KV heads: a decode row with a range of its sealed pages, or
// with its raw rows. Its partial state is part `part` of the round.
struct Unit {
  const AttendSequence* sequence = nullptr;
  int row = 0;        // of the sequence
  bool raw = false;   // pinned and own-page rows rather than sealed pages
  int64_t first = 0;  // sealed pages: ordinals [first, end) of VisiblePages
  int64_t end = 0;
  int64_t part = 0;

  int64_t cost() const { return raw ? 1 : end - first; }
  int64_t position() const { return sequence->position + row; }
};

// A row of a round, and its parts in order: sealed ranges, then the raw rows.
struct RowPlan {
  const AttendSequence* sequence = nullptr;
  int row = 0;
  int64_t first_part = 0;
  int64_t parts = 0;
};

// One worker's scratch for decode rows.
struct DecodeScratch {
  Unit* units = nullptr;     // [round_parts]
  RowPlan* rows = nullptr;   // [round_parts]
  float* queries = nullptr;  // [group][key_dim]
  // Prepared queries of the row at hand: [kv_heads][prepared_stride].
  std::byte* prepared_sealed = nullptr;
  std::byte* prepared_raw = nullptr;
  int64_t prepared_stride = 0;
  int64_t* sealed_row = nullptr;  // [kv_heads] row of the step that those belong to
  int64_t* raw_row = nullptr;
  // Queries' sides of the centre, of the same row as prepared_sealed: [kv_heads][group][centre_stride].
  float* centre = nullptr;
  int64_t centre_stride = 0;
  const float** centre_rows = nullptr;  // of exact pairs: [kv_heads][max_exact_pairs(key_dim)]
  uint16_t* centre_pairs = nullptr;     // the pairs themselves: [kv_heads][2 · max_exact_pairs(key_dim)]
  float* page_turn = nullptr;           // [2 · pairs]
  float* scores = nullptr;              // [group][64]
  float* merged = nullptr;              // a partial state
};

// One worker's scratch for a block of prefill rows.
struct PrefillScratch {
  float* queries = nullptr;  // [rows][key_dim]
  float* page = nullptr;     // [64][the larger dim]
  float* centre = nullptr;   // [64][key_dim]
  std::byte* packed_queries = nullptr;
  std::byte* packed_keys = nullptr;
  std::byte* packed_values = nullptr;
  float* max = nullptr;         // [rows]
  float* sum = nullptr;         // [rows]
  float* acc = nullptr;         // [rows][value_dim rounded up to 16]
  uint64_t* visible = nullptr;  // [rows]
  std::byte* kernel = nullptr;
};

// The scratch of a call, laid out in `base`; with base null, its size alone. Every size grows with every
// limit, so what is laid out for a batch fits into what was planned for its limits.
struct AttendScratch {
  float* parts = nullptr;   // shared: partial states of a round, [round_parts][kv_heads][part_floats]
  int64_t round_parts = 0;  // of all rows of a round
  DecodeScratch decode;     // of the worker
  PrefillScratch prefill;   // of the worker
  int64_t bytes = 0;        // of all workers

  AttendScratch(const AttendLimits& limits, std::byte* base, int worker);
};

// Decode rows and prefill rows of a batch. Both leave their part of `out` to a last barrier.
void attend_decode(const AttendBatch& batch, Isa isa, const AttendScratch& scratch, const Worker& worker);
void attend_prefill(const AttendBatch& batch, Isa isa, const AttendScratch& scratch, const Worker& worker);

}  // namespace butter::cpu
