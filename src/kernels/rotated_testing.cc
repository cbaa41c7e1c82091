#include "kernels/rotated_testing.h"

#include <algorithm>

#include "kernels/reference/formats.h"
#include "kernels/rotation.h"

namespace butter {
namespace {

void turn(const RowShape& shape, int64_t count, float* rows) {
  for (int64_t row = 0; row < count; ++row)
    rotate(shape.layer, shape.side, shape.dim, rows + row * shape.dim);
}

void finish(const RowShape& shape, int heads, float* acc) {
  for (int64_t head = 0; head < heads; ++head)
    rotate_back(shape.layer, shape.side, shape.dim, acc + head * shape.dim);
}

// Once encoded, rows are like raw rows of float32.
RowShape stored(const RowShape& shape) {
  return {shape.dim, DType::kF32, shape.layer, shape.side};
}

void encode(const RowShape& shape, const float* from, std::byte* record, RecordTail*, std::byte*) {
  float* rows = reinterpret_cast<float*>(record);
  std::copy_n(from, int64_t{kPageRows} * shape.dim, rows);
  turn(shape, kPageRows, rows);
}

void expand(const RowShape& shape, const Record& record, float* rows) {
  reference::raw_codec().expand(stored(shape), record, rows);
}

void decode(const RowShape& shape, const Record& record, float* rows) {
  expand(shape, record, rows);
  finish(shape, record.rows, rows);
}

int64_t prepared_bytes(const RowShape& shape, int heads) {
  return reference::raw_codec().prepared_bytes(stored(shape), heads);
}

void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  reference::raw_codec().prepare(stored(shape), queries, heads, prepared);
  turn(shape, heads, reinterpret_cast<float*>(prepared));
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  reference::raw_codec().score(stored(shape), prepared, heads, record, scores);
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  reference::raw_codec().accumulate(stored(shape), weights, heads, record, acc);
}

constexpr RowCodec kCodec = {encode,     decode, prepared_bytes, prepare, score,
                             accumulate, finish, turn,           expand};

int64_t record_bytes(const RowShape& shape) {
  return raw_rows_bytes(stored(shape), kPageRows);
}
bool takes_dim(int dim) {
  return dim > 0 && dim % 8 == 0;
}
const RowCodec* codec_for(Isa) {
  return &kCodec;
}

constexpr RowFormat kFormat = {"rotated", true, false, 32, 0, record_bytes, takes_dim, &kCodec, codec_for};

}  // namespace

const RowFormat& rotated_format() {
  register_row_format(kFormat);
  return kFormat;
}

}  // namespace butter
