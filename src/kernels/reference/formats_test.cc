// The reference codecs of the compressed formats: what is true of each, their errors, and golden pages.
#include "kernels/reference/formats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/rotation.h"
#include "kernels/scale_byte.h"
#include "support/sanitized.h"
#include "support/test_data.h"

namespace butter::reference {
namespace {

struct Format {
  std::string name;
  const RowCodec* codec;
  int bits, group;

  bool is_aura() const { return codec == &aura_codec(); }
};

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const int bits : {2, 3, 4, 8}) all.push_back({fmt::format("aura{}", bits), &aura_codec(), bits, 0});
  for (const int bits : {4, 6, 8}) {
    for (const int group : {16, 32, 64, 128}) {
      all.push_back({fmt::format("affine{}g{}", bits, group), &affine_codec(), bits, group});
    }
  }
  return all;
}

int64_t record_bytes(const Format& format, int dim) {
  const int64_t codes = int64_t{kPageRows} * format.bits * dim / 8;
  if (format.is_aura()) return codes + kPageRows;
  return codes + int64_t{4} * kPageRows * ((dim + format.group - 1) / format.group);
}

// A page and its record, which ends exactly where its bytes are said to end.
struct Page {
  Page(const Format& format, int dim, const std::vector<float>& rows, Side side = Side::kKey, int layer = 3)
      : codec(*format.codec), shape{dim, DType::kF32, layer, side, format.bits, format.group} {
    std::vector<std::byte> scratch(static_cast<size_t>(encode_scratch_bytes(dim)), std::byte{0xa5});
    bytes.assign(static_cast<size_t>(record_bytes(format, dim)), std::byte{0x5a});
    codec.encode(shape, rows.data(), bytes.data(), &tail, scratch.data());
  }

  Record record() const {
    Record view{bytes.data()};
    view.tail = &tail;
    return view;
  }
  std::vector<float> decoded() const {
    std::vector<float> rows(static_cast<size_t>(kPageRows * shape.dim), NAN);
    codec.decode(shape, record(), rows.data());
    return rows;
  }

  const RowCodec& codec;
  RowShape shape;
  RecordTail tail;
  std::vector<std::byte> bytes;
};

std::vector<float> gaussian(uint64_t seed, int64_t count, double deviation = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(normal(generator));
  return values;
}

double norm(const float* row, int dim) {
  double sum = 0;
  for (int j = 0; j < dim; ++j) sum += double{row[j]} * row[j];
  return std::sqrt(sum);
}

double distance(const float* a, const float* b, int dim) {
  double sum = 0;
  for (int j = 0; j < dim; ++j) sum += std::pow(double{a[j]} - b[j], 2);
  return std::sqrt(sum);
}

const int kDims[] = {32, 64, 80, 96, 112, 128, 192, 256};

class Codec : public testing::TestWithParam<Format> {};

std::string format_name(const testing::TestParamInfo<Format>& format) {
  return format.param.name;
}

INSTANTIATE_TEST_SUITE_P(Formats, Codec, testing::ValuesIn(formats()), format_name);

// --- attention

TEST_P(Codec, AttentionOnCodesIsAttentionOnDecodedRows) {
  for (const int dim : kDims) {
    for (const int heads : {1, 3}) {
      const Page page(GetParam(), dim, gaussian(1, kPageRows * dim));
      const std::vector<float> rows = page.decoded();
      const std::vector<float> queries = gaussian(2, heads * dim);
      std::vector<std::byte> prepared(static_cast<size_t>(page.codec.prepared_bytes(page.shape, heads)));
      ASSERT_LE(static_cast<int64_t>(prepared.size()), prepared_bytes_limit(dim, heads));
      page.codec.prepare(page.shape, queries.data(), heads, prepared.data());
      std::vector<float> scores(static_cast<size_t>(heads * kPageRows), NAN);
      page.codec.score(page.shape, prepared.data(), heads, page.record(), scores.data());
      for (int head = 0; head < heads; ++head) {
        for (int row = 0; row < kPageRows; ++row) {
          double expected = 0;
          for (int j = 0; j < dim; ++j) {
            expected += double{queries[size_t(head * dim + j)]} * rows[size_t(row * dim + j)];
          }
          // Relative to |q|·|k|: a score may be near zero by cancellation.
          const double size = norm(&queries[size_t(head * dim)], dim) * norm(&rows[size_t(row * dim)], dim);
          ASSERT_NEAR(scores[size_t(head * kPageRows + row)], expected, 1e-4 * size)
              << dim << ", row " << row;
        }
      }
    }
  }
}

TEST_P(Codec, WeightedSumOfCodesIsThatOfDecodedRows) {
  for (const int dim : kDims) {
    const int heads = 2;
    const Page page(GetParam(), dim, gaussian(3, kPageRows * dim), Side::kValue);
    const std::vector<float> rows = page.decoded();
    std::vector<float> weights = gaussian(4, heads * kPageRows);
    for (float& weight : weights) weight = std::max(weight, 0.0F);
    std::vector<float> acc(static_cast<size_t>(heads * dim), 0.5F);
    page.codec.turn(page.shape, heads, acc.data());  // what was summed before must stay
    page.codec.accumulate(page.shape, weights.data(), heads, page.record(), acc.data());
    page.codec.finish(page.shape, heads, acc.data());
    for (int head = 0; head < heads; ++head) {
      std::vector<float> expected(static_cast<size_t>(dim), 0.5F);
      for (int row = 0; row < kPageRows; ++row) {
        for (int j = 0; j < dim; ++j) {
          expected[size_t(j)] += weights[size_t(head * kPageRows + row)] * rows[size_t(row * dim + j)];
        }
      }
      EXPECT_LE(distance(&acc[size_t(head * dim)], expected.data(), dim), 1e-4 * norm(expected.data(), dim))
          << dim;
    }
  }
}

TEST_P(Codec, ExpandedRowsAreDecodedRowsInTheFormatsBasis) {
  for (const int dim : kDims) {
    const Page page(GetParam(), dim, gaussian(5, kPageRows * dim), Side::kValue);
    std::vector<float> turned = page.decoded();
    page.codec.turn(page.shape, kPageRows, turned.data());
    std::vector<float> expanded(turned.size(), NAN);
    page.codec.expand(page.shape, page.record(), expanded.data());
    EXPECT_LE(distance(turned.data(), expanded.data(), kPageRows * dim),
              1e-5 * norm(turned.data(), kPageRows * dim))
        << dim;
  }
}

// --- what is written

TEST_P(Codec, EveryByteIsWrittenAndNothingElse) {
  for (const int dim : kDims) {
    const std::vector<float> rows = gaussian(6, kPageRows * dim);
    const Page first(GetParam(), dim, rows);
    Page again(GetParam(), dim, rows);
    std::vector<std::byte> scratch(static_cast<size_t>(encode_scratch_bytes(dim)));
    again.bytes.assign(again.bytes.size() + 64, std::byte{0xc3});
    again.codec.encode(again.shape, rows.data(), again.bytes.data(), &again.tail, scratch.data());
    EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.end(), again.bytes.begin())) << dim;
    for (size_t i = first.bytes.size(); i < again.bytes.size(); ++i)
      ASSERT_EQ(again.bytes[i], std::byte{0xc3});
  }
}

TEST_P(Codec, TheTailOfTheOtherSideIsLeftAlone) {
  const Format format = GetParam();
  for (const Side side : {Side::kKey, Side::kValue}) {
    Page page(format, 64, gaussian(7, kPageRows * 64, 1e3), side);
    const int other = side == Side::kKey ? 1 : 0;
    EXPECT_EQ(page.tail.exponent[other], 0);
    EXPECT_EQ(page.tail.exponent[1 - other] != 0, format.is_aura());
    EXPECT_EQ(page.tail.centred, 0U);
  }
}

// --- the size of errors

// Mean squared error of 64 Gaussian rows, d 64, seed 8, over their mean square: four digits as measured.
TEST_P(Codec, TheErrorOfGaussianRowsIsThatOfTheFormat) {
  const std::map<std::string, double> figures = {
      {"aura2", 0.08378},        {"aura3", 0.02117},        {"aura4", 0.006408},
      {"aura8", 3.73e-05},       {"affine4g16", 0.004235},  {"affine4g32", 0.00616},
      {"affine4g64", 0.007987},  {"affine4g128", 0.007987}, {"affine6g16", 0.0002444},
      {"affine6g32", 0.0003513}, {"affine6g64", 0.0004479}, {"affine6g128", 0.0004479},
      {"affine8g16", 1.477e-05}, {"affine8g32", 2.121e-05}, {"affine8g64", 2.768e-05},
      {"affine8g128", 2.768e-05}};
  const auto figure = figures.find(GetParam().name);
  ASSERT_NE(figure, figures.end()) << GetParam().name << " has no figure";
  const int dim = 64;
  const std::vector<float> rows = gaussian(8, kPageRows * dim);
  const std::vector<float> decoded = Page(GetParam(), dim, rows).decoded();
  const double error =
      distance(rows.data(), decoded.data(), kPageRows * dim) / norm(rows.data(), kPageRows * dim);
  EXPECT_NEAR(error * error, figure->second, 0.002 * figure->second);
}

std::vector<float> degenerate_page(const std::string& kind, int dim) {
  std::vector<float> rows = gaussian(9, kPageRows * dim);
  const auto row = [&](int i) { return rows.begin() + i * dim; };
  if (kind == "zero") std::fill(rows.begin(), rows.end(), 0.0F);
  if (kind == "equal") std::fill(rows.begin(), rows.end(), -3.25F);
  if (kind == "denormal") {
    for (float& x : rows) x *= 1e-40F;
  }
  if (kind == "denormal_row") std::transform(row(7), row(8), row(7), [](float x) { return x * 1e-42F; });
  if (kind == "outlier") rows[static_cast<size_t>(5 * dim + 3)] = bf16_to_float(float_to_bf16(1e5F));
  if (kind == "largest") {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 3 == 0 ? 65504.0F : -65504.0F;
  }
  if (kind == "one_zero_row") std::fill(row(9), row(10), 0.0F);
  if (kind == "huge_bf16") {
    for (float& x : rows) x *= 1e38F;
  }
  return rows;
}

TEST_P(Codec, DegenerateRowsGiveFiniteValues) {
  for (const std::string kind :
       {"zero", "equal", "denormal", "denormal_row", "outlier", "largest", "one_zero_row", "huge_bf16"}) {
    for (const int dim : {64, 80, 112}) {
      const std::vector<float> rows = degenerate_page(kind, dim);
      const Page page(GetParam(), dim, rows);
      const std::vector<float> decoded = page.decoded();
      for (const float value : decoded) ASSERT_TRUE(std::isfinite(value)) << kind << ", d " << dim;
      if (kind == "zero") {
        EXPECT_EQ(decoded, rows) << dim;
      }
    }
  }
}

// A row of an aura format errs by a share of its own norm, and at least by what the smallest scale of its
// page cannot say (2^-18 of the largest).
double aura_bound(const Format& format, const std::vector<float>& rows, int row, int dim) {
  double largest = 0;
  for (int i = 0; i < kPageRows; ++i) largest = std::max(largest, norm(&rows[size_t(i * dim)], dim));
  const double share = format.bits == 8 ? 0.02 : format.bits == 4 ? 0.6 : 0.9;
  return share * norm(&rows[size_t(row * dim)], dim) + largest * 0x1p-17 + 1e-30;
}

// A group of an affine format errs by half a step a channel; by more where s and m had to be rounded or
// clamped.
double affine_bound(const Format& format, const std::vector<float>& rows, int row, int dim) {
  double square = 0;
  for (int first = 0; first < dim; first += format.group) {
    const int end = std::min(first + format.group, dim);
    const auto [low, high] =
        std::minmax_element(&rows[size_t(row * dim + first)], &rows[size_t(row * dim)] + end);
    const double range = double{*high} - *low;
    const double codes = (1 << format.bits) - 1;
    const double step = range / codes;
    double error = 0.51 * step + codes * (step * 0x1p-11 + 0x1p-25);
    error += std::max(std::abs(*low), std::abs(*high)) * 0x1p-11 + 0x1p-25;
    error += std::max(0.0, std::max<double>(std::abs(*low), std::abs(*high)) - 65504);
    square += (end - first) * error * error;
  }
  return std::sqrt(square);
}

TEST_P(Codec, DegenerateRowsErrWithinBounds) {
  for (const std::string kind :
       {"equal", "denormal", "denormal_row", "outlier", "largest", "one_zero_row", "gaussian"}) {
    for (const int dim : {64, 80, 96, 112}) {
      const std::vector<float> rows = degenerate_page(kind, dim);
      const std::vector<float> decoded = Page(GetParam(), dim, rows).decoded();
      for (int row = 0; row < kPageRows; ++row) {
        const double bound = GetParam().is_aura() ? aura_bound(GetParam(), rows, row, dim)
                                                  : affine_bound(GetParam(), rows, row, dim);
        ASSERT_LE(distance(&rows[size_t(row * dim)], &decoded[size_t(row * dim)], dim), bound)
            << kind << ", d " << dim << ", row " << row << " of norm " << norm(&rows[size_t(row * dim)], dim);
      }
    }
  }
}

// --- aura alone

// A row that the rotation maps onto one channel has little in common with any code.
TEST(Aura, ARowOfOneChannelKeepsItsNorm) {
  for (const int bits : {2, 3, 4}) {
    for (const int dim : {64, 80, 128, 256}) {
      std::vector<float> rows(static_cast<size_t>(kPageRows * dim), 0.0F);
      for (int row = 0; row < kPageRows; ++row) {
        rows[static_cast<size_t>(row * dim + row % dim)] = 100;
        rotate_back(3, Side::kKey, dim, &rows[static_cast<size_t>(row * dim)]);
      }
      const std::vector<float> decoded = Page({"", &aura_codec(), bits, 0}, dim, rows).decoded();
      for (int row = 0; row < kPageRows; ++row) {
        const float* y = &decoded[static_cast<size_t>(row * dim)];
        EXPECT_LE(norm(y, dim), 205) << bits << ", " << dim;  // at most 1/½ of the norm, rounded
        EXPECT_GE(norm(y, dim), 95) << bits << ", " << dim;
      }
    }
  }
}

TEST(Aura, ScalesAreUnbiased) {
  for (const int bits : {2, 3, 4}) {
    const int dim = 64;
    const std::vector<float> rows = gaussian(10, kPageRows * dim);
    const std::vector<float> decoded = Page({"", &aura_codec(), bits, 0}, dim, rows).decoded();
    for (int row = 0; row < kPageRows; ++row) {
      const float* x = &rows[static_cast<size_t>(row * dim)];
      const float* y = &decoded[static_cast<size_t>(row * dim)];
      double product = 0;
      for (int j = 0; j < dim; ++j) product += double{x[j]} * y[j];
      // The scale byte rounds by up to 1/32.
      EXPECT_NEAR(product / std::pow(norm(x, dim), 2), 1, 1.0 / 32 + 1e-6);
    }
  }
}

TEST(Aura, IntegersFillTheirRangeAndErrByHalfAStep) {
  const int dim = 96;
  const std::vector<float> rows = gaussian(11, kPageRows * dim);
  const Page page({"", &aura_codec(), 8, 0}, dim, rows);
  std::vector<float> turned = rows;
  page.codec.turn(page.shape, kPageRows, turned.data());
  std::vector<float> expanded(turned.size());
  page.codec.expand(page.shape, page.record(), expanded.data());
  for (int row = 0; row < kPageRows; ++row) {
    const auto byte = static_cast<uint8_t>(page.bytes[static_cast<size_t>(kPageRows * dim + row)]);
    const float scale = scale_value(byte, page.tail.exponent[0]);
    int largest = 0;
    for (int j = 0; j < dim; ++j) {
      const auto i = static_cast<size_t>(row * dim + j);
      largest = std::max(largest, std::abs(static_cast<int>(static_cast<int8_t>(page.bytes[i]))));
      EXPECT_LE(std::abs(turned[i] - expanded[i]), 0.5001F * scale);
    }
    EXPECT_GE(largest, 119);  // 127 · 16/17: the scale was rounded up by at most a sixteenth
    EXPECT_LE(largest, 127);
  }
}

// --- affine alone

TEST(Affine, AnEqualGroupHasNoStepAndIsExactInFp16) {
  for (const int bits : {4, 6, 8}) {
    const std::vector<float> rows(static_cast<size_t>(kPageRows * 80), -3.25F);
    const Page page({"", &affine_codec(), bits, 32}, 80, rows);
    EXPECT_EQ(page.decoded(), rows);
    for (int i = 0; i < kPageRows * 80 * bits / 8; ++i)
      ASSERT_EQ(page.bytes[static_cast<size_t>(i)], std::byte{0});
  }
}

TEST(Affine, TheLastGroupMayBeShorter) {
  // Groups of 32 of 80 channels: 32, 32, 16. The last has a range of its own.
  std::vector<float> rows = gaussian(12, kPageRows * 80);
  for (int row = 0; row < kPageRows; ++row) {
    for (int j = 64; j < 80; ++j) rows[static_cast<size_t>(row * 80 + j)] *= 1e-3F;
  }
  const std::vector<float> decoded = Page({"", &affine_codec(), 8, 32}, 80, rows).decoded();
  for (int row = 0; row < kPageRows; ++row) {
    EXPECT_LE(
        distance(&rows[static_cast<size_t>(row * 80 + 64)], &decoded[static_cast<size_t>(row * 80 + 64)], 16),
        16 * 2e-5);
  }
}

TEST(Affine, ThePlacesOfCodesAndPairsAreThoseOfTheFormat) {
  // One row counts from 0 to 15; the others are zero. s = 1, m = 0: codes are the values.
  const int dim = 16;
  std::vector<float> rows(static_cast<size_t>(kPageRows * dim), 0.0F);
  for (int j = 0; j < dim; ++j) rows[static_cast<size_t>(2 * dim + j)] = static_cast<float>(j);
  const Page page({"", &affine_codec(), 4, 16}, dim, rows);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(static_cast<int>(page.bytes[static_cast<size_t>(2 * 8 + i)]), (2 * i + 1) << 4 | 2 * i);
  }
  uint16_t s = 0, m = 1;
  std::memcpy(&s, &page.bytes[kPageRows * 8 + 2 * 2], sizeof s);
  std::memcpy(&m, &page.bytes[kPageRows * 8 + 2 * kPageRows + 2 * 2], sizeof m);
  EXPECT_EQ(fp16_to_float(s), 1);
  EXPECT_EQ(fp16_to_float(m), 0);
}

// --- golden pages

// Rows that are the same on every machine and compiler: sums of four uniform integers, and some of each
// degenerate kind.
std::vector<float> golden_rows(int dim) {
  uint64_t state = 0x5eed + static_cast<uint64_t>(dim);
  const auto next = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int>(state >> 48) - 32768;
  };
  std::vector<float> rows;
  for (int row = 0; row < kPageRows; ++row) {
    const float size = 1.0F / static_cast<float>(1 << (row % 12 + 8));
    for (int j = 0; j < dim; ++j) {
      const int sum = next() + next() + next() + next();
      rows.push_back(static_cast<float>(sum) * size);
    }
  }
  std::fill_n(rows.begin(), kPinnedRows * dim, 0.0F);
  std::fill_n(rows.begin() + 10 * dim, dim, 1.5F);
  rows[static_cast<size_t>(20 * dim + 1)] = 30000;
  return rows;
}

uint64_t fnv1a(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

// "aura3 key d 80: u 7, hash ..., row 5 ...": enough to tell what changed.
std::string golden_line(const Format& format, Side side, int dim) {
  const Page page(format, dim, golden_rows(dim), side, 7);
  std::ostringstream line;
  line << format.name << (side == Side::kKey ? " key" : " value") << " d " << dim << ": u "
       << static_cast<int>(page.tail.exponent[static_cast<int>(side)]) << ", hash " << std::hex
       << fnv1a(page.bytes) << ", row 5 starts";
  const int row_bytes = format.bits * dim / 8;
  for (int i = 0; i < 8; ++i)
    line << ' ' << static_cast<int>(page.bytes[static_cast<size_t>(5 * row_bytes + i)]);
  return line.str();
}

// A change of any of these lines is a new version of the layout: caches saved before it cannot be read.
// BUTTER_REWRITE_GOLDEN=1 writes the file anew.
TEST(GoldenPages, RecordsAreThoseOfTheLayoutVersion) {
  std::string lines;
  for (const Format& format : formats()) {
    for (const int dim : {32, 64, 72, 80, 96, 112, 128, 256}) {
      lines += golden_line(format, Side::kKey, dim) + "\n";
      if (format.is_aura()) lines += golden_line(format, Side::kValue, dim) + "\n";
    }
  }
  const std::string path = test_data("formats/golden_pages.txt");
  if (std::getenv("BUTTER_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << lines;
  std::istringstream expected(read_test_file(path)), found(lines);
  std::string expected_line, found_line;
  while (std::getline(found, found_line)) {
    ASSERT_TRUE(std::getline(expected, expected_line)) << "no line for " << found_line;
    EXPECT_EQ(found_line, expected_line);
  }
  EXPECT_FALSE(std::getline(expected, expected_line)) << expected_line;
}

}  // namespace
}  // namespace butter::reference
