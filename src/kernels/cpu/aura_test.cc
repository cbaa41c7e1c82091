#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/buffer.h"
#include "kernels/cpu/aura_kernels.h"
#include "kernels/cpu/aura_layout.h"
#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"
#include "kernels/scale_byte.h"
#include "kernels/trellis.h"

namespace butter::cpu {
namespace {

constexpr int kDims[] = {8, 32, 64, 80, 96, 112, 128, 192, 256};
constexpr int kGroups[] = {1, 2, 3, 4, 5, 7, 8, 11};

const AuraKernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return aura_kernels_avx512();
  if (isa == Isa::kAvx2) return aura_kernels_avx2();
#endif
  return aura_kernels_portable();
}

RowShape shape_of(int bits, int dim, Side side) {
  RowShape shape;
  shape.dim = dim;
  shape.layer = 5;
  shape.side = side;
  shape.bits = bits;
  return shape;
}

int64_t record_bytes(const RowShape& shape) {
  return kPageRows * (trellis_row_bytes(shape.bits, shape.dim) + 1);
}

// Calls test(isa, shape) for every instruction set, width and number of bits of one side.
template <typename Test>
void for_all(Side side, const Test& test) {
  for (Isa isa : available_isas()) {
    for (int dim : kDims) {
      for (int bits : {2, 3, 4}) {
        SCOPED_TRACE(testing::Message() << isa_name(isa) << ", width " << dim << ", " << bits << " bits");
        test(isa, shape_of(bits, dim, side));
      }
    }
  }
}

// A record of random codes and scales: any bytes are a valid one. The bytes after it are another's.
struct RandomRecord {
  RandomRecord(const RowShape& shape, uint64_t seed)
      : exchange(static_cast<size_t>(record_bytes(shape))), bytes(exchange.size()) {
    std::mt19937_64 random(seed);
    for (std::byte& byte : exchange) byte = static_cast<std::byte>(random());
    scale(0) = 0;
    scale(1) = 255;
    scale(2) = 1;
    tail.exponent[static_cast<int>(shape.side)] = static_cast<int8_t>(random() % 9) - 4;
    aura_import(shape, exchange.data(), bytes.data());
  }
  uint8_t& scale(int row) {
    return reinterpret_cast<uint8_t&>(exchange[exchange.size() - kPageRows + static_cast<size_t>(row)]);
  }
  Record record() const { return {bytes.data(), kPageRows, &tail}; }
  Record reference() const { return {exchange.data(), kPageRows, &tail}; }

  std::vector<std::byte> exchange, bytes;
  RecordTail tail;
};

// What a record says in plain words: levels [64][dim], scales over 2^u [64].
struct Plain {
  Plain(const RowShape& shape, RandomRecord& record) : levels(static_cast<size_t>(kPageRows * shape.dim)) {
    for (int row = 0; row < kPageRows; ++row) {
      const int64_t row_bytes = trellis_row_bytes(shape.bits, shape.dim);
      decode_levels(shape.bits, reinterpret_cast<const uint8_t*>(record.exchange.data()) + row * row_bytes,
                    shape.dim, levels.data() + row * shape.dim);
      scales[row] = scale_value(record.scale(row), 0);
    }
    page_scale = std::exp2(static_cast<float>(record.tail.exponent[static_cast<int>(shape.side)]));
  }
  std::vector<int8_t> levels;
  float scales[kPageRows];
  float page_scale;
};

std::vector<float> random_floats(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Weights as a softmax gives them: many small ones; some rows hidden, one row hidden from one head only.
std::vector<float> random_weights(uint64_t seed, int heads) {
  std::mt19937_64 random(seed);
  std::vector<float> weights(static_cast<size_t>(heads * kPageRows));
  std::uniform_real_distribution<float> logarithm(-12, 0);
  for (float& weight : weights) weight = std::exp2(logarithm(random));
  for (int h = 0; h < heads; ++h) {
    for (int row : {3, 17, 40, 41, 42, 43, 63}) weights[static_cast<size_t>(h * kPageRows + row)] = 0;
  }
  weights[5] = 0;
  return weights;
}

TEST(AuraLayout, EveryByteOfARecordHasOnePlaceAndComesBack) {
  for (Side side : {Side::kKey, Side::kValue}) {
    for (int dim : kDims) {
      for (int bits : {2, 3, 4}) {
        const RowShape shape = shape_of(bits, dim, side);
        const RandomRecord record(shape, 1);
        std::vector<std::byte> back(record.exchange.size());
        aura_export(shape, record.bytes.data(), back.data());
        EXPECT_EQ(back, record.exchange);
      }
    }
  }
}

TEST(AuraLayout, AccumulatorsHoldEveryChannelOfAUnitOnce) {
  for (int bits : {2, 3, 4}) {
    uint64_t seen = 0;
    for (int i = 0; i < kAuraUnit; ++i) seen |= uint64_t{1} << aura_value_channel(bits, 64, i);
    EXPECT_EQ(seen, ~uint64_t{0}) << bits;
  }
}

TEST(AuraKernels, ScoresAreExactProductsOfIntegers) {
  for_all(Side::kKey, [](Isa isa, const RowShape& shape) {
    RandomRecord record(shape, 2);
    const Plain plain(shape, record);
    const int padded = (shape.dim + kAuraUnit - 1) / kAuraUnit * kAuraUnit;
    for (int heads : kGroups) {
      std::mt19937_64 random(3);
      std::vector<int8_t> natural(static_cast<size_t>(heads * padded));
      std::vector<AuraQuery> prepared(static_cast<size_t>(heads * (1 + padded / 64)));
      auto* bytes = reinterpret_cast<std::byte*>(prepared.data());
      for (int h = 0; h < heads; ++h) {
        AuraQuery query{};
        query.scale = 0.25F * static_cast<float>(h + 1);
        int8_t* values = natural.data() + h * padded;
        for (int j = 0; j < shape.dim; ++j) {
          values[j] =
              static_cast<int8_t>(h == 0 ? (j % 2 ? 127 : -127) : static_cast<int>(random() % 255) - 127);
          query.sum += values[j];
        }
        std::byte* to = bytes + h * (64 + padded);
        std::memcpy(to, &query, sizeof query);
        kernels_of(isa).order_query(shape, values, reinterpret_cast<int8_t*>(to + sizeof query));
      }
      std::vector<float> scores(static_cast<size_t>(heads * kPageRows));
      kernels_of(isa).score(shape, bytes, heads, record.record(), scores.data());
      for (int h = 0; h < heads; ++h) {
        for (int row = 0; row < kPageRows; ++row) {
          int32_t sum = 0;
          for (int j = 0; j < shape.dim; ++j) {
            sum += natural[static_cast<size_t>(h * padded + j)] *
                   plain.levels[static_cast<size_t>(row * shape.dim + j)];
          }
          const float want = static_cast<float>(sum) * plain.scales[row] * plain.page_scale * 0.25F *
                             static_cast<float>(h + 1);
          // Three roundings of products.
          ASSERT_NEAR(scores[static_cast<size_t>(h * kPageRows + row)], want, 4e-7F * std::abs(want))
              << heads << " heads, head " << h << ", row " << row;
        }
      }
    }
  });
}

TEST(AuraKernels, SumsAreExactProductsOfLevelsAndByteWeights) {
  for_all(Side::kValue, [](Isa isa, const RowShape& shape) {
    RandomRecord record(shape, 4);
    const Plain plain(shape, record);
    const float unit = plain.page_scale * trellis_table(shape.bits).step;
    for (int heads : kGroups) {
      const std::vector<float> weights = random_weights(5, heads);
      const std::vector<float> before = random_floats(6, heads * shape.dim);
      std::vector<float> acc = before;
      kernels_of(isa).accumulate(shape, weights.data(), heads, record.record(), acc.data());
      for (int h = 0; h < heads; ++h) {
        float products[kPageRows], largest = 0;
        for (int row = 0; row < kPageRows; ++row) {
          products[row] = weights[static_cast<size_t>(h * kPageRows + row)] * plain.scales[row];
          largest = std::max(largest, products[row]);
        }
        std::vector<int32_t> sums(static_cast<size_t>(shape.dim));
        for (int row = 0; row < kPageRows; ++row) {
          const auto weight = static_cast<int32_t>(std::lrint(products[row] * (255.0F / largest)));
          for (int j = 0; j < shape.dim; ++j) {
            sums[static_cast<size_t>(j)] += weight * plain.levels[static_cast<size_t>(row * shape.dim + j)];
          }
        }
        for (int i = 0; i < shape.dim; ++i) {
          const int channel =
              i / kAuraUnit * kAuraUnit + aura_value_channel(shape.bits, shape.dim, i % kAuraUnit);
          const float added =
              static_cast<float>(sums[static_cast<size_t>(channel)]) * unit * largest * (1.0F / 255);
          const auto at = static_cast<size_t>(h * shape.dim + i);
          ASSERT_NEAR(acc[at], before[at] + added, 4e-7F * (std::abs(added) + std::abs(before[at])))
              << heads << " heads, head " << h << ", place " << i;
        }
      }
    }
  });
}

TEST(AuraKernels, PagesWithoutWeightAddNothing) {
  for_all(Side::kValue, [](Isa isa, const RowShape& shape) {
    RandomRecord record(shape, 7);
    const std::vector<float> weights(2 * kPageRows, 0.0F);
    const std::vector<float> before = random_floats(6, 2 * shape.dim);
    std::vector<float> acc = before;
    kernels_of(isa).accumulate(shape, weights.data(), 2, record.record(), acc.data());
    EXPECT_EQ(acc, before);
  });
}

TEST(AuraCodec, DecodesToWhatTheReferenceDecodes) {
  for (Side side : {Side::kKey, Side::kValue}) {
    for_all(side, [](Isa isa, const RowShape& shape) {
      const RandomRecord record(shape, 8);
      std::vector<float> got(static_cast<size_t>(kPageRows * shape.dim)), want(got.size());
      aura_codec(isa)->decode(shape, record.record(), got.data());
      reference::aura_codec().decode(shape, record.reference(), want.data());
      float largest = 0;
      for (float value : want) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < want.size(); ++i) {
        // Sums of the rotation in another order.
        ASSERT_NEAR(got[i], want[i], 2e-6F * largest) << i;
      }
    });
  }
}

TEST(AuraCodec, FinishUndoesTurn) {
  for (Side side : {Side::kKey, Side::kValue}) {
    for_all(side, [](Isa isa, const RowShape& shape) {
      const std::vector<float> rows = random_floats(9, 3 * shape.dim);
      std::vector<float> turned = rows;
      aura_codec(isa)->turn(shape, 3, turned.data());
      aura_codec(isa)->finish(shape, 3, turned.data());
      for (size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(turned[i], rows[i], 4e-6F);
    });
  }
}

// The error of a query's value is at most half a step, a step 1/127 of the turned query's largest.
TEST(AuraCodec, ScoresAreTheReferencesWithinTheStepOfAQuery) {
  for_all(Side::kKey, [](Isa isa, const RowShape& shape) {
    RandomRecord record(shape, 10);
    const Plain plain(shape, record);
    const RowCodec& codec = *aura_codec(isa);
    const RowCodec& reference = reference::aura_codec();
    constexpr int kHeads = 3;
    std::vector<float> queries = random_floats(11, kHeads * shape.dim);
    std::fill_n(queries.begin(), shape.dim, 0.0F);
    std::vector<float> prepared(static_cast<size_t>(prepared_bytes_limit(shape.dim, kHeads) / 4));
    std::vector<float> turned(queries), got(kHeads * kPageRows), want(kHeads * kPageRows);
    ASSERT_LE(codec.prepared_bytes(shape, 1), prepared_bytes_limit(shape.dim, 1));
    ASSERT_LE(codec.prepared_bytes(shape, kHeads), prepared_bytes_limit(shape.dim, kHeads));
    codec.prepare(shape, queries.data(), kHeads, reinterpret_cast<std::byte*>(prepared.data()));
    codec.score(shape, reinterpret_cast<const std::byte*>(prepared.data()), kHeads, record.record(),
                got.data());
    reference.turn(shape, kHeads, turned.data());
    reference.score(shape, reinterpret_cast<const std::byte*>(turned.data()), kHeads, record.reference(),
                    want.data());
    for (int h = 0; h < kHeads; ++h) {
      float largest = 0;
      for (int j = 0; j < shape.dim; ++j) {
        largest = std::max(largest, std::abs(turned[static_cast<size_t>(h * shape.dim + j)]));
      }
      for (int row = 0; row < kPageRows; ++row) {
        float size = 0;  // of the row: the sum of |value|
        for (int j = 0; j < shape.dim; ++j) {
          size += std::abs(static_cast<float>(plain.levels[static_cast<size_t>(row * shape.dim + j)]));
        }
        size *= plain.scales[row] * plain.page_scale * trellis_table(shape.bits).step;
        const auto at = static_cast<size_t>(h * kPageRows + row);
        ASSERT_NEAR(got[at], want[at], (0.51F / 127 + 1e-5F) * largest * size + 1e-30F) << h << " " << row;
      }
    }
  });
}

// The error of a weight is at most half of 1/255 of the page's largest.
TEST(AuraCodec, SumsAreTheReferencesWithinTheStepOfAWeight) {
  for_all(Side::kValue, [](Isa isa, const RowShape& shape) {
    RandomRecord record(shape, 12);
    const Plain plain(shape, record);
    const RowCodec& codec = *aura_codec(isa);
    constexpr int kHeads = 3;
    const std::vector<float> weights = random_weights(13, kHeads);
    std::vector<float> got(static_cast<size_t>(kHeads * shape.dim)), want(got.size());
    codec.accumulate(shape, weights.data(), kHeads, record.record(), got.data());
    codec.finish(shape, kHeads, got.data());
    codec.turn(shape, kHeads, got.data());
    // In the rotated basis and natural order, where the bound is known for each channel.
    codec.finish(shape, kHeads, got.data());
    reference::aura_codec().turn(shape, kHeads, got.data());
    reference::aura_codec().accumulate(shape, weights.data(), kHeads, record.reference(), want.data());
    for (int h = 0; h < kHeads; ++h) {
      float largest = 0;
      for (int row = 0; row < kPageRows; ++row) {
        largest = std::max(largest, weights[static_cast<size_t>(h * kPageRows + row)] * plain.scales[row]);
      }
      largest *= plain.page_scale * trellis_table(shape.bits).step;
      for (int j = 0; j < shape.dim; ++j) {
        float size = 0;  // of the channel: the sum of |level| over the rows
        for (int row = 0; row < kPageRows; ++row) {
          size += std::abs(static_cast<float>(plain.levels[static_cast<size_t>(row * shape.dim + j)]));
        }
        const auto at = static_cast<size_t>(h * shape.dim + j);
        ASSERT_NEAR(got[at], want[at], (0.51F / 255 + 1e-5F) * largest * size) << h << " " << j;
      }
    }
  });
}

TEST(AuraCodec, SealedRowsReadBackAsTheReferencesDo) {
  for (Side side : {Side::kKey, Side::kValue}) {
    for_all(side, [](Isa isa, const RowShape& shape) {
      if (shape.dim > 128) return;  // encoding takes long
      const std::vector<float> rows = random_floats(14, kPageRows * shape.dim);
      std::vector<std::byte> record(static_cast<size_t>(record_bytes(shape))), exchange(record.size());
      Buffer scratch = Buffer::allocate(encode_scratch_bytes(shape.dim)).value();
      RecordTail tail;
      aura_codec(isa)->encode(shape, rows.data(), record.data(), &tail, scratch.data());
      aura_export(shape, record.data(), exchange.data());
      std::vector<float> got(rows.size());
      reference::aura_codec().decode(shape, {exchange.data(), kPageRows, &tail}, got.data());
      double error = 0, square = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        error += (got[i] - rows[i]) * (got[i] - rows[i]);
        square += rows[i] * rows[i];
      }
      // What Lloyd-Max levels would give at the best, and do not at 8 channels a row.
      constexpr double kBound[] = {0.16, 0.0335, 0.0091};
      EXPECT_LT(error / square, kBound[shape.bits - 2]);
    });
  }
}

}  // namespace
}  // namespace butter::cpu
