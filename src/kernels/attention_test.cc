// Attention: every instruction set against the reference, and the promises that hold bit for bit.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/buffer.h"
#include "kernels/attend_testing.h"
#include "kernels/rotated_testing.h"

namespace butter {
namespace {

KvScheme raw_scheme(DType raw = DType::kF16) {
  return {&raw_format(), &raw_format(), raw};
}

KvLayerShape layer_shape(int kv_heads, int key_dim, int value_dim) {
  return {3, kv_heads, key_dim, value_dim, 0};
}

// A batch with its queries and result.
struct Case {
  explicit Case(const std::vector<TestCacheOptions>& options, int group) {
    const KvLayerShape& shape = options[0].shape;
    batch.q_heads = group * shape.kv_heads;
    batch.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
    int rows = 0;
    for (const TestCacheOptions& option : options) {
      caches.push_back(std::make_unique<TestCache>(option));
      sequences.push_back(caches.back()->sequence(rows));
      // A row's query depends on its sequence and position alone, so that it is the same in any batch.
      for (int row = 0; row < option.rows; ++row) {
        const auto seed = option.seed * 1000003 + static_cast<uint64_t>(option.position + row) + 77;
        const std::vector<float> query = random_floats(seed, int64_t{batch.q_heads} * shape.key_dim);
        queries.insert(queries.end(), query.begin(), query.end());
      }
      rows += option.rows;
      max_positions = std::max(max_positions, option.position + option.rows);
    }
    batch.sequences = sequences.data();
    batch.count = static_cast<int>(sequences.size());
    batch.queries = queries.data();
    limits = {rows, max_positions, batch.q_heads, shape.kv_heads, shape.key_dim, shape.value_dim, 1};
    out_width = int64_t{batch.q_heads} * shape.value_dim;
  }

  std::vector<float> reference() {
    std::vector<float> out(static_cast<size_t>(limits.rows * out_width), NAN);
    batch.out = out.data();
    reference::attend(batch);
    return out;
  }

  // Scratch is exactly as large as planned, and full of NaN.
  std::vector<float> cpu(Isa isa, int workers = 1) {
    std::vector<float> out(static_cast<size_t>(limits.rows * out_width), NAN);
    batch.out = out.data();
    limits.workers = workers;
    const int64_t bytes = cpu::attend_scratch_bytes(limits);
    const auto scratch = std::make_unique<std::byte[]>(static_cast<size_t>(bytes + Buffer::kAlignment));
    std::fill_n(scratch.get(), bytes + Buffer::kAlignment, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(scratch.get());
    std::byte* aligned =
        scratch.get() + (Buffer::kAlignment - address % Buffer::kAlignment) % Buffer::kAlignment;
    ThreadPool pool(workers);
    pool.run([&](const Worker& worker) { cpu::attend(batch, isa, aligned, worker); });
    return out;
  }

  std::vector<std::unique_ptr<TestCache>> caches;
  std::vector<AttendSequence> sequences;
  std::vector<float> queries;
  AttendBatch batch;
  AttendLimits limits;
  int64_t max_positions = 0;
  int64_t out_width = 0;
};

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

std::string describe(const TestCacheOptions& o, int group, Isa isa) {
  return fmt::format("{} d {}/{} group {} {} {}/{} position {} rows {} window {}/{}", isa_name(isa),
                     o.shape.key_dim, o.shape.value_dim, group, dtype_name(o.scheme.raw), o.scheme.key->name,
                     o.scheme.value->name, o.position, o.rows, o.window.max_size, o.window.keep);
}

void expect_parity(const TestCacheOptions& options, int group) {
  Case test({options}, group);
  const std::vector<float> expected = test.reference();
  for (Isa isa : available_isas()) {
    for (Products products : {Products::kBf16, Products::kExact}) {
      test.batch.products = products;
      EXPECT_LE(largest_difference(test.cpu(isa), expected), bound_for(isa, options.rows, products))
          << describe(options, group, isa);
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
      Case test({options}, 1);
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
            Case sealed({options}, 3);
            options.scheme = raw_scheme();
            Case raw({options}, 3);
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

TEST(Attend, ABatchGivesWhatEachSequenceGivesAlone) {
  const std::vector<TestCacheOptions> options = mixed_batch();
  Case batch(options, 3);
  for (Isa isa : available_isas()) {
    const std::vector<float> together = batch.cpu(isa, 2);
    size_t at = 0;
    for (const TestCacheOptions& option : options) {
      const std::vector<float> alone = Case({option}, 3).cpu(isa);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + static_cast<int64_t>(at)))
          << describe(option, 3, isa);
      at += alone.size();
    }
  }
}

TEST(Attend, ManyDecodeRowsTakeSeveralRounds) {
  std::vector<TestCacheOptions> options;
  for (uint64_t s = 0; s < 40; ++s) {
    options.push_back({layer_shape(1, 32, 32), raw_scheme(), {}, 300 + static_cast<int64_t>(s), 1, s + 1});
  }
  Case batch(options, 2);
  const std::vector<float> expected = batch.reference();
  for (Isa isa : available_isas()) EXPECT_LE(largest_difference(batch.cpu(isa, 2), expected), kFloatBound);
}

TEST(Attend, WorkersDoNotChangeAResult) {
  Case batch(mixed_batch(), 3);
  for (Isa isa : available_isas()) {
    const std::vector<float> one = batch.cpu(isa, 1);
    for (int workers : {2, 3, 7}) EXPECT_EQ(batch.cpu(isa, workers), one) << isa_name(isa) << " " << workers;
  }
}

TEST(Attend, ChunksOfAPromptDoNotChangeARow) {
  // Rows 64..163 as one chunk and as two: the same kernels, so the same bits.
  for (Isa isa : available_isas()) {
    const TestCacheOptions whole{layer_shape(1, 64, 64), raw_scheme(), {}, 64, 100};
    TestCacheOptions first = whole, second = whole;
    first.rows = 37;
    second.position = 64 + 37;
    second.rows = 63;
    std::vector<float> parts = Case({first}, 3).cpu(isa);
    const std::vector<float> rest = Case({second}, 3).cpu(isa);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, Case({whole}, 3).cpu(isa)) << isa_name(isa);
  }
}

TEST(Attend, ReferenceRowsDoNotDependOnTheChunk) {
  TestCacheOptions whole{layer_shape(2, 64, 64), raw_scheme(DType::kF32), {}, 60, 30};
  const std::vector<float> together = Case({whole}, 2).reference();
  for (int row : {0, 3, 4, 29}) {
    TestCacheOptions one = whole;
    one.position += row;
    one.rows = 1;
    const std::vector<float> alone = Case({one}, 2).reference();
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), together.begin() + row * static_cast<int64_t>(alone.size())));
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
