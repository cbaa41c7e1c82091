// Parity of the CPU's linear op with the reference, for every instruction set that this machine has.
//
// Bounds. Float inputs: float32 sums in another order, 1e-6 of the sum of |w·x|. Int8 inputs: each value is
// off by at most half the scale of its second code, which is at most max|x| of its group / (127 · 254), and
// errors are independent: within 5 standard deviations of Σ w² · scale² / 12. Bf16: weight and input are each
// off by 2⁻⁹ relative at most, within 5 standard deviations of products off by 2⁻⁹ · |w·x|. In two bf16 parts
// each is off by 2⁻¹⁷, and the product of the low parts, another 2⁻¹⁸, is left out.
//
// Where codes have a bias, scale · Σ code · x and bias · Σ x are summed apart, in float32: another 2e-7 of
// Σ (|w − bias| + |bias|) · |x|, which is more than the rest where they cancel.
#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "core/dequantise.h"
#include "kernels/reference/linear.h"

namespace butter {
namespace {

// A type of weight; MLX's has more to it.
struct WeightType {
  DType dtype;
  int bits = 0;
  int group = 0;
  DType scales = DType::kF16;

  bool quantised() const { return dtype_info(dtype).quantised; }
  // The whole of a row is so many times these.
  int64_t columns() const { return dtype == DType::kMLX ? group : dtype_info(dtype).block_elements; }
};

constexpr DType kMLX = DType::kMLX;
constexpr WeightType kAllTypes[] = {{DType::kF32},
                                    {DType::kF16},
                                    {DType::kBF16},
                                    // Coded.
                                    {DType::kQ4_0},
                                    {DType::kQ4_1},
                                    {DType::kQ5_0},
                                    {DType::kQ5_1},
                                    {DType::kQ8_0},
                                    {DType::kQ2_K},
                                    {DType::kQ3_K},
                                    {DType::kQ4_K},
                                    {DType::kQ5_K},
                                    {DType::kQ6_K},
                                    {DType::kIQ4_NL},
                                    {DType::kIQ4_XS},
                                    {DType::kMXFP4},
                                    // Each of MLX's bits with two groups and two types of scales, and FP4.
                                    {kMLX, 2, 32, DType::kF16},
                                    {kMLX, 2, 128, DType::kBF16},
                                    {kMLX, 3, 64, DType::kF16},
                                    {kMLX, 3, 32, DType::kF32},
                                    {kMLX, 4, 32, DType::kBF16},
                                    {kMLX, 4, 64, DType::kF16},
                                    {kMLX, 5, 64, DType::kBF16},
                                    {kMLX, 5, 128, DType::kF32},
                                    {kMLX, 6, 64, DType::kF16},
                                    {kMLX, 6, 32, DType::kBF16},
                                    {kMLX, 8, 64, DType::kF16},
                                    {kMLX, 8, 128, DType::kBF16},
                                    {kMLX, 4, 32, DType::kU8}};
constexpr std::span<const WeightType> kFloatTypes = std::span(kAllTypes).first(3);
constexpr std::span<const WeightType> kCodedTypes = std::span(kAllTypes).subspan(3);

// Where a block has an fp16 scale, and what makes of a value a scale whose codes give values of its size.
struct ScalePlace {
  DType dtype;
  size_t offset;
  float factor;
};

constexpr ScalePlace kScales[] = {
    {DType::kQ4_0, 0, 1.0f / 5},    {DType::kQ4_1, 0, 1.0f / 5},      {DType::kQ4_1, 2, -1.5f},
    {DType::kQ5_0, 0, 1.0f / 10},   {DType::kQ5_1, 0, 1.0f / 10},     {DType::kQ5_1, 2, -1.5f},
    {DType::kQ8_0, 0, 1.0f / 70},   {DType::kQ2_K, 80, 1.0f / 12},    {DType::kQ2_K, 82, 1.0f / 8},
    {DType::kQ3_K, 108, 1.0f / 40}, {DType::kQ4_K, 0, 1.0f / 150},    {DType::kQ4_K, 2, 1.0f / 20},
    {DType::kQ5_K, 0, 1.0f / 300},  {DType::kQ5_K, 2, 1.0f / 20},     {DType::kQ6_K, 208, 1.0f / 1000},
    {DType::kIQ4_NL, 0, 1.0f / 70}, {DType::kIQ4_XS, 0, 1.0f / 1200},
};

using Random = std::mt19937;

std::vector<float> random_floats(size_t count, Random& random, float size = 1) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A weight of random bytes, with scales that make values of about `size`.
struct TestWeight {
  std::vector<std::byte> bytes;
  std::vector<std::byte> scales, biases;  // MLX's
  TensorView view;

  TestWeight(const WeightType& type, int64_t rows, int64_t columns, Random& random, float size = 0.1f) {
    view.dtype = type.dtype;
    view.mlx = {type.bits, type.group, type.scales, nullptr, nullptr};
    view.shape = {rows, columns};
    // Super blocks have 256 columns.
    if (columns % type.columns() != 0)
      view.shape = {rows, type.dtype == kMLX ? round_up(columns, type.columns()) : (columns / 256 + 1) * 256};
    bytes.resize(static_cast<size_t>(rows * view.row_bytes()));
    std::uniform_int_distribution<int> any(0, 255);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(any(random));
    view.data = bytes.data();
    if (type.dtype == kMLX) {
      make_mlx_scales(random, size);
    } else {
      make_scales(random, size);
    }
  }

 private:
  void make_scales(Random& random, float size) {
    const DType dtype = view.dtype;
    std::uniform_int_distribution<int> any(0, 255);
    std::normal_distribution<float> normal(0, size);
    const DTypeInfo& info = dtype_info(dtype);
    const auto put16 = [&](size_t at, uint16_t bits) { std::memcpy(bytes.data() + at, &bits, 2); };
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
      const float value = normal(random);
      if (dtype == DType::kF32) std::memcpy(bytes.data() + at, &value, 4);
      if (dtype == DType::kF16) put16(at, float_to_fp16(value));
      if (dtype == DType::kBF16) put16(at, float_to_bf16(value));
      for (const ScalePlace& scale : kScales)
        if (dtype == scale.dtype) put16(at + scale.offset, float_to_fp16(value * scale.factor));
      // Exponents around 2⁻⁶, for levels of about 5.
      if (dtype == DType::kMXFP4) bytes[at] = static_cast<std::byte>(120 + any(random) % 5);
    }
  }

  // Codes are around the middle of what their bits hold; the bias takes that off.
  void make_mlx_scales(Random& random, float size) {
    std::normal_distribution<float> normal(0, size / static_cast<float>(1 << (view.mlx.bits - 1)));
    const auto middle = static_cast<float>(1 << (view.mlx.bits - 1)) - 0.5f;
    for (int64_t at = 0; at < view.rows() * view.columns() / view.mlx.group; ++at) {
      const float scale = normal(random);
      if (view.mlx.has_exponents()) {
        scales.push_back(static_cast<std::byte>(120 + random() % 5));
      } else {
        put(scales, scale);
        put(biases, -middle * scale);
      }
    }
    view.mlx.scales = scales.data();
    if (!view.mlx.has_exponents()) view.mlx.biases = biases.data();
  }

  void put(std::vector<std::byte>& to, float value) const {
    const DType dtype = view.mlx.scale_dtype;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::kF16) bits = float_to_fp16(value);
    if (dtype == DType::kBF16) bits = float_to_bf16(value);
    for (int64_t i = 0; i < dtype_bytes(dtype, 1); ++i)
      to.push_back(static_cast<std::byte>(bits >> (8 * i) & 255));
  }
};

struct Options {
  std::vector<float> bias;
  bool accumulate = false;
  float multiplier = 1;
  int workers = 1;
};

std::vector<float> run(const cpu::LinearWeight& weight, cpu::InputKind kind, const std::vector<float>& x,
                       int64_t rows, const Options& options = {}) {
  cpu::LinearInput input;
  input.kind = kind;
  input.x = x.data();
  input.stride = input.columns = weight.columns();
  input.rows = rows;
  Buffer prepared =
      Buffer::allocate(std::max<int64_t>(64, cpu::input_bytes(kind, rows, weight.columns()))).value();
  Buffer scratch = Buffer::allocate(std::max<int64_t>(64, cpu::linear_scratch_bytes(weight))).value();
  input.prepared = prepared.data();
  std::vector<float> y(static_cast<size_t>(rows * weight.rows()), options.accumulate ? 0.25f : -7.0f);
  const LinearTarget target{y.data(), weight.rows(), options.bias.empty() ? nullptr : options.bias.data(),
                            options.accumulate, options.multiplier};
  for (int i = 0; i < options.workers; ++i)
    cpu::prepare_input(weight.isa(), input, split(rows, options.workers, i, cpu::input_grain(kind)));
  for (int i = 0; i < options.workers; ++i) {
    cpu::linear(weight, input, split(weight.rows(), options.workers, i, cpu::kPanelRows), target,
                scratch.data());
  }
  return y;
}

// Whether errors of a row's values may be taken as independent: not where all are the same.
enum class Errors { kIndependent, kAligned };

// What a result may be off by, from the decoded weight row and the input row.
double allowed(cpu::InputKind kind, const float* w, const float* x, int64_t columns, Errors errors) {
  double absolute = 0, squares = 0, variance = 0;
  for (int64_t begin = 0; begin < columns; begin += 32) {
    double largest = 0, weight_squares = 0;
    for (int64_t k = begin; k < std::min(begin + 32, columns); ++k) {
      const double weight = w[k], input = std::abs(static_cast<double>(x[k])), product = weight * input;
      absolute += std::abs(product);
      squares += product * product;
      weight_squares += weight * weight;
      largest = std::max(largest, input);
    }
    if (kind == cpu::InputKind::kInt8) variance += weight_squares * std::pow(largest / 127 / 254, 2) / 12;
  }
  const bool tiles = kind == cpu::InputKind::kBf16 || kind == cpu::InputKind::kBf16Pair;
  const double product_error = kind == cpu::InputKind::kBf16 ? 0x1p-8 : 0x1p-16;
  if (tiles) variance = squares * std::pow(product_error, 2) * 2 / 3;
  if (tiles && errors == Errors::kAligned) return absolute * 2 * product_error;
  return 2e-6 * absolute + 5 * std::sqrt(variance) + 1e-30;
}

// What sums of codes and of biases add to that, if the weight has such.
double allowed_of_parts(const TestWeight& weight, int64_t n, const float* w, const float* x) {
  const MlxParts& mlx = weight.view.mlx;
  double parts = 0;
  for (int64_t k = 0; mlx.biases != nullptr && k < weight.view.columns(); ++k) {
    float bias;
    const int64_t at = n * (weight.view.columns() / mlx.group) + k / mlx.group;
    dequantise_row(mlx.scale_dtype, mlx.biases + at * dtype_bytes(mlx.scale_dtype, 1), 1, &bias);
    parts += (std::abs(w[k] - bias) + std::abs(bias)) * std::abs(x[k]);
  }
  return 2e-7 * parts;
}

void expect_close(const TestWeight& weight, cpu::InputKind kind, const std::vector<float>& x, int64_t rows,
                  const std::vector<float>& y, Errors errors = Errors::kIndependent) {
  const int64_t columns = weight.view.columns(), outputs = weight.view.rows();
  std::vector<float> expected(y.size()), scratch(static_cast<size_t>(columns));
  reference::linear(weight.view, x.data(), columns, rows, {0, outputs}, {expected.data(), outputs},
                    scratch.data());
  for (int64_t n = 0; n < outputs; ++n) {
    dequantise_row(weight.view, n, scratch.data());
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row * outputs + n);
      const float* from = x.data() + row * columns;
      ASSERT_NEAR(y[at], expected[at],
                  allowed(kind, scratch.data(), from, columns, errors) +
                      allowed_of_parts(weight, n, scratch.data(), from))
          << weight.view.type_name() << " [" << outputs << ", " << columns << "] row " << row << " of "
          << rows << " output " << n;
    }
  }
}

std::vector<cpu::InputKind> kinds_of(const cpu::LinearWeight& weight) {
  std::vector<cpu::InputKind> kinds = {cpu::input_kind(weight, cpu::LinearPath::kDecode)};
  const cpu::InputKind prefill = cpu::input_kind(weight, cpu::LinearPath::kPrefill);
  if (prefill != kinds[0]) kinds.push_back(prefill);
  return kinds;
}

class LinearOnEachIsa : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, LinearOnEachIsa, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

TEST_P(LinearOnEachIsa, EqualsTheReferenceInEveryShape) {
  struct Case {
    int64_t outputs, columns;
    std::vector<int64_t> rows;
  };
  std::vector<int64_t> all_rows;
  for (int64_t rows = 1; rows <= 17; ++rows) all_rows.push_back(rows);
  all_rows.push_back(49);
  const Case cases[] = {{21, 96, all_rows}, {48, 32, {1, 3, 16}},  {1, 64, {1, 5, 33}},
                        {16, 64, {2, 17}},  {50, 576, {1, 4, 33}}, {24, 1536, {1, 19}}};
  Random random(1);
  for (const WeightType& type : kAllTypes) {
    for (const Case& test : cases) {
      const TestWeight weight(type, test.outputs, test.columns, random);
      const auto made = cpu::LinearWeight::make(weight.view, GetParam());
      ASSERT_TRUE(made) << made.error().message();
      for (int64_t rows : test.rows) {
        const auto x = random_floats(static_cast<size_t>(rows * weight.view.columns()), random);
        for (cpu::InputKind kind : kinds_of(*made)) {
          expect_close(weight, kind, x, rows, run(*made, kind, x, rows));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(LinearOnEachIsa, FloatFormsTakeAnyColumnCount) {
  Random random(2);
  for (const WeightType& type : kFloatTypes) {
    for (int64_t columns : {1, 7, 15, 31, 33, 50}) {
      const TestWeight weight(type, 19, columns, random);
      const auto made = cpu::LinearWeight::make(weight.view, GetParam());
      ASSERT_TRUE(made);
      const auto x = random_floats(static_cast<size_t>(18 * columns), random);
      for (cpu::InputKind kind : kinds_of(*made)) expect_close(weight, kind, x, 18, run(*made, kind, x, 18));
    }
  }
}

TEST_P(LinearOnEachIsa, FloatFormsTakeAnyAddress) {
  Random random(3);
  for (const WeightType& type : kFloatTypes) {
    TestWeight weight(type, 20, 64, random);
    std::vector<std::byte> shifted(weight.bytes.size() + 1);
    std::memcpy(shifted.data() + 1, weight.bytes.data(), weight.bytes.size());
    weight.view.data = shifted.data() + 1;
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    const auto x = random_floats(17 * 64, random);
    for (cpu::InputKind kind : kinds_of(*made)) expect_close(weight, kind, x, 17, run(*made, kind, x, 17));
  }
}

TEST_P(LinearOnEachIsa, ARowIsTheSameAloneAndInEveryBatch) {
  constexpr int64_t kColumns = 160, kOutputs = 37, kRows = 41;
  Random random(4);
  for (const WeightType& type : kAllTypes) {
    const TestWeight weight(type, kOutputs, kColumns, random);
    const int64_t columns = weight.view.columns();
    const auto x = random_floats(static_cast<size_t>(kRows * columns), random);
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    for (cpu::InputKind kind : kinds_of(*made)) {
      std::vector<float> alone;
      for (int64_t row = 0; row < kRows; ++row) {
        const std::vector<float> one(x.begin() + row * columns, x.begin() + (row + 1) * columns);
        const auto y = run(*made, kind, one, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int64_t rows : {2, 3, 5, 6, 8, 15, 16, 33, 41}) {
        const auto y = run(*made, kind, x, rows);
        ASSERT_EQ(0, std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)))
            << weight.view.type_name() << " " << rows << " rows";
      }
    }
  }
}

TEST_P(LinearOnEachIsa, ManyWorkersGiveTheBitsOfOne) {
  constexpr int64_t kColumns = 96, kOutputs = 85, kRows = 37;
  Random random(5);
  for (const WeightType& type : kAllTypes) {
    const TestWeight weight(type, kOutputs, kColumns, random);
    const int64_t columns = weight.view.columns();
    const auto x = random_floats(static_cast<size_t>(kRows * columns), random);
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    for (cpu::InputKind kind : kinds_of(*made)) {
      const auto one = run(*made, kind, x, kRows);
      for (int workers : {2, 3, 8, 40}) {
        Options options;
        options.workers = workers;
        EXPECT_EQ(one, run(*made, kind, x, kRows, options))
            << weight.view.type_name() << " " << workers << " workers";
      }
    }
  }
}

TEST_P(LinearOnEachIsa, AddsBiasAndAccumulates) {
  constexpr int64_t kColumns = 64, kOutputs = 35;
  Random random(6);
  for (const WeightType& type : kAllTypes) {
    const TestWeight weight(type, kOutputs, kColumns, random);
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    for (cpu::InputKind kind : kinds_of(*made)) {
      for (int64_t rows : {1, 9, 20}) {
        const auto x = random_floats(static_cast<size_t>(rows * weight.view.columns()), random);
        const auto plain = run(*made, kind, x, rows);
        Options options;
        options.bias = random_floats(kOutputs, random);
        const auto biased = run(*made, kind, x, rows, options);
        options.accumulate = true;
        options.multiplier = 0.5f;
        const auto added = run(*made, kind, x, rows, options);
        for (size_t i = 0; i < plain.size(); ++i) {
          ASSERT_EQ(biased[i], plain[i] + options.bias[i % kOutputs]);
          ASSERT_EQ(added[i], 0.25f + 0.5f * biased[i]);
        }
      }
    }
  }
}

TEST_P(LinearOnEachIsa, RepackedRowsAreTheFilesValues) {
  Random random(7);
  for (const WeightType& type : kAllTypes) {
    for (int64_t outputs : {1, 16, 21, 64}) {
      const TestWeight weight(type, outputs, 96, random);
      const auto made = cpu::LinearWeight::make(weight.view, GetParam());
      ASSERT_TRUE(made);
      EXPECT_EQ(made->bytes(), weight.view.bytes());
      EXPECT_EQ(made->copied(), type.quantised());
      const int64_t columns = weight.view.columns();
      std::vector<float> expected(static_cast<size_t>(columns)), got(expected);
      for (int64_t r = 0; r < outputs; ++r) {
        dequantise_row(weight.view, r, expected.data());
        made->dequantise_row(r, got.data());
        ASSERT_EQ(0, std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)))
            << weight.view.type_name() << " row " << r;
      }
    }
  }
}

TEST_P(LinearOnEachIsa, EveryKindOfMlxCodesIsTheFilesValuesAndTheReferencesProduct) {
  Random random(13);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      for (DType scales : {DType::kF16, DType::kBF16, DType::kF32}) {
        const TestWeight weight({kMLX, bits, group, scales}, 21, 256, random);
        const auto made = cpu::LinearWeight::make(weight.view, GetParam());
        ASSERT_TRUE(made);
        EXPECT_EQ(made->bytes(), weight.view.bytes());
        EXPECT_EQ(made->form_name(), weight.view.type_name());
        std::vector<float> expected(256), got(expected);
        for (int64_t r = 0; r < 21; ++r) {
          dequantise_row(weight.view, r, expected.data());
          made->dequantise_row(r, got.data());
          ASSERT_EQ(0, std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)))
              << made->form_name() << " row " << r;
        }
        const auto x = random_floats(2 * 256, random);
        for (cpu::InputKind kind : kinds_of(*made)) expect_close(weight, kind, x, 2, run(*made, kind, x, 2));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LinearOnEachIsa, RepackingInPartsIntoGivenStorageIsTheSame) {
  Random random(8);
  for (const WeightType& type : kCodedTypes) {
    const TestWeight weight(type, 83, 128, random);
    const auto whole = cpu::LinearWeight::make(weight.view, GetParam());
    Buffer storage = Buffer::allocate(cpu::LinearWeight::storage_bytes(weight.view)).value();
    auto parts = cpu::LinearWeight::allocate(weight.view, GetParam(), storage.data());
    ASSERT_TRUE(whole && parts);
    for (int i = 2; i >= 0; --i) parts->repack(split(83, 3, i, cpu::kPanelRows));
    parts->finish();
    EXPECT_EQ(parts->matrix().data, storage.data());
    EXPECT_EQ(0, std::memcmp(whole->matrix().data, storage.data(), static_cast<size_t>(weight.view.bytes())));
  }
}

TEST_P(LinearOnEachIsa, ExtremeInputsStayExactOrShow) {
  constexpr int64_t kColumns = 64, kOutputs = 18;
  Random random(9);
  for (const WeightType& type : kAllTypes) {
    const TestWeight weight(type, kOutputs, kColumns, random);
    const int64_t columns = weight.view.columns();
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    for (cpu::InputKind kind : kinds_of(*made)) {
      for (float size : {0.0f, 1e-38f, 1e-30f, 1e30f}) {
        std::vector<float> x(static_cast<size_t>(17 * columns), size);
        x[3] = -size;
        const auto y = run(*made, kind, x, 17);
        for (float value : y) ASSERT_TRUE(std::isfinite(value)) << weight.view.type_name() << " " << size;
        // Too small for an 8-bit scale or a bf16 product: zero, or near enough.
        if (size > 1e-35f) expect_close(weight, kind, x, 17, y);
        if (size == 0.0f) {
          EXPECT_EQ(y, std::vector<float>(y.size(), 0.0f));
        }
      }
      for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> x(static_cast<size_t>(17 * columns), 1.0f);
        x[static_cast<size_t>(5 * columns + 40)] = bad;
        const auto y = run(*made, kind, x, 17);
        for (int64_t n = 0; n < kOutputs; ++n) {
          EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(5 * kOutputs + n)])) << weight.view.type_name();
          EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(4 * kOutputs + n)])) << weight.view.type_name();
        }
      }
    }
  }
}

// Whether a byte of a block holds codes and not scales.
bool is_code(DType dtype, size_t offset) {
  switch (dtype) {
    case DType::kQ2_K:
      return offset >= 16 && offset < 80;
    case DType::kQ3_K:
      return offset < 96;
    case DType::kQ4_K:
    case DType::kQ5_K:
      return offset >= 16;
    case DType::kQ6_K:
      return offset < 192;
    case DType::kQ4_1:
    case DType::kQ5_1:
      return offset >= 4;
    case DType::kIQ4_XS:
      return offset >= 8;
    case DType::kMXFP4:
      return offset >= 1;
    default:
      return offset >= 2;
  }
}

TEST_P(LinearOnEachIsa, LargestCodesDoNotOverflow) {
  constexpr int64_t kColumns = 64;
  for (const WeightType& type : kCodedTypes) {
    for (int fill : {0x00, 0x7f, 0x80, 0xff}) {
      Random random(10);
      TestWeight weight(type, 16, kColumns, random);
      const auto block = static_cast<size_t>(dtype_info(type.dtype).block_bytes);
      for (size_t i = 0; i < weight.bytes.size(); ++i) {
        if (type.dtype == kMLX || is_code(type.dtype, i % block))
          weight.bytes[i] = static_cast<std::byte>(fill);
      }
      const auto made = cpu::LinearWeight::make(weight.view, GetParam());
      ASSERT_TRUE(made);
      for (float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(static_cast<size_t>(16 * weight.view.columns()), sign);
        for (cpu::InputKind kind : kinds_of(*made))
          expect_close(weight, kind, x, 16, run(*made, kind, x, 16), Errors::kAligned);
      }
    }
  }
}

// Scales that are subnormal, around 1 and near the largest that leaves values finite. Not in bf16, which has
// no subnormals in hardware.
TEST_P(LinearOnEachIsa, ExponentsOfEverySizeAreScales) {
  Random random(12);
  for (int exponent : {0, 1, 2, 3, 127, 128, 250}) {
    TestWeight weight(WeightType{DType::kMXFP4}, 19, 64, random);
    for (size_t at = 0; at < weight.bytes.size(); at += 17)
      weight.bytes[at] = static_cast<std::byte>(exponent);
    const auto made = cpu::LinearWeight::make(weight.view, GetParam());
    ASSERT_TRUE(made);
    const auto kind = cpu::input_kind(*made, cpu::LinearPath::kDecode);
    // So that products are around 1, as far as inputs have 8-bit scales.
    const auto x = random_floats(3 * 64, random, std::ldexp(1.0f, std::clamp(125 - exponent, -100, 120)));
    expect_close(weight, kind, x, 3, run(*made, kind, x, 3));
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearOnEachIsa, ZeroRowsOrOutputsDoNothing) {
  Random random(11);
  const TestWeight weight(WeightType{DType::kQ4_1}, 32, 64, random);
  const auto made = cpu::LinearWeight::make(weight.view, GetParam());
  ASSERT_TRUE(made);
  for (cpu::InputKind kind : kinds_of(*made)) {
    EXPECT_TRUE(run(*made, kind, {}, 0).empty());
    cpu::linear(*made, {kind, nullptr, 64, 1, 64, nullptr}, {16, 16}, {}, nullptr);
  }
}

TEST(Linear, AnUnknownTypeIsNamed) {
  TensorView view;
  view.dtype = DType::kI32;
  view.shape = {4, 32};
  const auto made = cpu::LinearWeight::make(view, Isa::kPortable);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("I32"), std::string::npos) << made.error().message();
}

}  // namespace
}  // namespace butter
