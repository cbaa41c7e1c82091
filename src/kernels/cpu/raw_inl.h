// The raw codec, for the Vec of the file that includes this one. Internal linkage throughout.
//
// A page's K rows are read once for up to Vec::kHeads query heads: 4 rows at a time, a running vector for
// each (row, head), 4 of which add up into 4 scores. V rows likewise: a piece of the accumulators (kHeads
// heads x kColumns vectors) stays in registers while all rows pass. d 64, 3 heads, AVX-512, a row: 4 + 4
// loads that convert, 12 + 12 FMA, 10 shuffles.
//
// Lines are fetched ahead (ahead.h). Two threads, a cache of 755 MB (d 64, 3 heads): 17.6 GB/s without, 23
// with, of the 33 of a plain loop.
#pragma once

#include <cstring>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/dispatch_inl.h"
#include "kernels/reference/formats.h"
#include "kernels/row_format.h"

namespace butter::cpu {
namespace {

template <DType kType>
constexpr int kValueBytes = kType == DType::kF32 ? 4 : 2;

template <DType kType>
inline Vec::F load_values(const std::byte* from) {
  if constexpr (kType == DType::kF16) return Vec::load_f16(from);
  if constexpr (kType == DType::kBF16) return Vec::load_bf16(from);
  if constexpr (kType == DType::kF32) return Vec::load(reinterpret_cast<const float*>(from));
}

// The same, with the line ahead: of vector `at` of values of which the first stands on a line's edge.
template <DType kType>
inline __attribute__((always_inline)) Vec::F load_ahead(const std::byte* from, int at) {
  if (at * kValueBytes<kType> % kLineBytes == 0) fetch_ahead(from);
  return load_values<kType>(from);
}

// The last `count` values of a row whose width is no whole number of vectors, then zeros.
template <DType kType>
inline Vec::F load_some(const std::byte* from, int count) {
  alignas(64) std::byte bytes[Vec::kLanes * sizeof(float)] = {};
  std::memcpy(bytes, from, static_cast<size_t>(count * kValueBytes<kType>));
  return load_values<kType>(bytes);
}

template <DType kType, int kHeads>
inline __attribute__((always_inline)) void score_heads(int dim, const float* queries, const Record& record,
                                                       float* scores) {
  constexpr int kRows = 4;
  const int64_t row_bytes = int64_t{dim} * kValueBytes<kType>;
  const int whole = dim / Vec::kLanes * Vec::kLanes;
  for (int row = 0; row < record.rows; row += kRows) {
    const std::byte* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      rows[r] = record.data + (row + r < record.rows ? row + r : record.rows - 1) * row_bytes;
    }
    Vec::F sums[kRows][kHeads];
    for (auto& row_sums : sums) {
      for (Vec::F& sum : row_sums) sum = Vec::zero();
    }
    const auto add = [&](int first, int count, int i) __attribute__((always_inline)) {
      Vec::F key[kRows];
      for (int r = 0; r < count; ++r) key[r] = load_ahead<kType>(rows[first + r] + i * kValueBytes<kType>, i);
      for (int h = 0; h < kHeads; ++h) {
        const Vec::F query = Vec::load(queries + h * dim + i);
        for (int r = 0; r < count; ++r) sums[first + r][h] = Vec::fma(query, key[r], sums[first + r][h]);
      }
    };
    if (whole <= 4 * Vec::kLanes) {  // row by row, in the order of memory
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < whole; i += Vec::kLanes) add(r, 1, i);
      }
    } else {  // all rows at once: a row's own sums would wait for one another
      for (int i = 0; i < whole; i += Vec::kLanes) add(0, kRows, i);
    }
    if (whole < dim) {
      for (int h = 0; h < kHeads; ++h) {
        const std::byte* tail = reinterpret_cast<const std::byte*>(queries + h * dim + whole);
        const Vec::F query = load_some<DType::kF32>(tail, dim - whole);
        for (int r = 0; r < kRows; ++r) {
          const Vec::F key = load_some<kType>(rows[r] + whole * kValueBytes<kType>, dim - whole);
          sums[r][h] = Vec::fma(query, key, sums[r][h]);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      Vec::sums(sums[0][h], sums[1][h], sums[2][h], sums[3][h], scores + h * kPageRows + row);
    }
  }
}

// Rows of a record that any of the heads gives a weight, as bits. (Weights are 0 or more: their sum tells.)
template <int kHeads>
inline uint64_t weighted_rows(const float* weights) {
  uint64_t bits = 0;
  for (int row = 0; row < kPageRows; row += Vec::kLanes) {
    Vec::F sum = Vec::load(weights + row);
    for (int h = 1; h < kHeads; ++h) sum = Vec::add(sum, Vec::load(weights + h * kPageRows + row));
    bits |= Vec::nonzero(sum) << row;
  }
  return bits;
}

// The record ahead is fetched where all rows are visible, which is nearly always.
// acc [kHeads][dim], kColumns vectors of it from `acc` on; `first` points at the same column of row 0.
template <DType kType, int kHeads, int kColumns>
inline void accumulate_columns(int dim, const float* weights, uint64_t visible, const std::byte* first,
                               float* acc) {
  const int64_t row_bytes = int64_t{dim} * kValueBytes<kType>;
  Vec::F sums[kHeads][kColumns];
  for (int h = 0; h < kHeads; ++h) {
    for (int c = 0; c < kColumns; ++c) sums[h][c] = Vec::load(acc + h * dim + c * Vec::kLanes);
  }
  const auto add_row = [&](int row) __attribute__((always_inline)) {
    const std::byte* value = first + row * row_bytes;
    Vec::F values[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      values[c] = load_ahead<kType>(value + c * Vec::kLanes * kValueBytes<kType>, c * Vec::kLanes);
    }
    for (int h = 0; h < kHeads; ++h) {
      const Vec::F weight = Vec::set(weights[h * kPageRows + row]);
      for (int c = 0; c < kColumns; ++c) sums[h][c] = Vec::fma(weight, values[c], sums[h][c]);
    }
  };
  if (visible == ~uint64_t{0}) {
    for (int row = 0; row < kPageRows; ++row) {
      add_row(row);
    }
  } else {
    for (; visible != 0; visible &= visible - 1) add_row(__builtin_ctzll(visible));
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int c = 0; c < kColumns; ++c) Vec::store(acc + h * dim + c * Vec::kLanes, sums[h][c]);
  }
}

template <DType kType, int kHeads>
void accumulate_heads(int dim, const float* weights, const Record& record, float* acc) {
  const uint64_t visible = weighted_rows<kHeads>(weights);
  int column = 0;
  const auto step = [&]<int kColumns>() __attribute__((always_inline)) {
    for (; column + kColumns * Vec::kLanes <= dim; column += kColumns * Vec::kLanes) {
      accumulate_columns<kType, kHeads, kColumns>(dim, weights, visible,
                                                  record.data + column * kValueBytes<kType>, acc + column);
    }
  };
  step.template operator()<Vec::kColumns>();
  step.template operator()<Vec::kColumns / 2>();
  step.template operator()<1>();
  if (column == dim) return;
  for (; column < dim; ++column) {
    for (uint64_t rows = visible; rows != 0; rows &= rows - 1) {
      const int row = __builtin_ctzll(rows);
      alignas(64) float value[Vec::kLanes];
      Vec::store(value,
                 load_some<kType>(record.data + (int64_t{row} * dim + column) * kValueBytes<kType>, 1));
      for (int h = 0; h < kHeads; ++h) acc[h * dim + column] += weights[h * kPageRows + row] * value[0];
    }
  }
}

template <DType kType>
void score_as(const RowShape& shape, const float* queries, int heads, const Record& record, float* scores) {
  for_head_groups<Vec::kHeads>(heads, [&]<int kHeads>(int first) {
    const float* group = queries + first * shape.dim;
    float* out = scores + first * kPageRows;
    // The usual widths as constants, so that their loops are unrolled.
    switch (shape.dim) {
      case 64:
        score_heads<kType, kHeads>(64, group, record, out);
        break;
      case 128:
        score_heads<kType, kHeads>(128, group, record, out);
        break;
      default:
        score_heads<kType, kHeads>(shape.dim, group, record, out);
    }
  });
}

template <DType kType>
void accumulate_as(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  for_head_groups<Vec::kHeads>(heads, [&]<int kHeads>(int first) {
    const float* group = weights + first * kPageRows;
    float* out = acc + first * shape.dim;
    accumulate_heads<kType, kHeads>(shape.dim, group, record, out);
  });
}

template <DType kType>
void expand_as(int64_t count, const std::byte* from, float* to) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes)
    Vec::store(to + i, load_values<kType>(from + i * kValueBytes<kType>));
  if (i == count) return;
  alignas(64) float tail[Vec::kLanes];
  Vec::store(tail, load_some<kType>(from + i * kValueBytes<kType>, static_cast<int>(count - i)));
  std::memcpy(to + i, tail, static_cast<size_t>(count - i) * sizeof(float));
}

int64_t raw_prepared_bytes(const RowShape& shape, int heads) {
  return int64_t{heads} * shape.dim * static_cast<int64_t>(sizeof(float));
}

void raw_prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  std::memcpy(prepared, queries, static_cast<size_t>(raw_prepared_bytes(shape, heads)));
}

void raw_score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
               float* scores) {
  const float* queries = reinterpret_cast<const float*>(prepared);
  if (shape.raw == DType::kF16) return score_as<DType::kF16>(shape, queries, heads, record, scores);
  if (shape.raw == DType::kBF16) return score_as<DType::kBF16>(shape, queries, heads, record, scores);
  score_as<DType::kF32>(shape, queries, heads, record, scores);
}

void raw_accumulate(const RowShape& shape, const float* weights, int heads, const Record& record,
                    float* acc) {
  if (shape.raw == DType::kF16) return accumulate_as<DType::kF16>(shape, weights, heads, record, acc);
  if (shape.raw == DType::kBF16) return accumulate_as<DType::kBF16>(shape, weights, heads, record, acc);
  accumulate_as<DType::kF32>(shape, weights, heads, record, acc);
}

void raw_expand(const RowShape& shape, const Record& record, float* rows) {
  const int64_t count = int64_t{record.rows} * shape.dim;
  if (shape.raw == DType::kF16) return expand_as<DType::kF16>(count, record.data, rows);
  if (shape.raw == DType::kBF16) return expand_as<DType::kBF16>(count, record.data, rows);
  expand_as<DType::kF32>(count, record.data, rows);
}

// The raw format's basis is the model's.
void raw_finish(const RowShape&, int, float*) {}
void raw_turn(const RowShape&, int64_t, float*) {}

constexpr RowCodec kRawCodec = {reference::encode_raw, raw_expand, raw_prepared_bytes, raw_prepare, raw_score,
                                raw_accumulate,        raw_finish, raw_turn,           raw_expand};

}  // namespace
}  // namespace butter::cpu
