// The sealing of aura pages against the reference codec, for every instruction set that this machine has.
#include "kernels/cpu/aura_seal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <random>
#include <vector>

#include "core/buffer.h"
#include "kernels/reference/formats.h"
#include "kernels/rotation.h"
#include "kernels/scale_byte.h"
#include "kernels/trellis.h"

namespace butter {
namespace {

constexpr int kDims[] = {32, 64, 80, 96, 112, 128, 192, 256};
constexpr int kOddDims[] = {8, 12, 16, 20, 24, 28, 40, 72, 104, 144, 512, 576};
constexpr int kAllBits[] = {2, 3, 4};

RowShape make_shape(int bits, int dim, Side side = Side::kKey) {
  RowShape shape;
  shape.dim = dim;
  shape.layer = 5;
  shape.side = side;
  shape.bits = bits;
  return shape;
}

// Box and Muller's normal numbers: the same with every standard library.
std::vector<float> normal_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log((random() + 1.0) / 4294967297.0));
    value = static_cast<float>(radius * std::cos(2 * std::numbers::pi * random() / 4294967296.0));
  }
  return values;
}

struct Page {
  std::vector<std::byte> record;
  RecordTail tail;

  Record view() const { return {record.data(), kPageRows, &tail}; }
  const uint8_t* codes() const { return reinterpret_cast<const uint8_t*>(record.data()); }
};

using Encode = void (*)(Isa isa, const RowShape& shape, const float* rows, std::byte* record,
                        RecordTail* tail, std::byte* scratch);

void reference_encode(Isa, const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                      std::byte* scratch) {
  reference::aura_codec().encode(shape, rows, record, tail, scratch);
}

// Encodes a page. What lies behind the record and the scratch must be left alone.
Page encode(Encode encoder, Isa isa, const RowShape& shape, const float* rows) {
  constexpr int64_t kGuard = 64;
  const int64_t record_bytes = kPageRows * (trellis_row_bytes(shape.bits, shape.dim) + 1);
  const int64_t scratch_bytes = encoder == cpu::aura_encode ? cpu::aura_encode_scratch_bytes(shape.dim)
                                                            : encode_scratch_bytes(shape.dim);
  Page page;
  page.record.assign(static_cast<size_t>(record_bytes + kGuard), std::byte{0x5a});
  Buffer scratch = Buffer::allocate(scratch_bytes + kGuard).value();
  std::memset(scratch.data(), 0xa5, static_cast<size_t>(scratch.bytes()));
  encoder(isa, shape, rows, page.record.data(), &page.tail, scratch.data());
  for (int64_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(page.record[static_cast<size_t>(record_bytes + i)], std::byte{0x5a});
    EXPECT_EQ(scratch.data()[scratch_bytes + i], std::byte{0xa5});
  }
  page.record.resize(static_cast<size_t>(record_bytes));
  return page;
}

std::vector<float> decoded(const RowShape& shape, const Page& page) {
  std::vector<float> rows(static_cast<size_t>(kPageRows * shape.dim));
  reference::aura_codec().decode(shape, page.view(), rows.data());
  return rows;
}

// How much of a row its code misses, with the scale that suits it best: 1 - cos² of the angle between them,
// the mean of a page. An encoder may look for codes at any size of the row.
double code_error(const RowShape& shape, const float* rows, const Page& page) {
  double sum = 0;
  std::vector<float> turned(static_cast<size_t>(shape.dim));
  std::vector<int8_t> levels(turned.size());
  for (int r = 0; r < kPageRows; ++r) {
    std::copy_n(rows + r * shape.dim, shape.dim, turned.data());
    rotate(shape.layer, shape.side, shape.dim, turned.data());
    decode_levels(shape.bits, page.codes() + r * trellis_row_bytes(shape.bits, shape.dim), shape.dim,
                  levels.data());
    double square = 0, code_square = 0, product = 0;
    for (size_t j = 0; j < levels.size(); ++j) {
      square += double{turned[j]} * turned[j];
      code_square += static_cast<double>(levels[j]) * levels[j];
      product += double{turned[j]} * levels[j];
    }
    sum += 1 - product * product / (square * code_square);
  }
  return sum / kPageRows;
}

// AMX has no kernel of its own.
std::vector<Isa> isas_with_kernels() {
  std::vector<Isa> isas = available_isas();
  std::erase(isas, Isa::kAmx);
  return isas;
}

class AuraSealOnEachIsa : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, AuraSealOnEachIsa, testing::ValuesIn(isas_with_kernels()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

// Errors of the reference encoder on normal_values(33 pages, 1), in the order of kDims and kAllBits. It is
// too slow to run on 2,112 rows each time: BUTTER_PRINT_SEAL_ERRORS=1 prints them.
constexpr int kErrorPages = 33;
constexpr double kReferenceErrors[][3] = {
    {0.076540, 0.020279, 0.005698}, {0.077312, 0.020781, 0.006046}, {0.077539, 0.020943, 0.006083},
    {0.077952, 0.021138, 0.006201}, {0.078477, 0.021328, 0.006275}, {0.078475, 0.021289, 0.006265},
    {0.078735, 0.021368, 0.006338}, {0.078943, 0.021482, 0.006378},
};

TEST(AuraSeal, TheReferenceErrorsAreThoseOfTheReference) {
  const bool print = std::getenv("BUTTER_PRINT_SEAL_ERRORS") != nullptr;
  for (size_t d = 0; d < std::size(kDims); ++d) {
    for (int bits : kAllBits) {
      const RowShape shape = make_shape(bits, kDims[d]);
      if (!print && shape.dim != 32) continue;
      const auto rows = normal_values(int64_t{kErrorPages} * kPageRows * shape.dim, 1);
      double error = 0;
      for (int page = 0; page < kErrorPages; ++page) {
        const float* own = rows.data() + int64_t{page} * kPageRows * shape.dim;
        error += code_error(shape, own, encode(reference_encode, Isa::kPortable, shape, own)) / kErrorPages;
      }
      if (print) {
        std::printf("%s%.6f%s", bits == 2 ? "    {" : "", error, bits == 4 ? "},\n" : ", ");
      } else {
        EXPECT_NEAR(error, kReferenceErrors[d][bits - 2], 2e-6);
      }
    }
  }
}

// What two sizes gain at the least over the one of the reference: less the wider the row, whose errors
// average.
constexpr double kGain[] = {1.0, 0.99, 0.98};

TEST_P(AuraSealOnEachIsa, ErrsLessThanTheReference) {
  for (size_t d = 0; d < std::size(kDims); ++d) {
    for (int bits : kAllBits) {
      const RowShape shape = make_shape(bits, kDims[d]);
      const auto rows = normal_values(int64_t{kErrorPages} * kPageRows * shape.dim, 1);
      double error = 0;
      for (int page = 0; page < kErrorPages; ++page) {
        const float* own = rows.data() + int64_t{page} * kPageRows * shape.dim;
        error += code_error(shape, own, encode(cpu::aura_encode, GetParam(), shape, own)) / kErrorPages;
      }
      EXPECT_LT(error, kGain[bits - 2] * kReferenceErrors[d][bits - 2]) << bits << " bits, " << shape.dim;
    }
  }
}

// Costs are small integers with a limit: rows with a few large values must not meet it.
TEST_P(AuraSealOnEachIsa, ErrsLessThanTheReferenceOnHeavyTails) {
  constexpr int kPages = 8, kDim = 112;
  for (int bits : kAllBits) {
    const RowShape shape = make_shape(bits, kDim);
    double error = 0, expected = 0;
    for (unsigned page = 0; page < kPages; ++page) {
      // Student's t of 4 degrees of freedom, in the basis of the codes.
      std::vector<float> rows = normal_values(int64_t{kPageRows} * kDim, 10 + page);
      const std::vector<float> others = normal_values(int64_t{kPageRows} * kDim * 4, 90 + page);
      for (size_t i = 0; i < rows.size(); ++i) {
        float square = 0;
        for (size_t j = 0; j < 4; ++j) square += others[4 * i + j] * others[4 * i + j];
        rows[i] /= std::sqrt(square / 4);
      }
      for (int r = 0; r < kPageRows; ++r) rotate_back(shape.layer, shape.side, kDim, rows.data() + r * kDim);
      expected += code_error(shape, rows.data(), encode(reference_encode, GetParam(), shape, rows.data()));
      error += code_error(shape, rows.data(), encode(cpu::aura_encode, GetParam(), shape, rows.data()));
    }
    EXPECT_LT(error, expected) << bits << " bits";
  }
}

// Widths of no model that we know: fewer rows, and a coarser bound.
TEST_P(AuraSealOnEachIsa, TakesEveryWidthThatTheRotationTakes) {
  for (int dim : kOddDims) {
    if (!rotation_takes(dim)) continue;
    for (int bits : kAllBits) {
      const RowShape shape = make_shape(bits, dim);
      const auto rows = normal_values(int64_t{kPageRows} * dim, 2);
      const double expected =
          code_error(shape, rows.data(), encode(reference_encode, GetParam(), shape, rows.data()));
      const double error =
          code_error(shape, rows.data(), encode(cpu::aura_encode, GetParam(), shape, rows.data()));
      EXPECT_LT(error, 1.05 * expected) << bits << " bits, " << dim;
    }
  }
}

TEST_P(AuraSealOnEachIsa, StoresTheUnbiasedScaleOfEachRow) {
  for (int bits : kAllBits) {
    for (int dim : {64, 80, 256}) {
      const RowShape shape = make_shape(bits, dim, Side::kValue);
      std::vector<float> rows = normal_values(int64_t{kPageRows} * dim, 3);
      // Rows of many sizes, down to those whose scale is subnormal.
      for (int r = 0; r < kPageRows; ++r) {
        for (int j = 0; j < dim; ++j) rows[static_cast<size_t>(r * dim + j)] *= std::exp2(-0.3f * r);
      }
      const Page page = encode(cpu::aura_encode, GetParam(), shape, rows.data());
      const int64_t row_bytes = trellis_row_bytes(bits, dim);
      const uint8_t* scales = page.codes() + kPageRows * row_bytes;
      std::vector<int8_t> levels(static_cast<size_t>(dim));
      int largest = 0;
      for (int r = 0; r < kPageRows; ++r) {
        std::vector<float> y(rows.begin() + r * dim, rows.begin() + (r + 1) * dim);
        rotate(shape.layer, shape.side, dim, y.data());
        decode_levels(bits, page.codes() + r * row_bytes, dim, levels.data());
        double square = 0, product = 0;
        for (int j = 0; j < dim; ++j) {
          square += double{y[j]} * y[j];
          product += y[j] * (levels[j] * double{trellis_table(bits).step});
        }
        const int expected = scale_byte(square / product, page.tail.exponent[1], ScaleRounding::kNearest);
        EXPECT_NEAR(scales[r], expected, 1) << r;  // sums in float32 may fall on the other side of a half
        largest = std::max<int>(largest, scales[r]);
      }
      EXPECT_GE(largest, 16 * 15);
    }
  }
}

// One row of each kind that the rotation or the numbers make hard, among ordinary ones.
std::vector<float> extreme_rows(int dim, int kind) {
  std::vector<float> rows = normal_values(int64_t{kPageRows} * dim, 4);
  for (int r = 0; r < kPageRows; r += kind == 0 ? 1 : 3) {
    float* row = rows.data() + r * dim;
    for (int j = 0; j < dim; ++j) {
      const float sign = (j * 7 + r) % 3 == 0 ? -1.0f : 1.0f;
      switch (kind) {
        case 0:
          row[j] = 0;
          break;
        case 1:
          row[j] = 0.37f;
          break;
        case 2:
          row[j] = j == r % dim ? 1e5f : row[j];
          break;
        case 3:
          row[j] = sign * 1e-40f;
          break;
        case 4:
          row[j] = sign * 65504;
          break;
        case 5:
          row[j] = sign * 3e38f;
          break;
        case 6:
          row[j] *= 1e-25f;
          break;
        case 7:
          row[j] = j == 0 ? 1e-45f : 0;
          break;
        default:
          break;
      }
    }
    // A row that the rotation maps onto one channel.
    if (kind == 8) {
      std::fill(row, row + dim, 0.0f);
      row[r % dim] = 3;
      rotate_back(5, Side::kKey, dim, row);
    }
  }
  return rows;
}

TEST_P(AuraSealOnEachIsa, ErrsNoMoreThanTheReferenceOnExtremeRows) {
  for (int bits : kAllBits) {
    for (int dim : {64, 80}) {
      for (int kind = 0; kind <= 8; ++kind) {
        const RowShape shape = make_shape(bits, dim);
        const std::vector<float> rows = extreme_rows(dim, kind);
        const auto got = decoded(shape, encode(cpu::aura_encode, GetParam(), shape, rows.data()));
        const auto expected = decoded(shape, encode(reference_encode, GetParam(), shape, rows.data()));
        for (int r = 0; r < kPageRows; ++r) {
          double square = 0, error = 0, reference_error = 0;
          for (int j = 0; j < dim; ++j) {
            const size_t i = static_cast<size_t>(r * dim + j);
            ASSERT_TRUE(std::isfinite(got[i]));
            square += double{rows[i]} * rows[i];
            error += std::pow(double{got[i]} - rows[i], 2);
            reference_error += std::pow(double{expected[i]} - rows[i], 2);
          }
          // Single rows may take another path: a tenth of the row's own size at most, mostly much less.
          EXPECT_LE(std::sqrt(error), std::sqrt(reference_error) + 0.1 * std::sqrt(square))
              << bits << " bits, " << dim << ", kind " << kind << ", row " << r;
        }
      }
    }
  }
}

TEST_P(AuraSealOnEachIsa, WritesZeroRowsAsZeros) {
  for (int bits : kAllBits) {
    const RowShape shape = make_shape(bits, 64);
    std::vector<float> rows = normal_values(int64_t{kPageRows} * 64, 6);
    std::fill(rows.begin(), rows.begin() + 4 * 64, 0.0f);
    const Page page = encode(cpu::aura_encode, GetParam(), shape, rows.data());
    const int64_t row_bytes = trellis_row_bytes(bits, 64);
    for (int i = 0; i < 4 * row_bytes; ++i) EXPECT_EQ(page.codes()[i], 0);
    for (int r = 0; r < kPageRows; ++r) EXPECT_EQ(page.codes()[kPageRows * row_bytes + r] == 0, r < 4);
  }
}

TEST_P(AuraSealOnEachIsa, CodesARowWithoutRegardToTheOthers) {
  for (int bits : kAllBits) {
    const RowShape shape = make_shape(bits, 96);
    const std::vector<float> rows = normal_values(int64_t{kPageRows} * 96, 7);
    std::vector<float> others = normal_values(int64_t{kPageRows} * 96, 8);
    for (int r = 0; r < kPageRows; r += 5) std::copy_n(rows.data() + r * 96, 96, others.data() + r * 96);
    const Page page = encode(cpu::aura_encode, GetParam(), shape, rows.data());
    const Page other = encode(cpu::aura_encode, GetParam(), shape, others.data());
    const int64_t row_bytes = trellis_row_bytes(bits, 96);
    for (int r = 0; r < kPageRows; r += 5) {
      EXPECT_EQ(std::memcmp(page.codes() + r * row_bytes, other.codes() + r * row_bytes,
                            static_cast<size_t>(row_bytes)),
                0);
    }
  }
}

}  // namespace
}  // namespace butter
