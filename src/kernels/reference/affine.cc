// The affine formats: x = s·q + m with 4, 6 or 8 bits a code, s and m for every group of channels of a row.
//
//   record = q [64 rows][bits·dim/8 bytes], s [groups][64 rows], m [groups][64 rows]
//
// q of a row is a little-endian bit string: code j is bits [bits·j, bits·(j+1)). s and m are fp16. The last
// group of a row may be shorter. The basis is the model's own.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "kernels/reference/formats.h"

namespace butter::reference {
namespace {

constexpr float kLargestFp16 = 65504;

int groups_of(const RowShape& shape) {
  return (shape.dim + shape.group - 1) / shape.group;
}
int64_t code_bytes(const RowShape& shape) {
  return (int64_t{shape.bits} * shape.dim + 7) / 8;
}

// The channels [first, end) of a group.
struct Channels {
  int first, end;
};
Channels channels_of(const RowShape& shape, int group) {
  return {group * shape.group, std::min((group + 1) * shape.group, shape.dim)};
}

// Where s (plane 0) or m (plane 1) of a row's group stands in a record.
int64_t plane_offset(const RowShape& shape, int plane, int group, int row) {
  const int64_t index = (int64_t{plane} * groups_of(shape) + group) * kPageRows + row;
  return kPageRows * code_bytes(shape) + 2 * index;
}

struct Pair {
  float s, m;
};

Pair pair_of(const RowShape& shape, const std::byte* record, int group, int row) {
  uint16_t s, m;
  std::memcpy(&s, record + plane_offset(shape, 0, group, row), sizeof s);
  std::memcpy(&m, record + plane_offset(shape, 1, group, row), sizeof m);
  return {fp16_to_float(s), fp16_to_float(m)};
}

// Code j of a row. A code of 6 bits may lie in two bytes.
int code_at(const RowShape& shape, const std::byte* record, int row, int j) {
  const auto* codes = reinterpret_cast<const uint8_t*>(record) + row * code_bytes(shape);
  const int bit = shape.bits * j;
  int pair = codes[bit / 8];
  if (bit % 8 + shape.bits > 8) pair |= codes[bit / 8 + 1] << 8;
  return pair >> (bit % 8) & ((1 << shape.bits) - 1);
}

// Into bytes that were zero.
void put_code(const RowShape& shape, std::byte* record, int row, int j, int code) {
  auto* codes = reinterpret_cast<uint8_t*>(record) + row * code_bytes(shape);
  const int bit = shape.bits * j;
  const int pair = code << (bit % 8);
  codes[bit / 8] |= static_cast<uint8_t>(pair);
  if (bit % 8 + shape.bits > 8) codes[bit / 8 + 1] |= static_cast<uint8_t>(pair >> 8);
}

// --- encode

// To fp16, and at its ends where the value is beyond them.
uint16_t clamped_fp16(float value) {
  return float_to_fp16(std::clamp(value, -kLargestFp16, kLargestFp16));
}

// The codes are made from s and m as they are stored.
void encode_group(const RowShape& shape, const float* x, int group, int row, std::byte* record) {
  const auto [first, end] = channels_of(shape, group);
  const auto [low, high] = std::minmax_element(x + first, x + end);
  const float largest_code = static_cast<float>((1 << shape.bits) - 1);
  const uint16_t s = clamped_fp16((*high - *low) / largest_code);
  const uint16_t m = clamped_fp16(*low + 0.0F);  // one zero: which of two is the lowest must not matter
  std::memcpy(record + plane_offset(shape, 0, group, row), &s, sizeof s);
  std::memcpy(record + plane_offset(shape, 1, group, row), &m, sizeof m);
  const Pair pair = pair_of(shape, record, group, row);
  for (int j = first; j < end; ++j) {
    const float quotient = pair.s == 0 ? 0 : std::nearbyint((x[j] - pair.m) / pair.s);
    put_code(shape, record, row, j, static_cast<int>(std::clamp(quotient, 0.0F, largest_code)));
  }
}

void encode(const RowShape& shape, const float* rows, std::byte* record, RecordTail*, std::byte*) {
  std::memset(record, 0, static_cast<size_t>(kPageRows * code_bytes(shape)));
  for (int row = 0; row < kPageRows; ++row) {
    for (int group = 0; group < groups_of(shape); ++group) {
      encode_group(shape, rows + row * shape.dim, group, row, record);
    }
  }
}

// --- read

void expand(const RowShape& shape, const Record& record, float* rows) {
  for (int row = 0; row < record.rows; ++row) {
    for (int group = 0; group < groups_of(shape); ++group) {
      const Pair pair = pair_of(shape, record.data, group, row);
      const auto [first, end] = channels_of(shape, group);
      for (int j = first; j < end; ++j) {
        rows[row * shape.dim + j] = pair.s * static_cast<float>(code_at(shape, record.data, row, j)) + pair.m;
      }
    }
  }
}

void finish(const RowShape&, int, float*) {}
void turn(const RowShape&, int64_t, float*) {}

// --- attention on codes: q·x = Σ over groups of s·(Σ q̂·q) + m·(Σ q̂), with q̂ the query

// queries [heads][dim], then the sum of each of their groups [heads][groups].
int64_t prepared_bytes(const RowShape& shape, int heads) {
  return int64_t{heads} * (shape.dim + groups_of(shape)) * static_cast<int64_t>(sizeof(float));
}

void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  auto* copy = reinterpret_cast<float*>(prepared);
  float* sums = std::copy_n(queries, heads * shape.dim, copy);
  for (int head = 0; head < heads; ++head) {
    for (int group = 0; group < groups_of(shape); ++group) {
      const auto [first, end] = channels_of(shape, group);
      float sum = 0;
      for (int j = first; j < end; ++j) sum += queries[head * shape.dim + j];
      sums[head * groups_of(shape) + group] = sum;
    }
  }
}

float code_product(const RowShape& shape, const float* query, const std::byte* record, int group, int row) {
  const auto [first, end] = channels_of(shape, group);
  float sum = 0;
  for (int j = first; j < end; ++j) sum += query[j] * static_cast<float>(code_at(shape, record, row, j));
  return sum;
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const auto* queries = reinterpret_cast<const float*>(prepared);
  const float* sums = queries + heads * shape.dim;
  for (int head = 0; head < heads; ++head) {
    for (int row = 0; row < record.rows; ++row) {
      float total = 0;
      for (int group = 0; group < groups_of(shape); ++group) {
        const Pair pair = pair_of(shape, record.data, group, row);
        total += pair.s * code_product(shape, queries + head * shape.dim, record.data, group, row);
        total += pair.m * sums[head * groups_of(shape) + group];
      }
      scores[head * kPageRows + row] = total;
    }
  }
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  for (int row = 0; row < record.rows; ++row) {
    for (int group = 0; group < groups_of(shape); ++group) {
      const Pair pair = pair_of(shape, record.data, group, row);
      const auto [first, end] = channels_of(shape, group);
      for (int j = first; j < end; ++j) {
        const float value = pair.s * static_cast<float>(code_at(shape, record.data, row, j)) + pair.m;
        for (int head = 0; head < heads; ++head) {
          acc[head * shape.dim + j] += weights[head * kPageRows + row] * value;
        }
      }
    }
  }
}

}  // namespace

const RowCodec& affine_codec() {
  static const RowCodec codec = {encode,     expand, prepared_bytes, prepare, score,
                                 accumulate, finish, turn,           expand};
  return codec;
}

}  // namespace butter::reference
