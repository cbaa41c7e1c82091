// The kernels of attend_kernels.h in float32, for the Vec of the file that includes this one. Internal
// linkage.
//
// Prefill: K stands transposed, [dim][64], and V as it is, so scores and values are both products of a few
// query rows (broadcast one by one) with vectors of 64 columns: a block of kTileRows x kTileColumns vectors
// stays in registers. A row's sums run over the channels, then over the page's rows, in order: tiles never
// change a result.
#pragma once

#include <cstring>

#include "kernels/centre.h"
#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/dispatch_inl.h"

namespace butter::cpu {
namespace {

constexpr int64_t round_up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline void hide_scores(float* scores, uint64_t visible) {
  const Vec::F hidden = Vec::set(-__builtin_inff());
  for (int row = 0; row < kPageRows; row += Vec::kLanes)
    Vec::store(scores + row, Vec::choose(visible >> row, Vec::load(scores + row), hidden));
}

inline void multiply(float* values, int64_t count, float factor) {
  const Vec::F factors = Vec::set(factor);
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes)
    Vec::store(values + i, Vec::mul(factors, Vec::load(values + i)));
  for (; i < count; ++i) values[i] *= factor;
}

inline float exp2_of(float x) {
  alignas(64) float lanes[Vec::kLanes];
  Vec::store(lanes, Vec::exp2(Vec::set(x)));
  return lanes[0];
}

constexpr int kPageVectors = kPageRows / Vec::kLanes;

// The largest lanes of a row's scores; hidden ones become -inf.
inline Vec::F largest_scores(float* scores, uint64_t visible) {
  if (visible != ~uint64_t{0}) hide_scores(scores, visible);
  Vec::F highest = Vec::load(scores);
  for (int v = 1; v < kPageVectors; ++v) highest = Vec::max(highest, Vec::load(scores + v * Vec::kLanes));
  return highest;
}

// The maximum of a row's state follows that of a page.
inline void raise_max(float page_max, int dim, float* max, float* sum, float* acc) {
  if (!(page_max > *max)) return;
  const float factor = exp2_of(*max - page_max);
  *max = page_max;
  *sum *= factor;
  multiply(acc, dim, factor);
}

// Scores become weights; returns their sums.
inline Vec::F weigh_scores(float* scores, float max) {
  const Vec::F shift = Vec::set(max);
  Vec::F total = Vec::zero();
  for (int v = 0; v < kPageVectors; ++v) {
    const Vec::F weight = Vec::exp2(Vec::sub(Vec::load(scores + v * Vec::kLanes), shift));
    Vec::store(scores + v * Vec::kLanes, weight);
    total = Vec::add(total, weight);
  }
  return total;
}

// One row of soften().
inline void soften_row(float* scores, uint64_t visible, int dim, float* max, float* sum, float* acc) {
  raise_max(Vec::highest(largest_scores(scores, visible)), dim, max, sum, acc);
  *sum += Vec::sum(weigh_scores(scores, *max));
}

// Up to 4 rows, whose maxima and sums are found together.
template <int kHeads>
inline void soften_heads(float* scores, uint64_t visible, int dim, const SoftmaxState& state) {
  static_assert(kHeads <= 4);
  Vec::F lanes[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  alignas(16) float of_page[4];
  for (int h = 0; h < kHeads; ++h) lanes[h] = largest_scores(scores + h * kPageRows, visible);
  Vec::highest(lanes[0], lanes[1], lanes[2], lanes[3], of_page);
  for (int h = 0; h < kHeads; ++h)
    raise_max(of_page[h], dim, state.max + h, state.sum + h, state.acc + h * state.stride);
  for (int h = 0; h < kHeads; ++h) lanes[h] = weigh_scores(scores + h * kPageRows, state.max[h]);
  Vec::sums(lanes[0], lanes[1], lanes[2], lanes[3], of_page);
  for (int h = 0; h < kHeads; ++h) state.sum[h] += of_page[h];
}

void soften(float* scores, int heads, uint64_t visible, int dim, const SoftmaxState& state) {
  for_head_groups<Vec::kHeads>(heads, [&]<int kHeads>(int first) {
    soften_heads<kHeads>(
        scores + first * kPageRows, visible, dim,
        {state.max + first, state.sum + first, state.acc + first * state.stride, state.stride});
  });
}

constexpr int kMaxTurned = kHalves * max_exact_pairs(kMaxCentreDim);  // of a centre

// constants[h] = what the pairs that are not exact, and the channels that do not turn, add to every row of a
// page.
template <int kHeads>
inline void find_constants(const CentreScores& centre, const float* queries, float* constants) {
  Vec::F sums[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  int j = 0;
  for (; j + Vec::kLanes <= centre.pairs; j += Vec::kLanes) {
    const Vec::F cos = Vec::load(centre.page_cos + j), sin = Vec::load(centre.page_sin + j);
    for (int h = 0; h < kHeads; ++h) {
      const float* p = queries + h * centre.stride + j;
      sums[h] = Vec::fma(cos, Vec::load(p), sums[h]);
      sums[h] = Vec::fma(sin, Vec::load(p + centre.pairs), sums[h]);
    }
  }
  Vec::sums(sums[0], sums[1], sums[2], sums[3], constants);
  for (int h = 0; h < kHeads; ++h) {
    const float* p = queries + h * centre.stride;
    const float* q = p + centre.pairs;
    for (int rest = j; rest < centre.pairs; ++rest)
      constants[h] += centre.page_cos[rest] * p[rest] + centre.page_sin[rest] * q[rest];
    constants[h] += q[centre.pairs];
  }
}

// scores[row..] += terms, of the rows that are centred.
inline void add_to_centred(uint64_t centred, int row, const Vec::F& terms, float* scores) {
  Vec::store(scores + row, Vec::add_where(centred >> row, Vec::load(scores + row), terms));
}

// Rows i + 1/2.. on both sides of the middle of halves [half, half + kTogether): the turned queries, `along`
// and `across`, times the rows' cosines and sines.
template <int kHeads, int kTogether>
inline void add_mirrored(const CentreScores& centre, const float* constants, const float* along,
                         const float* across, int64_t stride, int half, int i, float* scores) {
  Vec::F even[kTogether][kHeads], odd[kTogether][kHeads];  // what a row and its mirror share, and what not
  for (int k = 0; k < kTogether; ++k) {
    for (int h = 0; h < kHeads; ++h) {
      even[k][h] = Vec::set(constants[h]);
      odd[k][h] = Vec::zero();
    }
  }
  for (int e = 0; e < centre.exact; ++e) {
    const Vec::F cos = Vec::load(centre.rows[e] + i), sin = Vec::load(centre.rows[e] + kPageRows + i);
    for (int k = 0; k < kTogether; ++k) {
      for (int h = 0; h < kHeads; ++h) {
        const int64_t at = h * stride + (half + k) * centre.exact + e;
        even[k][h] = Vec::fma(Vec::set(along[at]), cos, even[k][h]);
        odd[k][h] = Vec::fma(Vec::set(across[at]), sin, odd[k][h]);
      }
    }
  }
  const uint64_t centred = centre.centred;
  for (int k = 0; k < kTogether; ++k) {
    const int middle = (half + k) * kHalfRows + kHalfRows / 2;
    for (int h = 0; h < kHeads; ++h) {
      float* of_head = scores + h * kPageRows;
      add_to_centred(centred, middle + i, Vec::add(even[k][h], odd[k][h]), of_head);
      add_to_centred(centred, middle - i - Vec::kLanes, Vec::reverse(Vec::sub(even[k][h], odd[k][h])),
                     of_head);
    }
  }
}

// Scores of kHeads heads, which share the loads of the turn and of the rows' sines.
template <int kHeads>
inline void add_centre_heads(const CentreScores& centre, const float* queries, float* scores) {
  static_assert(kHeads <= 4);
  alignas(16) float constants[4];
  find_constants<kHeads>(centre, queries, constants);
  const int all = kHalves * centre.exact;
  // One head behind the other, without the holes that would make their lines meet in L1.
  const int64_t stride = round_up_to(all, Vec::kLanes);
  alignas(64) float along[kHeads * kMaxTurned], across[kHeads * kMaxTurned];
  for (int e = 0; e < all; e += Vec::kLanes) {
    const Vec::F cos = Vec::gather(centre.page_cos, centre.exact_pairs + e, all - e);
    const Vec::F sin = Vec::gather(centre.page_sin, centre.exact_pairs + e, all - e);
    for (int h = 0; h < kHeads; ++h) {
      const float* exact_p = queries + h * centre.stride + 2 * centre.pairs + 1 + e;
      const Vec::F p = Vec::load(exact_p), q = Vec::load(exact_p + all);
      Vec::store(along + h * stride + e, Vec::fma(cos, p, Vec::mul(sin, q)));
      Vec::store(across + h * stride + e, Vec::sub(Vec::mul(cos, q), Vec::mul(sin, p)));
    }
  }
  // As many halves at once as there are registers for.
  constexpr int kTogether = Vec::kLanes == 16 ? kHalves : 1;
  for (int i = 0; i < kHalfRows / 2; i += Vec::kLanes) {
    for (int k = 0; k < kHalves; k += kTogether)
      add_mirrored<kHeads, kTogether>(centre, constants, along, across, stride, k, i, scores);
  }
}

void add_centre(const CentreScores& centre, float* scores) {
  for_head_groups<Vec::kHeads>(centre.heads, [&]<int kHeads>(int first) {
    add_centre_heads<kHeads>(centre, centre.queries + first * centre.stride, scores + first * kPageRows);
  });
}

// [count][stride], stride a whole number of 16 values, padded with zeros.
void pack_padded(const float* rows, int count, int dim, std::byte* packed) {
  float* out = reinterpret_cast<float*>(packed);
  const int64_t stride = round_up_to(dim, 16);
  for (int row = 0; row < count; ++row, out += stride, rows += dim) {
    std::memcpy(out, rows, static_cast<size_t>(dim) * sizeof(float));
    for (int64_t i = dim; i < stride; ++i) out[i] = 0;
  }
}

void pack_queries_float(const float* rows, int count, int dim, std::byte* packed) {
  pack_padded(rows, count, dim, packed);
  const int64_t stride = round_up_to(dim, 16);
  const int64_t padded = round_up_to(count, Vec::kTileRows);
  float* out = reinterpret_cast<float*>(packed);
  for (int64_t i = count * stride; i < padded * stride; ++i) out[i] = 0;
}

void pack_values_float(const float* rows, int dim, std::byte* packed) {
  pack_padded(rows, kPageRows, dim, packed);
}

void pack_keys_float(const float* rows, int dim, std::byte* packed) {
  float* out = reinterpret_cast<float*>(packed);
  constexpr int kBlock = 8;  // rows whose lines stay in L1 while their columns are read
  for (int first = 0; first < kPageRows; first += kBlock) {
    for (int i = 0; i < dim; ++i) {
      for (int row = first; row < first + kBlock; ++row) out[i * kPageRows + row] = rows[row * dim + i];
    }
  }
}

// to [kTileRows][to_stride] = (kAdd ? to : 0) + a [kTileRows][a_stride] · b [depth][b_stride], kVectors wide.
template <int kVectors, bool kAdd>
inline void product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int depth, float* to,
                    int64_t to_stride) {
  Vec::F sums[Vec::kTileRows][kVectors];
  for (int r = 0; r < Vec::kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = kAdd ? Vec::load(to + r * to_stride + v * Vec::kLanes) : Vec::zero();
    }
  }
  for (int k = 0; k < depth; ++k, b += b_stride) {
    Vec::F columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = Vec::load(b + v * Vec::kLanes);
    for (int r = 0; r < Vec::kTileRows; ++r) {
      const Vec::F x = Vec::set(a[r * a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec::fma(x, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < Vec::kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Vec::store(to + r * to_stride + v * Vec::kLanes, sums[r][v]);
  }
}

template <bool kAdd>
inline void wide_product(const float* a, int64_t a_stride, const float* b, int64_t columns, int depth,
                         float* to, int64_t to_stride) {
  constexpr int kStep = Vec::kTileColumns * Vec::kLanes;
  int64_t at = 0;
  for (; at + kStep <= columns; at += kStep) {
    product<Vec::kTileColumns, kAdd>(a, a_stride, b + at, columns, depth, to + at, to_stride);
  }
  for (; at < columns; at += Vec::kLanes) {
    product<1, kAdd>(a, a_stride, b + at, columns, depth, to + at, to_stride);
  }
}

void attend_page_float(const PrefillBlock& block, int first, int end) {
  const float* queries = reinterpret_cast<const float*>(block.queries);
  const float* keys = reinterpret_cast<const float*>(block.keys);
  const float* values = reinterpret_cast<const float*>(block.values);
  float* scores = reinterpret_cast<float*>(block.scratch);
  const int64_t query_stride = round_up_to(block.key_dim, 16);
  const SoftmaxState& state = block.state;
  for (int tile = first / Vec::kTileRows * Vec::kTileRows; tile < end; tile += Vec::kTileRows) {
    wide_product<false>(queries + tile * query_stride, query_stride, keys, kPageRows, block.key_dim, scores,
                        kPageRows);
    for (int r = 0; r < Vec::kTileRows; ++r) {
      const int row = tile + r;
      soften_row(scores + r * kPageRows, block.visible[row], block.value_dim, state.max + row,
                 state.sum + row, state.acc + row * state.stride);
    }
    wide_product<true>(scores, kPageRows, values, state.stride, kPageRows, state.acc + tile * state.stride,
                       state.stride);
  }
}

constexpr AttendKernels kFloatKernels = {
    soften,          add_centre,        Vec::kTileRows,   pack_queries_float,
    pack_keys_float, pack_values_float, attend_page_float};

}  // namespace
}  // namespace butter::cpu
