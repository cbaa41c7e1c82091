// Aura records in plain C++, for files that are compiled for one instruction set or for none: internal
// linkage throughout. A row's codes are gathered, become int8 levels one by one (64 levels stay in L1), and
// meet the queries or the weights in loops that the compiler turns into vectors.
#pragma once

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

inline const uint8_t* scales_of(const RowShape& shape, const Record& record) {
  return reinterpret_cast<const uint8_t*>(record.data) + int64_t{kPageRows} * shape.bits * shape.dim / 8;
}

inline void prefetch_share(const Record& record, int step, int steps) {
  if (record.ahead == nullptr) return;
  const std::byte* const end = record.ahead + (step + 1) * record.ahead_bytes / steps;
  for (const std::byte* line = record.ahead + step * record.ahead_bytes / steps; line < end; line += 64) {
    __builtin_prefetch(line, 0, 2);
  }
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

// Turns the codes of one row into levels, a chunk at a time. The bytes of a chunk are gathered first, with
// the byte before them, so that a window never needs another chunk.
class RowReader {
 public:
  RowReader(const RowShape& shape, const std::byte* codes)
      : shape_(shape), codes_(codes), levels_(trellis_table(shape.bits).levels.data()) {}

  // Levels of channels [first, first + 64) or to the row's end; returns how many. `first` is a multiple
  // of 64.
  int read(int row, int first, int8_t* levels) const {
    const int count = shape_.dim - first < kChunk ? shape_.dim - first : kChunk;
    uint8_t bytes[40] = {};  // the byte before, 8 for each bit of a code, and room to read past them
    gather(row, first, count, bytes);
    for (int j = 0; j < count; ++j) {
      const int bit = shape_.bits * (j + 1) - kTrellisWindowBits + 8;
      const int window = (bytes[bit / 8] | bytes[bit / 8 + 1] << 8) >> bit % 8;
      levels[j] = levels_[window & (kTrellisStates - 1)];
    }
    return count;
  }

 private:
  void gather(int row, int first, int count, uint8_t* bytes) const {
    const int64_t row_bytes = int64_t{shape_.bits} * shape_.dim / 8;
    const int64_t begin = int64_t{shape_.bits} * first / 8, length = int64_t{shape_.bits} * count / 8;
    copy(row, begin == 0 ? row_bytes - 1 : begin - 1, 1, bytes);
    if (shape_.dim % kChunk != 0) return copy(row, begin, length, bytes + 1);
    const int64_t piece = shape_.side == Side::kKey ? 8 : 2;
    for (int64_t i = 0; i < length; i += piece) copy(row, begin + i, piece, bytes + 1 + i);
  }
  void copy(int row, int64_t byte, int64_t count, uint8_t* to) const {
    std::memcpy(to, codes_ + aura_code_offset(shape_, row, byte), static_cast<size_t>(count));
  }

  RowShape shape_;
  const std::byte* codes_;
  const int8_t* levels_;
};

inline int32_t dot(const int8_t* a, const int8_t* b, int count) {
  int32_t sum = 0;
  for (int j = 0; j < count; ++j) sum += int32_t{a[j]} * b[j];
  return sum;
}

void order_query(const RowShape& shape, const int8_t* natural, int8_t* ordered) {
  std::memcpy(ordered, natural, static_cast<size_t>(padded(shape.dim)));
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const RowReader reader(shape, record.data);
  const int64_t stride = static_cast<int64_t>(sizeof(AuraQuery)) + padded(shape.dim);
  const float unit_scale = page_scale(shape, record);
  float scales[kPageRows];
  row_scales(scales_of(shape, record), scales);
  for (int row = 0; row < kPageRows; ++row) {
    prefetch_share(record, row, kPageRows);
    for (int h = 0; h < heads; ++h) scores[h * kPageRows + row] = 0;
    for (int first = 0; first < shape.dim; first += kChunk) {
      alignas(64) int8_t levels[kChunk];
      const int count = reader.read(row, first, levels);
      for (int h = 0; h < heads; ++h) {
        const std::byte* values = prepared + h * stride + sizeof(AuraQuery) + first;
        // Whole numbers below 2^24: exact.
        scores[h * kPageRows + row] +=
            static_cast<float>(dot(levels, reinterpret_cast<const int8_t*>(values), count));
      }
    }
  }
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
  constexpr float kTiny = 1e-36F;  // weights below are nothing; its inverse is finite
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

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  constexpr int kHeads = 8;
  const RowReader reader(shape, record.data);
  const float unit_scale = page_scale(shape, record) * trellis_table(shape.bits).step;
  float scales[kPageRows];
  row_scales(scales_of(shape, record), scales);
  for (int begin = 0; begin < heads; begin += kHeads) {
    const int count = heads - begin < kHeads ? heads - begin : kHeads;
    uint8_t whole[kHeads][kPageRows];
    float factor[kHeads];
    for (int h = 0; h < count; ++h) {
      factor[h] = unit_scale * quantise_weights(weights + (begin + h) * kPageRows, scales, whole[h]);
    }
    for (int first = 0; first < shape.dim; first += kChunk) {
      int32_t sums[kHeads][kChunk] = {};
      int channels = 0;
      for (int row = 0; row < kPageRows; ++row) {
        if (begin == 0 && first == 0) prefetch_share(record, row, kPageRows);
        alignas(64) int8_t levels[kChunk] = {};
        channels = reader.read(row, first, levels);
        for (int h = 0; h < count; ++h) {
          const int32_t weight = whole[h][row];
          for (int j = 0; j < kChunk; ++j) sums[h][j] += weight * levels[j];
        }
      }
      for (int h = 0; h < count; ++h) {
        float* to = acc + (begin + h) * shape.dim + first;
        for (int i = 0; i < channels; ++i) {
          to[i] += factor[h] * static_cast<float>(sums[h][aura_value_channel(shape.bits, shape.dim, i)]);
        }
      }
    }
  }
}

void expand(const RowShape& shape, const Record& record, float* rows) {
  const RowReader reader(shape, record.data);
  const float unit_scale = page_scale(shape, record) * trellis_table(shape.bits).step;
  float scales[kPageRows];
  row_scales(scales_of(shape, record), scales);
  int place[kChunk];
  for (int i = 0; i < kChunk; ++i) {
    place[i] = shape.side == Side::kKey ? i : aura_value_channel(shape.bits, shape.dim, i);
  }
  for (int row = 0; row < kPageRows; ++row) {
    const float scale = unit_scale * scales[row];
    for (int first = 0; first < shape.dim; first += kChunk) {
      int8_t levels[kChunk];
      const int count = reader.read(row, first, levels);
      float* to = rows + int64_t{row} * shape.dim + first;
      for (int i = 0; i < count; ++i) to[i] = scale * levels[place[i]];
    }
  }
}

}  // namespace plain
}  // namespace
}  // namespace butter::cpu
