// The CPU codecs of whole-number codes (affine, and aura with 8 bits): every instruction set against the
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/aura_int8.h"
#include "kernels/cpu/codes_layout.h"
#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"

namespace butter {
namespace {

const int kDims[] = {32, 64, 80, 96, 112, 128, 192, 256};
const int kGroups[] = {16, 32, 64, 128};
const int kHeadCounts[] = {1, 2, 3, 4, 5, 7, 8};

// A format of whole-number codes: affine, or aura with 8 bits (group 0).
struct CodeFormat {
  int bits = 8;
  int group = 0;

  bool integers() const { return group == 0; }
  RowShape shape(int dim, Side side) const { return {dim, DType::kF16, 5, side, bits, group}; }
  const RowCodec& reference() const {
    return integers() ? reference::aura_codec() : reference::affine_codec();
  }
  const RowCodec& cpu(Isa isa) const {
    return integers() ? cpu::aura_int8_codec(isa) : *cpu::affine_codec(isa);
  }
  int64_t record_bytes(int dim) const {
    const int64_t codes = int64_t{64} * ((dim * bits + 7) / 8);
    return codes + (integers() ? 64 : 4 * 64 * ((dim + group - 1) / group));
  }
};

std::vector<CodeFormat> code_formats() {
  std::vector<CodeFormat> formats = {{8, 0}};
  for (int bits : {4, 6, 8}) {
    for (int group : kGroups) formats.push_back({bits, group});
  }
  return formats;
}

std::vector<float> random_values(uint64_t seed, int64_t count, float mean = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : values) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
    }
    value = mean + 1.7f * sum;
  }
  return values;
}

// A page of one format, coded by the reference, and brought to an instruction set's order.
struct Page {
  Page(const CodeFormat& code_format, int dim, Side side, const std::vector<float>& rows)
      : format(code_format), shape(code_format.shape(dim, side)) {
    exchange.resize(static_cast<size_t>(format.record_bytes(dim)));
    std::vector<std::byte> scratch(static_cast<size_t>(encode_scratch_bytes(dim)));
    format.reference().encode(shape, rows.data(), exchange.data(), &tail, scratch.data());
    exact.resize(rows.size());
    format.reference().expand(shape, reference_record(), exact.data());
  }
  Record reference_record() const { return {exchange.data(), kPageRows, &tail}; }
  std::vector<std::byte> imported(Isa isa) const {
    std::vector<std::byte> record(exchange.size());
    format.cpu(isa).import_record(shape, exchange.data(), record.data());
    return record;
  }

  CodeFormat format;
  RowShape shape;
  RecordTail tail;
  std::vector<std::byte> exchange;
  std::vector<float> exact;  // in the basis of the codes
};

std::string describe(const RowShape& shape, Isa isa, int heads = 0) {
  return std::string(isa_name(isa)) + " bits " + std::to_string(shape.bits) + " group " +
         std::to_string(shape.group) + " d " + std::to_string(shape.dim) +
         (shape.side == Side::kKey ? " keys" : " values") + " heads " + std::to_string(heads);
}

template <typename Fn>
void for_each_page(const Fn& fn) {
  for (const CodeFormat& format : code_formats()) {
    for (int dim : kDims) {
      for (Side side : {Side::kKey, Side::kValue}) {
        fn(Page(format, dim, side, random_values(static_cast<uint64_t>(dim), int64_t{64} * dim, 0.5f)));
      }
    }
  }
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

TEST(CpuCodes, RecordsComeBackFromTheExchangeForm) {
  for_each_page([](const Page& page) {
    for (Isa isa : available_isas()) {
      const std::vector<std::byte> record = page.imported(isa);
      std::vector<std::byte> back(record.size());
      page.format.cpu(isa).export_record(page.shape, record.data(), back.data());
      EXPECT_EQ(back, page.exchange) << describe(page.shape, isa);
    }
  });
}

TEST(CpuCodes, AllInstructionSetsShareOneOrderOfBytes) {
  for_each_page([](const Page& page) {
    for (Isa isa : available_isas())
      EXPECT_EQ(page.imported(isa), page.imported(Isa::kPortable)) << describe(page.shape, isa);
  });
}

TEST(CpuCodes, RowsExpandToTheReferencesValues) {
  for_each_page([](const Page& page) {
    for (Isa isa : available_isas()) {
      const std::vector<std::byte> record = page.imported(isa);
      std::vector<float> rows(page.exact.size(), NAN);
      page.format.cpu(isa).expand(page.shape, {record.data(), kPageRows, &page.tail}, rows.data());
      EXPECT_EQ(rows, page.exact) << describe(page.shape, isa);
    }
  });
}

// Rows that stress the scales, among ordinary ones.
std::vector<float> hard_rows(int dim) {
  std::vector<float> rows = random_values(9, int64_t{64} * dim, -0.3f);
  const auto fill = [&](int row, float value) { std::fill_n(rows.begin() + int64_t{row} * dim, dim, value); };
  fill(0, 0.0f);
  fill(1, -0.0f);
  rows[static_cast<size_t>(dim) + 1] = 0.0f;
  fill(2, 3.25f);
  fill(3, 65504.0f);
  fill(4, -65504.0f);
  rows[static_cast<size_t>(4 * dim) + 7] = 65504.0f;
  fill(5, 1e-40f);
  rows[static_cast<size_t>(5 * dim) + 3] = -3e-39f;
  rows[static_cast<size_t>(6 * dim) + 11] = 1e5f;
  fill(7, 3e38f);
  rows[static_cast<size_t>(7 * dim)] = -3e38f;
  for (int i = 0; i < dim; ++i) rows[static_cast<size_t>(8 * dim + i)] *= 1e-7f;
  fill(9, 1e-7f);
  return rows;
}

// A page as an instruction set encodes it, in its own order of bytes.
struct EncodedPage {
  EncodedPage(const CodeFormat& format, const RowShape& shape, Isa isa, const std::vector<float>& rows)
      : record(static_cast<size_t>(format.record_bytes(shape.dim)), std::byte{0xee}) {
    std::vector<std::byte> scratch(static_cast<size_t>(encode_scratch_bytes(shape.dim)));
    format.cpu(isa).encode(shape, rows.data(), record.data(), &tail, scratch.data());
  }

  std::vector<std::byte> record;
  RecordTail tail;
};

template <typename Fn>
void for_each_encoding(const Fn& fn) {
  for (const CodeFormat& format : code_formats()) {
    for (int dim : kDims) {
      for (Side side : {Side::kKey, Side::kValue}) {
        for (const auto& rows : {random_values(3, int64_t{64} * dim, 1), hard_rows(dim)}) {
          for (Isa isa : available_isas()) fn(format, format.shape(dim, side), isa, rows);
        }
      }
    }
  }
}

TEST(CpuCodes, AffineEncodersWriteTheReferencesBytes) {
  for_each_encoding([](const CodeFormat& format, const RowShape& shape, Isa isa, const auto& rows) {
    if (format.integers()) return;
    const Page page(format, shape.dim, shape.side, rows);
    const EncodedPage encoded(format, shape, isa, rows);
    std::vector<std::byte> exchange(page.exchange.size());
    format.cpu(isa).export_record(shape, encoded.record.data(), exchange.data());
    EXPECT_EQ(exchange, page.exchange) << describe(shape, isa);
  });
}

// Rotations sum in another order than the reference, so codes may differ where a value lies between two. All
// are within half a step of what was turned: a step is 1/127 of the row's largest, rounded up by 1/16 at
// most, or the smallest scale of the page.
TEST(CpuCodes, IntegersAreWithinHalfAStep) {
  for_each_encoding([](const CodeFormat& format, const RowShape& shape, Isa isa, const auto& rows) {
    if (!format.integers()) return;
    const EncodedPage encoded(format, shape, isa, rows);
    std::vector<float> turned = rows, expanded(rows.size());
    for (float& value : turned) value = std::clamp(value, -0x1p56f, 0x1p56f);
    reference::aura_codec().turn(shape, kPageRows, turned.data());
    format.cpu(isa).expand(shape, {encoded.record.data(), kPageRows, &encoded.tail}, expanded.data());
    const float smallest = std::ldexp(1.0f, encoded.tail.exponent[static_cast<int>(shape.side)] - 18);
    for (int row = 0; row < kPageRows; ++row) {
      float largest = 0, worst = 0;
      for (int j = row * shape.dim; j < (row + 1) * shape.dim; ++j) {
        const auto at = static_cast<size_t>(j);
        largest = std::max(largest, std::fabs(turned[at]));
        const float difference = std::fabs(expanded[at] - turned[at]);
        worst = difference <= worst ? worst : difference;
      }
      EXPECT_LE(worst, 0.501f * std::max(largest * 17 / 16 / 127, smallest)) << describe(shape, isa) << row;
    }
  });
}

// What rounding takes: 4-bit codes meet queries of 7 bits and weights of 8, 6-bit codes queries of 14 bits
// and weights of 8, 8-bit codes 14 bits and 15, at least.
float query_step(const CodeFormat& format) {
  return 1.0f / (format.bits == 4 ? 127 : 16383);
}
float weight_step(const CodeFormat& format) {
  return 1.0f / (format.bits == 8 ? 32767 : 255);
}

// A channel of a query is off by half a step of the largest, times a row's value around its group's middle,
// at most half its range, say the largest value. What is left is float32: sums of `dim` products.
TEST(CpuCodes, ScoresEqualTheReferences) {
  for_each_page([](const Page& page) {
    if (page.shape.side == Side::kValue) return;
    const int dim = page.shape.dim;
    for (int heads : kHeadCounts) {
      const std::vector<float> queries = random_values(17, int64_t{heads} * dim, 0.2f);
      std::vector<std::byte> prepared(static_cast<size_t>(prepared_bytes_limit(dim, heads)));
      std::vector<float> expected(static_cast<size_t>(heads * kPageRows)), scores(expected.size());
      const RowCodec& plain = page.format.reference();
      plain.prepare(page.shape, queries.data(), heads, prepared.data());
      plain.score(page.shape, prepared.data(), heads, page.reference_record(), expected.data());
      const float size = static_cast<float>(dim) * largest_of(queries) * largest_of(page.exact);
      const float bound = size * (0.5f * query_step(page.format) + 4e-7f);
      for (Isa isa : available_isas()) {
        const RowCodec& codec = page.format.cpu(isa);
        const std::vector<std::byte> record = page.imported(isa);
        ASSERT_LE(codec.prepared_bytes(page.shape, heads), prepared_bytes_limit(dim, heads));
        codec.prepare(page.shape, queries.data(), heads, prepared.data());
        std::fill(scores.begin(), scores.end(), NAN);
        codec.score(page.shape, prepared.data(), heads, {record.data(), kPageRows, &page.tail},
                    scores.data());
        float worst = 0;
        for (size_t i = 0; i < scores.size(); ++i) {
          const float difference = std::fabs(scores[i] - expected[i]);
          worst = difference <= worst ? worst : difference;
        }
        EXPECT_LE(worst, bound) << describe(page.shape, isa, heads);
      }
    }
  });
}

// A weight times its row's scale is off by half a step of the largest weight times the largest scale, times a
// code around the middle, at most half a range: say the largest value; 64 rows of that. The rest is float32.
TEST(CpuCodes, SumsOfValuesEqualTheReferences) {
  for_each_page([](const Page& page) {
    if (page.shape.side == Side::kKey) return;
    const int dim = page.shape.dim;
    for (int heads : kHeadCounts) {
      std::vector<float> weights = random_values(23, int64_t{heads} * kPageRows);
      for (size_t i = 0; i < weights.size(); ++i) {
        // Some rows are hidden from all heads, some weigh nothing for one.
        weights[i] = i % 64 % 7 == 2 || i % 11 == 0 ? 0 : std::exp2(-4 * std::fabs(weights[i]));
      }
      const std::vector<float> before = random_values(29, int64_t{heads} * dim);
      std::vector<float> expected = before;
      page.format.reference().accumulate(page.shape, weights.data(), heads, page.reference_record(),
                                         expected.data());
      const float bound = kPageRows * largest_of(page.exact) * (0.5f * weight_step(page.format) + 4e-7f);
      for (Isa isa : available_isas()) {
        const std::vector<std::byte> record = page.imported(isa);
        std::vector<float> sums = before;
        page.format.cpu(isa).accumulate(page.shape, weights.data(), heads,
                                        {record.data(), kPageRows, &page.tail}, sums.data());
        float worst = 0;
        for (size_t i = 0; i < sums.size(); ++i) {
          const float difference = std::fabs(sums[i] - expected[i]);
          worst = difference <= worst ? worst : difference;
        }
        EXPECT_LE(worst, bound) << describe(page.shape, isa, heads);
      }
    }
  });
}

// Rows that weigh nothing for any head may hold anything.
TEST(CpuCodes, HiddenRowsMayHoldNotANumber) {
  for_each_page([](const Page& page) {
    if (page.shape.side == Side::kKey || page.format.integers()) return;
    const int dim = page.shape.dim, heads = 3;
    const auto hidden = [](int row) { return row < 4 || row % 5 == 3; };
    std::vector<float> weights(heads * kPageRows);
    for (int i = 0; i < heads * kPageRows; ++i)
      weights[static_cast<size_t>(i)] = hidden(i % kPageRows) ? 0 : 1.0f / static_cast<float>(1 + i % 9);
    const int planes = 2 * ((dim + page.shape.group - 1) / page.shape.group);
    for (Isa isa : available_isas()) {
      std::vector<std::byte> record = page.imported(isa);
      std::vector<float> expected(static_cast<size_t>(heads * dim)), sums(expected.size());
      const Record read{record.data(), kPageRows, &page.tail};
      const RowCodec& codec = page.format.cpu(isa);
      codec.accumulate(page.shape, weights.data(), heads, read, expected.data());
      const uint16_t poison[] = {0x7e00, 0x7c00};  // NaN, infinity
      for (int plane = 0; plane < planes; ++plane) {
        for (int row = 0; row < kPageRows; ++row) {
          const int64_t at = int64_t{2} * (plane * kPageRows + row);
          if (hidden(row)) std::memcpy(record.data() + at, &poison[row % 2], 2);
        }
      }
      codec.accumulate(page.shape, weights.data(), heads, read, sums.data());
      EXPECT_EQ(sums, expected) << describe(page.shape, isa);
    }
  });
}

TEST(CpuCodes, WeightsOfZeroAddNothing) {
  for_each_page([](const Page& page) {
    if (page.shape.side == Side::kKey) return;
    const std::vector<float> weights(2 * kPageRows);
    const std::vector<float> before = random_values(31, 2 * page.shape.dim);
    for (Isa isa : available_isas()) {
      const std::vector<std::byte> record = page.imported(isa);
      std::vector<float> sums = before;
      page.format.cpu(isa).accumulate(page.shape, weights.data(), 2, {record.data(), kPageRows, &page.tail},
                                      sums.data());
      EXPECT_EQ(sums, before) << describe(page.shape, isa);
    }
  });
}

TEST(CpuCodes, QueriesOfZeroScoreNothing) {
  for_each_page([](const Page& page) {
    if (page.shape.side == Side::kValue) return;
    const std::vector<float> queries(static_cast<size_t>(page.shape.dim));
    std::vector<std::byte> prepared(static_cast<size_t>(prepared_bytes_limit(page.shape.dim, 1)));
    for (Isa isa : available_isas()) {
      const std::vector<std::byte> record = page.imported(isa);
      std::vector<float> scores(kPageRows, NAN);
      page.format.cpu(isa).prepare(page.shape, queries.data(), 1, prepared.data());
      page.format.cpu(isa).score(page.shape, prepared.data(), 1, {record.data(), kPageRows, &page.tail},
                                 scores.data());
      EXPECT_EQ(scores, std::vector<float>(kPageRows)) << describe(page.shape, isa);
    }
  });
}

// Widths that are no multiple of 16 keep the exchange form, and the reference's arithmetic.
TEST(CpuCodes, OddWidthsKeepTheExchangeForm) {
  for (const CodeFormat& format : code_formats()) {
    for (int dim : {8, 24, 40, 72}) {
      const std::vector<float> rows = random_values(5, int64_t{64} * dim);
      const Page page(format, dim, Side::kKey, rows);
      const std::vector<float> queries = random_values(6, 3 * dim);
      std::vector<std::byte> prepared(static_cast<size_t>(prepared_bytes_limit(dim, 3)));
      std::vector<float> expected(3 * kPageRows), scores(expected.size());
      page.format.reference().prepare(page.shape, queries.data(), 3, prepared.data());
      page.format.reference().score(page.shape, prepared.data(), 3, page.reference_record(), expected.data());
      for (Isa isa : available_isas()) {
        const std::vector<std::byte> record = page.imported(isa);
        EXPECT_EQ(record, page.exchange) << describe(page.shape, isa);
        EXPECT_EQ(EncodedPage(format, page.shape, isa, rows).record, page.exchange)
            << describe(page.shape, isa);
        format.cpu(isa).prepare(page.shape, queries.data(), 3, prepared.data());
        format.cpu(isa).score(page.shape, prepared.data(), 3, {record.data(), kPageRows, &page.tail},
                              scores.data());
        EXPECT_EQ(scores, expected) << describe(page.shape, isa);
      }
    }
  }
}

}  // namespace
}  // namespace butter
