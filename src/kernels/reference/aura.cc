// The aura formats: rows turned by H·S (kernels/rotation.h), coded by a trellis of 2, 3 or 4 bits
// (kernels/trellis.h) or as 8-bit integers, with one scale byte a row (kernels/scale_byte.h).
//
//   record = codes [64 rows][bits·dim/8 bytes], scales [64]          the page's exponent is in the tail
//   row    = scale · step · levels                                   in the rotated basis
//
// This is the exchange form, and what every other order of the bytes must mean.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/reference/formats.h"
#include "kernels/reference/trellis_encode.h"
#include "kernels/rotation.h"
#include "kernels/scale_byte.h"
#include "kernels/trellis.h"

namespace butter::reference {
namespace {

constexpr int kIntegerBits = 8;
constexpr float kLargestInteger = 127;

// Larger values are clamped, so that squares of norms are finite in float32 as well.
constexpr float kLargestValue = 0x1p56F;

int64_t code_bytes(const RowShape& shape) {
  return trellis_row_bytes(shape.bits, shape.dim);
}

const uint8_t* codes_of(const RowShape& shape, const std::byte* record, int row) {
  return reinterpret_cast<const uint8_t*>(record) + row * code_bytes(shape);
}

float step_of(const RowShape& shape) {
  return shape.bits == kIntegerBits ? 1 : trellis_table(shape.bits).step;
}

// The factor of a row's levels.
float factor_of(const RowShape& shape, const Record& record, int row) {
  const auto* scales = reinterpret_cast<const uint8_t*>(record.data) + kPageRows * code_bytes(shape);
  const int exponent = record.tail->exponent[static_cast<int>(shape.side)];
  return scale_value(scales[row], exponent) * step_of(shape);
}

// Calls use(channel, level) for every channel of a coded row.
template <typename Use>
void for_each_level(const RowShape& shape, const uint8_t* codes, const Use& use) {
  if (shape.bits == kIntegerBits) {
    for (int j = 0; j < shape.dim; ++j) use(j, static_cast<float>(static_cast<int8_t>(codes[j])));
    return;
  }
  const TrellisTable& table = trellis_table(shape.bits);
  TrellisReader reader(shape.bits, codes, shape.dim);
  for (int j = 0; j < shape.dim; ++j) {
    use(j, static_cast<float>(table.levels[static_cast<size_t>(reader.next())]));
  }
}

// --- encode

void turn_row(const RowShape& shape, const float* row, float* turned) {
  for (int j = 0; j < shape.dim; ++j) turned[j] = std::clamp(row[j], -kLargestValue, kLargestValue);
  rotate(shape.layer, shape.side, shape.dim, turned);
}

double squared_norm(const RowShape& shape, const float* row) {
  double sum = 0;
  for (int j = 0; j < shape.dim; ++j) sum += double{row[j]} * row[j];
  return sum;
}

// Where the encoder of a page works. It fits in encode_scratch_bytes(): dim · (4·64 + 4 + 1 + 16).
struct Workspace {
  Workspace(const RowShape& shape, std::byte* scratch)
      : turned(reinterpret_cast<float*>(scratch)),
        normalised(turned + kPageRows * shape.dim),
        symbols(reinterpret_cast<uint8_t*>(normalised + shape.dim)),
        trellis(reinterpret_cast<std::byte*>(symbols + shape.dim)) {}

  float* turned;      // [64][dim]
  float* normalised;  // [dim]
  uint8_t* symbols;   // [dim]
  std::byte* trellis;
};

// Codes a row y that is not zero: y·√dim/|y| by the trellis.
void code_by_trellis(const RowShape& shape, const float* y, double norm, const Workspace& work,
                     uint8_t* codes) {
  const TrellisTable& table = trellis_table(shape.bits);
  std::array<float, kTrellisStates> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(table.levels[i]) * table.step;
  const double factor = std::sqrt(double{1} * shape.dim) / norm;
  for (int j = 0; j < shape.dim; ++j) work.normalised[j] = static_cast<float>(y[j] * factor);
  trellis_encode(shape.bits, values.data(), work.normalised, shape.dim, work.symbols, work.trellis);
  pack_symbols(shape.bits, work.symbols, shape.dim, codes);
}

// The scale of a row y and its code c. |y|²/<y, c> is unbiased: attention averages over rows, where a bias
// costs more than variance. A row that the rotation maps onto few channels may have little in common with its
// code: then the norm alone is kept.
double unbiased_scale(const RowShape& shape, const float* y, double norm, const uint8_t* codes) {
  double product = 0, code_square = 0;
  for_each_level(shape, codes, [&](int j, float level) {
    product += double{y[j]} * level;
    code_square += double{level} * level;
  });
  product *= step_of(shape);
  const double code_norm = std::sqrt(code_square) * step_of(shape);
  if (product < 0.5 * norm * code_norm) return norm / code_norm;
  return norm * norm / product;
}

void encode_trellis(const RowShape& shape, const Workspace& work, uint8_t* codes, uint8_t* scales,
                    int8_t& exponent) {
  std::array<double, kPageRows> scale{};
  for (int row = 0; row < kPageRows; ++row) {
    const float* y = work.turned + row * shape.dim;
    uint8_t* row_codes = codes + row * code_bytes(shape);
    const double norm = std::sqrt(squared_norm(shape, y));
    if (norm == 0) {
      std::memset(row_codes, 0, static_cast<size_t>(code_bytes(shape)));
      continue;
    }
    code_by_trellis(shape, y, norm, work, row_codes);
    scale[static_cast<size_t>(row)] = unbiased_scale(shape, y, norm, row_codes);
  }
  exponent = scale_exponent(*std::max_element(scale.begin(), scale.end()), ScaleRounding::kNearest);
  for (size_t row = 0; row < kPageRows; ++row) {
    scales[row] = scale_byte(scale[row], exponent, ScaleRounding::kNearest);
  }
}

// The codes are made with the scale as it is stored, which was rounded up: none leaves the range.
void code_as_integers(const RowShape& shape, const float* y, float scale, uint8_t* codes) {
  for (int j = 0; j < shape.dim; ++j) {
    const float quotient = scale == 0 ? 0 : std::nearbyint(y[j] / scale);
    const float code = std::clamp(quotient, -kLargestInteger, kLargestInteger);
    codes[j] = static_cast<uint8_t>(static_cast<int8_t>(code));
  }
}

void encode_integers(const RowShape& shape, const Workspace& work, uint8_t* codes, uint8_t* scales,
                     int8_t& exponent) {
  std::array<float, kPageRows> scale{};
  for (int row = 0; row < kPageRows; ++row) {
    const float* y = work.turned + row * shape.dim;
    float largest = 0;
    for (int j = 0; j < shape.dim; ++j) largest = std::max(largest, std::abs(y[j]));
    scale[static_cast<size_t>(row)] = largest / kLargestInteger;
  }
  exponent = scale_exponent(*std::max_element(scale.begin(), scale.end()), ScaleRounding::kUp);
  for (int row = 0; row < kPageRows; ++row) {
    scales[row] = scale_byte(scale[static_cast<size_t>(row)], exponent, ScaleRounding::kUp);
    code_as_integers(shape, work.turned + row * shape.dim, scale_value(scales[row], exponent),
                     codes + row * code_bytes(shape));
  }
}

void encode(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
            std::byte* scratch) {
  const Workspace work(shape, scratch);
  for (int row = 0; row < kPageRows; ++row) {
    turn_row(shape, rows + row * shape.dim, work.turned + row * shape.dim);
  }
  auto* codes = reinterpret_cast<uint8_t*>(record);
  uint8_t* scales = codes + kPageRows * code_bytes(shape);
  int8_t& exponent = tail->exponent[static_cast<int>(shape.side)];
  if (shape.bits == kIntegerBits) {
    encode_integers(shape, work, codes, scales, exponent);
  } else {
    encode_trellis(shape, work, codes, scales, exponent);
  }
}

// --- read

void expand(const RowShape& shape, const Record& record, float* rows) {
  for (int row = 0; row < record.rows; ++row) {
    const float factor = factor_of(shape, record, row);
    float* out = rows + row * shape.dim;
    for_each_level(shape, codes_of(shape, record.data, row),
                   [&](int j, float level) { out[j] = factor * level; });
  }
}

void finish(const RowShape& shape, int heads, float* acc) {
  for (int head = 0; head < heads; ++head) {
    rotate_back(shape.layer, shape.side, shape.dim, acc + head * shape.dim);
  }
}

void turn(const RowShape& shape, int64_t count, float* rows) {
  for (int64_t row = 0; row < count; ++row) {
    rotate(shape.layer, shape.side, shape.dim, rows + row * shape.dim);
  }
}

void decode(const RowShape& shape, const Record& record, float* rows) {
  expand(shape, record, rows);
  finish(shape, record.rows, rows);
}

// --- attention on codes

int64_t prepared_bytes(const RowShape& shape, int heads) {
  return int64_t{heads} * shape.dim * static_cast<int64_t>(sizeof(float));
}

void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  auto* turned = reinterpret_cast<float*>(prepared);
  std::copy_n(queries, heads * shape.dim, turned);
  turn(shape, heads, turned);
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const auto* queries = reinterpret_cast<const float*>(prepared);
  for (int row = 0; row < record.rows; ++row) {
    for (int head = 0; head < heads; ++head) scores[head * kPageRows + row] = 0;
    for_each_level(shape, codes_of(shape, record.data, row), [&](int j, float level) {
      for (int head = 0; head < heads; ++head) {
        scores[head * kPageRows + row] += queries[head * shape.dim + j] * level;
      }
    });
    const float factor = factor_of(shape, record, row);
    for (int head = 0; head < heads; ++head) scores[head * kPageRows + row] *= factor;
  }
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  for (int row = 0; row < record.rows; ++row) {
    const float factor = factor_of(shape, record, row);
    for_each_level(shape, codes_of(shape, record.data, row), [&](int j, float level) {
      for (int head = 0; head < heads; ++head) {
        acc[head * shape.dim + j] += weights[head * kPageRows + row] * factor * level;
      }
    });
  }
}

}  // namespace

const RowCodec& aura_codec() {
  static const RowCodec codec = {encode,     decode, prepared_bytes, prepare, score,
                                 accumulate, finish, turn,           expand};
  return codec;
}

}  // namespace butter::reference
