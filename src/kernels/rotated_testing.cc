#include "kernels/rotated_testing.h"

#include <cmath>
#include <vector>

#include "kernels/reference/formats.h"

namespace butter {
namespace {

uint64_t splitmix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The sign of channel j is the top bit of the j-th number: 1 is minus. The same for all heads of a layer and
// side.
void apply_signs(const RowShape& shape, float* row) {
  uint64_t state = 2 * static_cast<uint64_t>(shape.layer) + (shape.side == Side::kValue ? 1 : 0);
  for (int j = 0; j < shape.dim; ++j) {
    if (splitmix64(state) >> 63) row[j] = -row[j];
  }
}

// The largest power of two that divides the width: H is a Sylvester matrix of that size, repeated.
int block_of(int dim) {
  return dim & -dim;
}

void apply_hadamard(int dim, float* row) {
  const int block = block_of(dim);
  for (int first = 0; first < dim; first += block) {
    for (int half = 1; half < block; half *= 2) {
      for (int i = 0; i < block; i += 2 * half) {
        for (int j = first + i; j < first + i + half; ++j) {
          const float a = row[j], b = row[j + half];
          row[j] = a + b;
          row[j + half] = a - b;
        }
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (int i = 0; i < dim; ++i) row[i] *= scale;
}

void turn(const RowShape& shape, int64_t count, float* rows) {
  for (int64_t row = 0; row < count; ++row) {
    apply_signs(shape, rows + row * shape.dim);
    apply_hadamard(shape.dim, rows + row * shape.dim);
  }
}

// H is its own inverse, and so is S.
void finish(const RowShape& shape, int heads, float* acc) {
  for (int64_t head = 0; head < heads; ++head) {
    apply_hadamard(shape.dim, acc + head * shape.dim);
    apply_signs(shape, acc + head * shape.dim);
  }
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
  return dim > 0 && block_of(dim) >= 8;
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
