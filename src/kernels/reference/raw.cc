// Raw rows: [64][dim] of the raw type, in natural order.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "kernels/reference/formats.h"

namespace butter::reference {
namespace {

float value_at(DType raw, const std::byte* rows, int64_t index) {
  if (raw == DType::kF32) {
    float value;
    std::memcpy(&value, rows + 4 * index, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, rows + 2 * index, sizeof bits);
  return raw == DType::kF16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

void put_value(DType raw, float value, std::byte* rows, int64_t index) {
  if (raw == DType::kF32) {
    std::memcpy(rows + 4 * index, &value, sizeof value);
    return;
  }
  const uint16_t bits = raw == DType::kF16 ? float_to_fp16(value) : float_to_bf16(value);
  std::memcpy(rows + 2 * index, &bits, sizeof bits);
}

void decode(const RowShape& shape, const Record& record, float* rows) {
  const int64_t count = int64_t{record.rows} * shape.dim;
  for (int64_t i = 0; i < count; ++i) rows[i] = value_at(shape.raw, record.data, i);
}

int64_t prepared_bytes(const RowShape& shape, int heads) {
  return int64_t{heads} * shape.dim * static_cast<int64_t>(sizeof(float));
}

void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  std::memcpy(prepared, queries, static_cast<size_t>(prepared_bytes(shape, heads)));
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const float* queries = reinterpret_cast<const float*>(prepared);
  for (int head = 0; head < heads; ++head) {
    for (int row = 0; row < record.rows; ++row) {
      float sum = 0;
      for (int i = 0; i < shape.dim; ++i) {
        sum += queries[int64_t{head} * shape.dim + i] *
               value_at(shape.raw, record.data, int64_t{row} * shape.dim + i);
      }
      scores[int64_t{head} * kPageRows + row] = sum;
    }
  }
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  for (int head = 0; head < heads; ++head) {
    for (int row = 0; row < record.rows; ++row) {
      const float weight = weights[int64_t{head} * kPageRows + row];
      if (weight == 0) continue;
      for (int i = 0; i < shape.dim; ++i) {
        acc[int64_t{head} * shape.dim + i] +=
            weight * value_at(shape.raw, record.data, int64_t{row} * shape.dim + i);
      }
    }
  }
}

// The raw format's basis is the model's.
void finish(const RowShape&, int, float*) {}
void turn(const RowShape&, int64_t, float*) {}

}  // namespace

void encode_raw(const RowShape& shape, const float* rows, std::byte* record, RecordTail*, std::byte*) {
  for (int64_t i = 0; i < int64_t{kPageRows} * shape.dim; ++i) put_value(shape.raw, rows[i], record, i);
}

const RowCodec& raw_codec() {
  static const RowCodec codec = {encode_raw, decode, prepared_bytes, prepare, score,
                                 accumulate, finish, turn,           decode};
  return codec;
}

}  // namespace butter::reference
