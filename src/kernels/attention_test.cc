// Attention: every instruction set against the reference, and the promises that hold bit for bit.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/buffer.h"
#include "kernels/attend_testing.h"
#include "kernels/rotated_testing.h"
#include "support/sanitized.h"

namespace butter {
namespace {

KvScheme raw_scheme(DType raw = DType::kF16) {
  return {&raw_format(), &raw_format(), raw};
}

KvLayerShape layer_shape(int kv_heads, int key_dim, int value_dim) {
  return {3, kv_heads, key_dim, value_dim, 0};
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN counts
    if (std::isnan(difference)) break;
  }
  return largest;
}

// Values are of size 1 (at most 3.5) and weights add up to 1. In float32 a score of size 1 is off by some
// 1e-6 (sums of up to 256 products), its weight by as much, and a sum of 1,000 weighted values by a few 1e-6.
constexpr float kFloatBound = 1e-5f;
// Where it may, AMX rounds queries, keys, weights and values to 8 bits each (2^-9 at most). A score is off by
// some 0.003 (scaled sums of products that are each off by 0.4 %: rounding is independent), a weight by 0.5
// %; where few keys are visible a value's own 0.2 % of up to 3.5 shows as well. Where it may not, it holds 16
// bits, 2^-17: the same 2^-8 times smaller.
constexpr float kBf16Bound = 2e-2f;
constexpr float kBf16PairBound = 1e-4f;

float bound_for(Isa isa, int rows, Products products) {
  if (isa != Isa::kAmx || rows < 16) return kFloatBound;
  return products == Products::kBf16 ? kBf16Bound : kBf16PairBound;
}

void expect_parity(const TestCacheOptions& options, int group) {
  AttendCase test({options}, group);
  const std::vector<float> expected = test.reference();
  for (Isa isa : available_isas()) {
    for (Products products : {Products::kBf16, Products::kExact}) {
      test.batch.products = products;
      EXPECT_LE(largest_difference(test.cpu(isa), expected), bound_for(isa, options.rows, products))
          << describe_case(options, group, isa);
    }
  }
}

const int kDims[] = {32, 64, 80, 96, 112, 128, 192, 256};
const int64_t kPositions[] = {0, 62, 63, 64, 127, 199, 999};  // 1, 63, 64, 65, 128, 200, 1000 keys
const Window kWindows[] = {{}, {64, 0}, {65, 4}, {100, 4}, {300, 100}, {20, 2}};

TEST(Attend, EveryWidthEqualsTheReference) {
  for (int dim : kDims) {
    for (int64_t position : {int64_t{63}, int64_t{199}}) {
      expect_parity({layer_shape(2, dim, dim), raw_scheme(), {}, position, 1}, 3);
    }
    expect_parity({layer_shape(1, dim, dim), raw_scheme(), {}, 100, 37}, 3);
  }
}

TEST(Attend, OddWidthsEqualTheReference) {
  for (int dim : {8, 40, 72, 100}) {
    expect_parity({layer_shape(2, dim, dim), raw_scheme(), {}, 130, 1}, 2);
    expect_parity({layer_shape(2, dim, dim), raw_scheme(), {}, 130, 17}, 2);
  }
}

TEST(Attend, KeysAndValuesMayDifferInWidth) {
  for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, std::pair{64, 96}, std::pair{96, 32}}) {
    expect_parity({layer_shape(2, key_dim, value_dim), raw_scheme(), {}, 150, 2}, 2);
    expect_parity({layer_shape(2, key_dim, value_dim), raw_scheme(), {}, 150, 20}, 2);
  }
}

TEST(Attend, EveryGroupSizeEqualsTheReference) {
  for (int group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 33}) {
    expect_parity({layer_shape(2, 64, 64), raw_scheme(), {}, 199, 1}, group);
    expect_parity({layer_shape(1, 64, 64), raw_scheme(), {}, 70, 65}, group);
  }
}

TEST(Attend, EveryRawTypeEqualsTheReference) {
  for (DType raw : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int dim : {64, 80}) {
      expect_parity({layer_shape(2, dim, dim), raw_scheme(raw), {}, 199, 3}, 3);
      expect_parity({layer_shape(2, dim, dim), raw_scheme(raw), {}, 199, 33}, 3);
    }
  }
}

TEST(Attend, EveryPositionAndWindowEqualsTheReference) {
  for (int64_t position : kPositions) {
    for (const Window& window : kWindows) {
      for (int rows : {1, 15, 70})
        expect_parity({layer_shape(1, 64, 64), raw_scheme(), window, position, rows}, 3);
    }
  }
}

TEST(Attend, ZeroQueriesGiveTheMeanOfWhatIsVisible) {
  const KvScheme rotated{&rotated_format(), &rotated_format(), DType::kF32};
  for (const Window& window : kWindows) {
    for (const KvScheme& scheme : {raw_scheme(DType::kF32), rotated}) {
      const TestCacheOptions options{layer_shape(2, 32, 32), scheme, window, 150, 60};
      AttendCase test({options}, 1);
      std::fill(test.queries.begin(), test.queries.end(), 0.0f);
      const std::vector<float> out = test.reference();
      for (int row = 0; row < options.rows; row += 13) {
        const int64_t p = options.position + row;
        for (int head = 0; head < 2; ++head) {
          double sum = 0;
          int seen = 0;
          for (int64_t k = 0; k <= p; ++k) {
            const bool recent = p - k < window.max_size - window.keep;
            if (!window.none() && k >= window.keep && !recent) continue;
            sum += test.caches[0]->written(Side::kValue, k, head, 5);
            ++seen;
          }
          EXPECT_NEAR(out[static_cast<size_t>((row * 2 + head) * 32 + 5)], sum / seen, 1e-5) << p;
        }
      }
    }
  }
}

TEST(Attend, DeepCachesMergeManyRanges) {
  // 40,000 positions are 625 pages: ranges of 16. A window over the end has few.
  const KvLayerShape shape = layer_shape(1, 32, 32);
  expect_parity({shape, raw_scheme(), {}, 40000, 1}, 1);
  expect_parity({shape, raw_scheme(), {700, 4}, 40000, 2}, 1);
}

TEST(Attend, RotatedRowsEqualRawOnes) {
  const RowFormat& rotated = rotated_format();
  const KvScheme schemes[] = {{&rotated, &raw_format(), DType::kF16},
                              {&raw_format(), &rotated, DType::kF16},
                              {&rotated, &rotated, DType::kF16}};
  for (const KvScheme& scheme : schemes) {
    for (int dim : {32, 80}) {
      for (int64_t position : {int64_t{3}, int64_t{63}, int64_t{64}, int64_t{200}}) {
        for (const Window& window : {Window{}, Window{65, 4}, Window{100, 2}, Window{90, 0}}) {
          if (dim == 80 && !window.none()) continue;
          for (int rows : {1, 20}) {
            TestCacheOptions options{layer_shape(2, dim, dim), scheme, window, position, rows};
            expect_parity(options, 3);
            AttendCase sealed({options}, 3);
            options.scheme = raw_scheme();
            AttendCase raw({options}, 3);
            // The same values, in another order of sums.
            EXPECT_LE(largest_difference(sealed.reference(), raw.reference()), kFloatBound);
          }
        }
      }
    }
  }
}

std::vector<TestCacheOptions> mixed_batch() {
  const KvLayerShape shape = layer_shape(3, 64, 64);
  const KvScheme rotated{&rotated_format(), &rotated_format(), DType::kF16};
  return {{shape, raw_scheme(), {}, 1200, 1, 1}, {shape, raw_scheme(), {100, 4}, 300, 1, 2},
          {shape, raw_scheme(), {}, 90, 150, 3}, {shape, rotated, {}, 700, 3, 4},
          {shape, raw_scheme(), {}, 0, 1, 5},    {shape, rotated, {130, 4}, 400, 20, 6}};
}

// One of each kind of kernel.
std::vector<KvScheme> code_kinds() {
  const RowFormat* formats[] = {find_row_format("aura2"),   find_row_format("aura3"),
                                find_row_format("aura4"),   find_row_format("aura8"),
                                find_row_format("affine4"), find_row_format("affine6"),
                                find_row_format("affine8")};
  std::vector<KvScheme> schemes;
  for (size_t i = 0; i < std::size(formats); ++i)
    schemes.push_back({formats[i], formats[(i + 3) % std::size(formats)], DType::kF16});
  if (kSanitized) schemes.resize(3);
  return schemes;
}

std::vector<TestCacheOptions> mixed_batch_of_codes() {
  const KvLayerShape shape = layer_shape(2, 64, 64);
  std::vector<TestCacheOptions> options;
  for (const KvScheme& scheme : code_kinds()) {
    const uint64_t seed = options.size() + 1;
    options.push_back({shape, scheme, {}, 300 + static_cast<int64_t>(seed), 1, seed, 2});
    options.push_back({shape, scheme, {100, 4}, 190, 2, seed + 20, 2});
    options.push_back({shape, scheme, {}, 110, 20, seed + 40, 2});
  }
  return options;
}

void expect_batch_gives_what_each_gives_alone(const std::vector<TestCacheOptions>& options) {
  AttendCase batch(options, 3);
  for (Isa isa : available_isas()) {
    const std::vector<float> together = batch.cpu(isa, 2);
    size_t at = 0;
    for (const TestCacheOptions& option : options) {
      const std::vector<float> alone = AttendCase({option}, 3).cpu(isa);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + static_cast<int64_t>(at)))
          << describe_case(option, 3, isa);
      at += alone.size();
    }
  }
}

TEST(Attend, ABatchGivesWhatEachSequenceGivesAlone) {
  expect_batch_gives_what_each_gives_alone(mixed_batch());
  expect_batch_gives_what_each_gives_alone(mixed_batch_of_codes());
}

TEST(Attend, ManyDecodeRowsTakeSeveralRounds) {
  std::vector<TestCacheOptions> options;
  for (uint64_t s = 0; s < 40; ++s) {
    options.push_back({layer_shape(1, 32, 32), raw_scheme(), {}, 300 + static_cast<int64_t>(s), 1, s + 1});
  }
  AttendCase batch(options, 2);
  const std::vector<float> expected = batch.reference();
  for (Isa isa : available_isas()) EXPECT_LE(largest_difference(batch.cpu(isa, 2), expected), kFloatBound);
}

TEST(Attend, WorkersDoNotChangeAResult) {
  for (const auto& options : {mixed_batch(), mixed_batch_of_codes()}) {
    AttendCase batch(options, 3);
    for (Isa isa : available_isas()) {
      const std::vector<float> one = batch.cpu(isa, 1);
      for (int workers : {2, 3, 7})
        EXPECT_EQ(batch.cpu(isa, workers), one) << isa_name(isa) << " " << workers;
    }
  }
}

TEST(Attend, ChunksOfAPromptDoNotChangeARow) {
  // Rows 64..163 as one chunk and as two: the same kernels, so the same bits.
  std::vector<KvScheme> schemes = code_kinds();
  schemes.push_back(raw_scheme());
  for (const KvScheme& scheme : schemes) {
    for (Isa isa : available_isas()) {
      const TestCacheOptions whole{layer_shape(1, 64, 64), scheme, {}, 64, 100, 1, 2};
      TestCacheOptions first = whole, second = whole;
      first.rows = 37;
      second.position = 64 + 37;
      second.rows = 63;
      std::vector<float> parts = AttendCase({first}, 3).cpu(isa);
      const std::vector<float> rest = AttendCase({second}, 3).cpu(isa);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(parts, AttendCase({whole}, 3).cpu(isa)) << isa_name(isa) << " " << scheme.key->name;
    }
  }
}

TEST(Attend, ReferenceRowsDoNotDependOnTheChunk) {
  TestCacheOptions whole{layer_shape(2, 64, 64), raw_scheme(DType::kF32), {}, 60, 30};
  const std::vector<float> together = AttendCase({whole}, 2).reference();
  for (int row : {0, 3, 4, 29}) {
    TestCacheOptions one = whole;
    one.position += row;
    one.rows = 1;
    const std::vector<float> alone = AttendCase({one}, 2).reference();
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), together.begin() + row * static_cast<int64_t>(alone.size())));
  }
}

// Whether the values of one head of one row, and no others, are NaN.
testing::AssertionResult nan_in(int64_t head_row, const std::vector<float>& out, int width) {
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    if (std::isnan(out[static_cast<size_t>(i)]) != (i / width == head_row))
      return testing::AssertionFailure() << out[static_cast<size_t>(i)] << " at " << i;
  }
  return testing::AssertionSuccess();
}

// Spoils one channel of a query of the case, in every way.
void expect_nan_of_query(AttendCase& test, int64_t head_row, int width) {
  float& channel = test.queries[static_cast<size_t>(head_row * width + 37)];
  const float before = channel;
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    channel = bad;
    for (Isa isa : available_isas()) {
      for (Products products : {Products::kBf16, Products::kExact}) {
        test.batch.products = products;
        EXPECT_TRUE(nan_in(head_row, test.cpu(isa), width)) << bad << " " << isa_name(isa);
      }
    }
  }
  channel = NAN;
  // What the reference makes of scores has nothing to do with codes, which it takes long to read.
  if (!test.sequences[0].view.scheme.seals()) {
    EXPECT_TRUE(nan_in(head_row, test.reference(), width));
  }
  channel = before;
}

// In the first and the last row of a step, over raw rows and every code.
TEST(Attend, NotANumberStaysNotANumberOfAQuery) {
  constexpr int kGroup = 3, kDim = 64;
  const std::vector<float> sinks = {3, -1, 0.5f};
  std::vector<KvScheme> schemes = code_schemes();
  for (DType raw : {DType::kF32, DType::kF16, DType::kBF16}) schemes.push_back(raw_scheme(raw));
  for (const KvScheme& scheme : schemes) {
    for (const int rows : {1, 20}) {
      AttendCase test({{layer_shape(1, kDim, kDim), scheme, {}, 140, rows, 1, 3}}, kGroup);
      for (const float* of_heads : {static_cast<const float*>(nullptr), sinks.data()}) {
        SCOPED_TRACE(testing::Message() << scheme.key->name << " " << scheme.value->name << " " << rows);
        test.batch.sinks = of_heads;
        expect_nan_of_query(test, 1, kDim);
        expect_nan_of_query(test, int64_t{rows} * kGroup - 1, kDim);
      }
    }
  }
}

TEST(Attend, NotANumberStaysNotANumberOfASink) {
  constexpr int kGroup = 3, kDim = 64;
  for (const KvScheme& scheme : {raw_scheme(), KvScheme{&rotated_format(), &rotated_format(), DType::kF32}}) {
    for (const float bad : {NAN, -NAN, INFINITY}) {
      const std::vector<float> sinks = {3, bad, 0.5f};
      for (const int rows : {1, 20}) {
        AttendCase test({{layer_shape(1, kDim, kDim), scheme, {}, 140, rows}}, kGroup);
        test.batch.sinks = sinks.data();
        for (Isa isa : available_isas()) {
          const std::vector<float> out = test.cpu(isa), expected = test.reference();
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(std::isnan(out[i]), i / kDim % kGroup == 1) << isa_name(isa) << " " << i;
            ASSERT_EQ(std::isnan(expected[i]), std::isnan(out[i]));
          }
        }
      }
    }
  }
}

// A head without a sink among those that have one.
TEST(Attend, ASinkOfMinusInfinityIsNone) {
  const std::vector<float> sinks(3, -INFINITY);
  for (const int rows : {1, 20}) {
    AttendCase test({{layer_shape(1, 64, 64), raw_scheme(), {}, 140, rows}}, 3);
    const std::vector<float> expected = test.reference();
    test.batch.sinks = sinks.data();
    for (Isa isa : available_isas())
      EXPECT_LE(largest_difference(test.cpu(isa), expected), bound_for(isa, rows, Products::kExact));
  }
}

// --- compressed formats --------------------------------------------------------------------------
// The whole cross is tests/matrix/attention_matrix_test.cc; here every format, width, group and window once.

constexpr int kCodeGroups[] = {1, 2, 4, 5, 7, 8};
const Window kCodeWindows[] = {{64, 0}, {65, 4}, {100, 4}, {130, 100}, {20, 2}};

void expect_parity_on_codes(const TestCacheOptions& options, int group) {
  EXPECT_EQ(parity_on_codes(options, group), "") << options.bias;
}

TEST(AttendOnCodes, EveryFormatEqualsTheReference) {
  for (const KvScheme& scheme : code_schemes()) {
    expect_parity_on_codes({layer_shape(2, 64, 64), scheme, {}, 199, 1, 1, 3}, 3);
    expect_parity_on_codes({layer_shape(1, 80, 80), scheme, {}, 140, 1, 2, 0}, 2);
    expect_parity_on_codes({layer_shape(1, 64, 64), scheme, {}, 120, 20, 1, 3}, 3);
  }
}

TEST(AttendOnCodes, EveryWidthEqualsTheReference) {
  for (const KvScheme& scheme : code_kinds()) {
    for (int dim : kDims) {
      expect_parity_on_codes({layer_shape(1, dim, dim), scheme, {}, 199, 1, 1, 3}, 3);
      expect_parity_on_codes({layer_shape(1, dim, dim), scheme, {}, 120, 17, 1, 3}, 1);
    }
  }
}

TEST(AttendOnCodes, OddWidthsEqualTheReference) {
  for (const KvScheme& scheme : code_kinds()) {
    for (int dim : {16, 24, 40, 72, 160, 512}) {
      if (!scheme.key->takes_dim(dim) || !scheme.value->takes_dim(dim)) continue;
      expect_parity_on_codes({layer_shape(1, dim, dim), scheme, {}, 199, 1, 1, 3}, 2);
      expect_parity_on_codes({layer_shape(1, dim, dim), scheme, {}, 120, 17, 1, 3}, 1);
    }
  }
}

TEST(AttendOnCodes, KeysAndValuesMayDifferInWidth) {
  for (const KvScheme& scheme : code_kinds()) {
    for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, std::pair{64, 96}}) {
      expect_parity_on_codes({layer_shape(1, key_dim, value_dim), scheme, {}, 150, 1, 1, 3}, 2);
      expect_parity_on_codes({layer_shape(1, key_dim, value_dim), scheme, {}, 120, 20, 1, 3}, 2);
    }
  }
}

TEST(AttendOnCodes, EveryGroupSizeEqualsTheReference) {
  for (const KvScheme& scheme : code_kinds()) {
    for (int group : kCodeGroups) {
      expect_parity_on_codes({layer_shape(2, 64, 64), scheme, {}, 130, 1, 1, 1}, group);
      expect_parity_on_codes({layer_shape(1, 128, 128), scheme, {}, 190, 2, 1, 1}, group);
    }
  }
}

TEST(AttendOnCodes, EveryWindowEqualsTheReference) {
  for (const KvScheme& scheme : code_kinds()) {
    for (const Window& window : kCodeWindows) {
      for (int64_t position : {int64_t{66}, int64_t{300}})
        expect_parity_on_codes({layer_shape(1, 64, 64), scheme, window, position, 1, 1, 3}, 3);
      expect_parity_on_codes({layer_shape(1, 64, 64), scheme, window, 150, 60, 1, 3}, 1);
    }
  }
}

TEST(Attend, PrefillScratchDoesNotGrowWithDepth) {
  // What grows are the decode rows' partial states, up to 64 ranges of a row.
  AttendLimits limits{512, 1 << 16, 9, 3, 64, 64, 2};
  const int64_t bytes = cpu::attend_scratch_bytes(limits);
  limits.max_positions = int64_t{1} << 30;
  EXPECT_EQ(cpu::attend_scratch_bytes(limits), bytes);
}

}  // namespace
}  // namespace butter
