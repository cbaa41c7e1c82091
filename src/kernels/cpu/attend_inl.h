// The kernels of attend_kernels.h in float32, for the Vec of the file that includes this one. Internal
// linkage.
//
// Prefill: K stands transposed, [dim][64], and V as it is, so scores and values are both products of a few
// query rows (broadcast one by one) with vectors of 64 columns: a block of kTileRows x kTileColumns vectors
// stays in registers. A row's sums run over the channels, then over the page's rows, in order: tiles never
// change a result.
#pragma once

#include <cstring>

#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/dispatch_inl.h"

namespace butter::cpu {
namespace {

constexpr int64_t round_up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline void hide_scores(float* scores, uint64_t visible) {
  for (uint64_t hidden = ~visible; hidden != 0; hidden &= hidden - 1) {
    scores[__builtin_ctzll(hidden)] = -__builtin_inff();
  }
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

// One row of soften(). Returns false where it sees nothing and has seen nothing new.
inline void soften_row(float* scores, uint64_t visible, int dim, float* max, float* sum, float* acc) {
  constexpr int kVectors = kPageRows / Vec::kLanes;
  if (visible != ~uint64_t{0}) hide_scores(scores, visible);
  Vec::F highest = Vec::load(scores);
  for (int v = 1; v < kVectors; ++v) highest = Vec::max(highest, Vec::load(scores + v * Vec::kLanes));
  const float page_max = Vec::highest(highest);
  if (page_max > *max) {
    const float factor = exp2_of(*max - page_max);
    *max = page_max;
    *sum *= factor;
    multiply(acc, dim, factor);
  }
  const Vec::F shift = Vec::set(*max);
  Vec::F total = Vec::zero();
  for (int v = 0; v < kVectors; ++v) {
    const Vec::F weight = Vec::exp2(Vec::sub(Vec::load(scores + v * Vec::kLanes), shift));
    Vec::store(scores + v * Vec::kLanes, weight);
    total = Vec::add(total, weight);
  }
  *sum += Vec::sum(total);
}

void soften(float* scores, int heads, uint64_t visible, int dim, const SoftmaxState& state) {
  for (int h = 0; h < heads; ++h) {
    soften_row(scores + h * kPageRows, visible, dim, state.max + h, state.sum + h,
               state.acc + h * state.stride);
  }
}

constexpr int kMaxExact = 128;  // exact pairs of a centre

// The turn of a page for a centre's exact pairs, padded with zeros.
struct ExactTurn {
  alignas(64) float cos[kMaxExact + Vec::kLanes];
  alignas(64) float sin[kMaxExact + Vec::kLanes];

  explicit ExactTurn(const CentreScores& centre) {
    for (int e = 0; e < centre.exact; ++e) {
      cos[e] = centre.page_cos[centre.exact_pairs[e]];
      sin[e] = centre.page_sin[centre.exact_pairs[e]];
    }
    for (int e = centre.exact; e % Vec::kLanes != 0; ++e) cos[e] = sin[e] = 0;
  }
};

// What the pairs that are not exact, and the channels that do not turn, add to every row of a page.
inline float constant_of(const CentreScores& centre, const float* query) {
  const float* p = query;
  const float* q = query + centre.pairs;
  Vec::F sums = Vec::zero();
  int j = 0;
  for (; j + Vec::kLanes <= centre.pairs; j += Vec::kLanes) {
    sums = Vec::fma(Vec::load(centre.page_cos + j), Vec::load(p + j), sums);
    sums = Vec::fma(Vec::load(centre.page_sin + j), Vec::load(q + j), sums);
  }
  float constant = q[centre.pairs] + Vec::sum(sums);
  for (; j < centre.pairs; ++j) constant += centre.page_cos[j] * p[j] + centre.page_sin[j] * q[j];
  return constant;
}

// Scores of kHeads heads, which share the loads of the rows' sines.
template <int kHeads>
inline void add_centre_heads(const CentreScores& centre, const ExactTurn& turn, const float* queries,
                             float* scores) {
  alignas(64) float along[kHeads][kMaxExact + Vec::kLanes], across[kHeads][kMaxExact + Vec::kLanes];
  float constants[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    const float* query = queries + h * centre.stride;
    constants[h] = constant_of(centre, query);
    const float* exact_p = query + 2 * centre.pairs + 1;
    const float* exact_q = exact_p + centre.exact;
    for (int e = 0; e < centre.exact; e += Vec::kLanes) {
      const Vec::F p = Vec::load(exact_p + e), q = Vec::load(exact_q + e);
      const Vec::F cos = Vec::load(turn.cos + e), sin = Vec::load(turn.sin + e);
      Vec::store(along[h] + e, Vec::fma(cos, p, Vec::mul(sin, q)));
      Vec::store(across[h] + e, Vec::sub(Vec::mul(cos, q), Vec::mul(sin, p)));
    }
  }
  constexpr int kVectors = 4;
  for (int row = 0; row < kPageRows; row += kVectors * Vec::kLanes) {
    Vec::F terms[kHeads][kVectors];
    for (int h = 0; h < kHeads; ++h) {
      for (Vec::F& term : terms[h]) term = Vec::set(constants[h]);
    }
    for (int e = 0; e < centre.exact; ++e) {
      const float* cos = centre.rows[e] + row;
      Vec::F a[kHeads], b[kHeads];
      for (int h = 0; h < kHeads; ++h) {
        a[h] = Vec::set(along[h][e]);
        b[h] = Vec::set(across[h][e]);
      }
      for (int v = 0; v < kVectors; ++v) {
        const Vec::F c = Vec::load(cos + v * Vec::kLanes), s = Vec::load(cos + kPageRows + v * Vec::kLanes);
        for (int h = 0; h < kHeads; ++h) terms[h][v] = Vec::fma(b[h], s, Vec::fma(a[h], c, terms[h][v]));
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      for (int v = 0; v < kVectors; ++v) {
        const int at = row + v * Vec::kLanes;
        float* score = scores + h * kPageRows + at;
        Vec::store(score, Vec::add_where(centre.centred >> at, Vec::load(score), terms[h][v]));
      }
    }
  }
}

void add_centre(const CentreScores& centre, float* scores) {
  const ExactTurn turn(centre);
  for_head_groups<Vec::kHeads>(centre.heads, [&]<int kHeads>(int first) {
    add_centre_heads<kHeads>(centre, turn, centre.queries + first * centre.stride,
                             scores + first * kPageRows);
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
