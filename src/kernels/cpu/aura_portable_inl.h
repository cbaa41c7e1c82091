// Aura records in plain C++, for files that are compiled for one instruction set or for none: internal
// linkage throughout. 64 channels of a page at a time: the codes are gathered row by row and become int8
// levels one by one, [64 rows][64] in L1, which meet the queries or the weights in loops that the compiler
// turns into vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/aura_kernels.h"
#include "kernels/cpu/aura_layout.h"
#include "kernels/trellis.h"

namespace butter::cpu {
namespace {
namespace plain {

constexpr int kChunk = 64;  // channels that are decoded at a time

inline int64_t padded(int dim) {
  return (int64_t{dim} + kChunk - 1) / kChunk * kChunk;
}

// 2^u of the record's side. (A normal float, whatever a damaged page says.)
inline float page_scale(const RowShape& shape, const Record& record) {
  const int exponent = record.tail->exponent[static_cast<int>(shape.side)];
  const uint32_t bits = static_cast<uint32_t>(exponent < -126 ? 1 : exponent + 127) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Scales of all rows, over 2^u, as kernels/scale_byte.h says: bytes 16e + m.
inline void row_scales(const uint8_t* bytes, float* scales) {
  for (int row = 0; row < kPageRows; ++row) {
    const uint32_t exponent = bytes[row] >> 4, mantissa = bytes[row] & 15;
    const uint32_t bits = (exponent == 0 ? 127 - 14 : exponent + 127 - 15) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    scales[row] = power * (exponent == 0 ? 0.0F : 1.0F) + power * static_cast<float>(mantissa) * 0.0625F;
  }
}

// 64 channels of a page, as levels. Those past a row's end are those of zero bits.
struct Levels {
  alignas(64) int8_t rows[kPageRows][kChunk];
};

template <int kBits>
void look_up(const uint8_t (*gathered)[kAuraGatheredBytes], Levels& levels) {
  const int8_t* table = trellis_table(kBits).levels.data();
  for (int row = 0; row < kPageRows; ++row) {
    for (int group = 0; group < kChunk / 8; ++group) {
      uint64_t bits;  // the byte before the group's, and its own
      std::memcpy(&bits, gathered[row] + kBits * group, sizeof bits);
      int8_t* to = levels.rows[row] + 8 * group;
      for (int j = 0; j < 8; ++j) {
        to[j] = table[bits >> (kBits * (j + 1) + 8 - kTrellisWindowBits) & (kTrellisStates - 1)];
      }
    }
  }
}

// Channels [first, first + 64); `first` is a multiple of 64.
inline void read_levels(const RowShape& shape, const std::byte* codes, int first, Levels& levels) {
  uint8_t gathered[kPageRows][kAuraGatheredBytes];
  aura_gather(shape, codes, first, gathered);
  if (shape.bits == 2) return look_up<2>(gathered, levels);
  if (shape.bits == 3) return look_up<3>(gathered, levels);
  look_up<4>(gathered, levels);
}

inline int32_t dot(const int8_t* a, const int8_t* b) {
  int32_t sum = 0;
  for (int j = 0; j < kChunk; ++j) sum += int32_t{a[j]} * b[j];
  return sum;
}

void order_query(const RowShape& shape, const int8_t* natural, int8_t* ordered) {
  std::memcpy(ordered, natural, static_cast<size_t>(padded(shape.dim)));
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const int64_t stride = static_cast<int64_t>(sizeof(AuraQuery)) + padded(shape.dim);
  std::fill(scores, scores + heads * kPageRows, 0.0F);
  for (int first = 0; first < shape.dim; first += kChunk) {
    Levels levels;
    read_levels(shape, aura_codes(record.data), first, levels);
    for (int row = 0; row < kPageRows; ++row) {
      for (int h = 0; h < heads; ++h) {
        const std::byte* values = prepared + h * stride + sizeof(AuraQuery) + first;
        // Whole numbers below 2^24: exact.
        scores[h * kPageRows + row] +=
            static_cast<float>(dot(levels.rows[row], reinterpret_cast<const int8_t*>(values)));
      }
    }
  }
  float scales[kPageRows];
  row_scales(aura_scales(record.data), scales);
  const float unit_scale = page_scale(shape, record);
  for (int h = 0; h < heads; ++h) {
    AuraQuery query;
    std::memcpy(&query, prepared + h * stride, sizeof query);
    const float factor = query.scale * unit_scale;
    for (int row = 0; row < kPageRows; ++row) scores[h * kPageRows + row] *= scales[row] * factor;
  }
}

// The weights of a head, times the row's scale, as whole numbers up to 255 of the page's largest. Returns
// what 1 is worth, over 2^u and the table's step.
inline float quantise_weights(const float* weights, const float* scales, uint8_t* whole) {
  // Weights below are nothing beside the 1 of the largest there is. Much smaller, and factors made of it
  // would be denormal, which costs more than the page.
  constexpr float kTiny = 1e-20F;
  float products[kPageRows], largest = kTiny;
  for (int row = 0; row < kPageRows; ++row) {
    products[row] = weights[row] * scales[row];
    largest = largest < products[row] ? products[row] : largest;
  }
  const float inverse = 255.0F / largest;
  for (int row = 0; row < kPageRows; ++row) {
    whole[row] = static_cast<uint8_t>(std::lrint(products[row] * inverse));
  }
  return largest * (1.0F / 255);
}

// Adds what one head's weights make of 64 channels. `channels` of them are the row's.
inline void add_weighted(const RowShape& shape, const Levels& levels, const uint8_t* weights, float factor,
                         int channels, float* acc) {
  int32_t sums[kChunk] = {};
  for (int row = 0; row < kPageRows; ++row) {
    const auto weight = static_cast<int16_t>(weights[row]);
    if (weight == 0) continue;
    // Products fit in 16 bits.
    for (int j = 0; j < kChunk; ++j) sums[j] += static_cast<int16_t>(weight * levels.rows[row][j]);
  }
  for (int i = 0; i < channels; ++i) {
    acc[i] += factor * static_cast<float>(sums[aura_value_channel(shape.bits, shape.dim, i)]);
  }
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  const float unit_scale = page_scale(shape, record) * trellis_table(shape.bits).step;
  float scales[kPageRows];
  row_scales(aura_scales(record.data), scales);
  for (int first = 0; first < shape.dim; first += kChunk) {
    Levels levels;
    read_levels(shape, aura_codes(record.data), first, levels);
    const int channels = shape.dim - first < kChunk ? shape.dim - first : kChunk;
    for (int h = 0; h < heads; ++h) {
      uint8_t whole[kPageRows];
      const float factor = unit_scale * quantise_weights(weights + h * kPageRows, scales, whole);
      add_weighted(shape, levels, whole, factor, channels, acc + h * shape.dim + first);
    }
  }
}

void expand(const RowShape& shape, const Record& record, float* rows) {
  const float unit_scale = page_scale(shape, record) * trellis_table(shape.bits).step;
  float scales[kPageRows];
  row_scales(aura_scales(record.data), scales);
  int place[kChunk];
  for (int i = 0; i < kChunk; ++i) {
    place[i] = shape.side == Side::kKey ? i : aura_value_channel(shape.bits, shape.dim, i);
  }
  for (int first = 0; first < shape.dim; first += kChunk) {
    Levels levels;
    read_levels(shape, aura_codes(record.data), first, levels);
    const int channels = shape.dim - first < kChunk ? shape.dim - first : kChunk;
    for (int row = 0; row < kPageRows; ++row) {
      const float scale = unit_scale * scales[row];
      float* to = rows + int64_t{row} * shape.dim + first;
      for (int i = 0; i < channels; ++i) to[i] = scale * levels.rows[row][place[i]];
    }
  }
}

}  // namespace plain
}  // namespace
}  // namespace butter::cpu
