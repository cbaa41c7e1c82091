// The centre of keys against plain double arithmetic, and what it is for: keys with large biases.
#include "kernels/centre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>

#include "core/buffer.h"
#include "kernels/attend_testing.h"
#include "kernels/cpu/attend_kernels.h"
#include "kernels/program.h"
#include "support/sanitized.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr int64_t kTablePages = 16;                       // positions beyond it are worked out when asked for
const int64_t kPages[] = {0, 1, 15, 16, 100, 781, 2047};  // 2047 ends at position 131,071

RopeTable rope_of(int pairs, double theta) {
  RopeTable rope;
  for (int i = 0; i < pairs; ++i) rope.inv_freq.push_back(std::pow(theta, -static_cast<double>(i) / pairs));
  return rope;
}

// cos and sin of a pair at a position, from long double angles.
struct Turn {
  double cos, sin;
  Turn(const RopeTable& rope, int pair, double position) {
    const long double angle =
        std::fmod(static_cast<long double>(position) * rope.inv_freq[static_cast<size_t>(pair)],
                  2 * std::numbers::pi_v<long double>);
    cos = static_cast<double>(std::cos(angle));
    sin = static_cast<double>(std::sin(angle));
  }
};

// row = R_t row, in double.
std::vector<double> turned(const RopeTable& rope, std::vector<double> row, double position) {
  const size_t pairs = rope.inv_freq.size();
  for (size_t j = 0; j < pairs; ++j) {
    const Turn turn(rope, static_cast<int>(j), position);
    const double x = row[j], y = row[j + pairs];
    row[j] = turn.cos * x - turn.sin * y;
    row[j + pairs] = turn.sin * x + turn.cos * y;
  }
  return row;
}

std::vector<double> doubles(const float* values, int count) {
  return {values, values + count};
}

// Widths with all channels turned, with some, and with none.
struct Shape {
  int dim, pairs;
};
const Shape kShapes[] = {{32, 16}, {64, 32}, {64, 16}, {80, 40}, {128, 64}, {256, 128}, {64, 0}, {96, 24}};

TEST(RotaryTable, EveryAngleIsThatOfDoubleArithmetic) {
  const RopeTable rope = rope_of(32, 1e4);
  const RotaryTable table(rope.inv_freq, kTablePages);
  std::vector<float> scratch(64);
  for (int64_t page : kPages) {
    const PairRotation at_page = table.page(page, scratch.data());
    for (int pair = 0; pair < 32; ++pair) {
      const Turn base(rope, pair, static_cast<double>(page * kPageRows));
      EXPECT_NEAR(at_page.cos[pair], base.cos, 1e-7) << page << " " << pair;
      EXPECT_NEAR(at_page.sin[pair], base.sin, 1e-7) << page << " " << pair;
      const PairRotation rows = table.rows(pair);
      for (int row : {0, 1, 31, 63}) {
        // R_page · R_row: two float products.
        const Turn exact(rope, pair, static_cast<double>(page * kPageRows + row));
        EXPECT_NEAR(at_page.cos[pair] * rows.cos[row] - at_page.sin[pair] * rows.sin[row], exact.cos, 3e-7);
        EXPECT_NEAR(at_page.sin[pair] * rows.cos[row] + at_page.cos[pair] * rows.sin[row], exact.sin, 3e-7);
      }
    }
  }
  for (int pair = 0; pair < 32; ++pair) {
    const Turn middle(rope, pair, 31.5);
    EXPECT_NEAR(table.middle().cos[pair], middle.cos, 1e-7);
    EXPECT_NEAR(table.middle().sin[pair], middle.sin, 1e-7);
    const double turns = 64 * rope.inv_freq[static_cast<size_t>(pair)];
    EXPECT_DOUBLE_EQ(table.spread(pair), std::min(1.0, turns * turns / 12));
  }
}

// A centre of 64 keys R_t b + noise, with all that was put in.
struct Case {
  Case(const Shape& given, double size, uint64_t seed)
      : shape(given),
        rope(rope_of(given.pairs, 1e5)),
        table(rope.inv_freq, kTablePages),
        keys(random_floats(seed, int64_t{kPageRows} * given.dim)),
        bytes(static_cast<size_t>(centre_layout({{0, 1, given.dim, given.dim, 0}}).bytes)) {
    const std::vector<float> b = random_floats(seed + 1, given.dim);
    for (int row = 0; row < kPageRows; ++row) {
      const std::vector<double> bias = turned(rope, doubles(b.data(), given.dim), row);
      for (int i = 0; i < given.dim; ++i)
        keys[static_cast<size_t>(row * given.dim + i)] +=
            static_cast<float>(size * bias[static_cast<size_t>(i)]);
    }
    make_centre(keys.data(), given.dim, table, bytes.data());
  }

  // b as it is stored.
  std::vector<double> base() const {
    std::vector<double> b;
    for (int i = 0; i < shape.dim; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
      b.push_back(fp16_to_float(bits));
    }
    return b;
  }
  bool exact(int pair) const {
    const uint16_t* pairs = exact_pairs_of(bytes.data(), shape.dim);
    return std::find(pairs, pairs + exact_pairs(table), pair) != pairs + exact_pairs(table);
  }
  // c_t by the definition: R_t b in exact pairs, R at the page's middle in others.
  std::vector<double> centre_at(int64_t page, int row) const {
    const auto first = static_cast<double>(page * kPageRows);
    std::vector<double> exactly = turned(rope, base(), first + row),
                        middle = turned(rope, base(), first + 31.5);
    for (int j = 0; j < shape.pairs; ++j) {
      if (exact(j)) continue;
      exactly[static_cast<size_t>(j)] = middle[static_cast<size_t>(j)];
      exactly[static_cast<size_t>(j + shape.pairs)] = middle[static_cast<size_t>(j + shape.pairs)];
    }
    return exactly;
  }

  Shape shape;
  RopeTable rope;
  RotaryTable table;
  std::vector<float> keys;
  std::vector<std::byte> bytes;
};

TEST(Centre, IsTheMeanOfKeysTurnedBackWithoutThePinnedOnes) {
  for (const Shape& shape : kShapes) {
    const Case c(shape, 10, 3);
    std::vector<double> mean(static_cast<size_t>(shape.dim));
    for (int row = 4; row < kPageRows; ++row) {
      const std::vector<double> back =
          turned(c.rope, doubles(c.keys.data() + row * shape.dim, shape.dim), -row);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += back[i] / 60;
    }
    const std::vector<double> stored = c.base();
    for (size_t i = 0; i < mean.size(); ++i)
      EXPECT_NEAR(stored[i], mean[i], std::fabs(mean[i]) * 0x1p-11 + 1e-5) << shape.dim << " " << i;
  }
}

TEST(Centre, ExactPairsAreAQuarterAndThoseThatMatterMost) {
  for (const Shape& shape : kShapes) {
    const Case c(shape, 4, 9);
    const std::vector<double> b = c.base();
    const auto weight = [&](int j) {
      const double x = b[static_cast<size_t>(j)], y = b[static_cast<size_t>(j + shape.pairs)];
      return (x * x + y * y) * c.table.spread(j);
    };
    ASSERT_EQ(exact_pairs(c.table), shape.pairs / 4);
    double least = INFINITY, most = 0;
    for (int j = 0; j < shape.pairs; ++j)
      (c.exact(j) ? least : most) = c.exact(j) ? std::min(least, weight(j)) : std::max(most, weight(j));
    EXPECT_GE(least, most) << shape.dim;
  }
}

TEST(Centre, AnyByteOfBIsInItsId) {
  for (const Shape& shape : kShapes) {
    Case c(shape, 4, 9);
    const CentreId id = centre_id(c.bytes.data(), shape.dim);
    for (size_t i = 0; i < c.bytes.size(); ++i) {
      c.bytes[i] ^= std::byte{1};
      EXPECT_EQ(centre_id(c.bytes.data(), shape.dim) == id, i >= size_t{2} * static_cast<size_t>(shape.dim))
          << i;
      c.bytes[i] ^= std::byte{1};
    }
  }
}

TEST(Centre, EqualWeightsChooseTheLowerPairs) {
  const RopeTable rope = rope_of(32, 1);  // all pairs turn alike
  const RotaryTable table(rope.inv_freq, 1);
  std::vector<std::byte> bytes(static_cast<size_t>(centre_layout({{0, 1, 64, 64, 0}}).bytes));
  const std::vector<float> zero(64 * 64);
  make_centre(zero.data(), 64, table, bytes.data());
  for (int e = 0; e < 8; ++e) EXPECT_EQ(exact_pairs_of(bytes.data(), 64)[e], e);
}

TEST(Centre, RowsAreThoseOfTheDefinitionAtAnyPosition) {
  for (const Shape& shape : kShapes) {
    const Case c(shape, 30, 5);
    const double size = 30 * 3.5;
    std::vector<float> rows(static_cast<size_t>(kPageRows * shape.dim));
    for (int64_t page : kPages) {
      centre_rows(c.bytes.data(), shape.dim, c.table, page, rows.data());
      for (int row : {0, 1, 17, 63}) {
        const std::vector<double> exact = c.centre_at(page, row);
        for (int i = 0; i < shape.dim; ++i)
          EXPECT_NEAR(rows[static_cast<size_t>(row * shape.dim + i)], exact[static_cast<size_t>(i)],
                      size * 1e-6)
              << shape.dim << " page " << page << " row " << row;
      }
    }
  }
}

TEST(Centre, IsTakenOffWhereThatMakesARowSmaller) {
  const Case c({64, 32}, 2, 6);
  std::vector<float> keys = random_floats(8, 64 * 64), scratch(64 * 64), centre(64 * 64);
  centre_rows(c.bytes.data(), 64, c.table, 50, centre.data());
  // Half of the rows have it, some have its opposite, some are small.
  for (int row = 0; row < kPageRows; ++row) {
    const float share = row % 2 == 0 ? 1.0f : row % 4 == 1 ? -1.0f : 0.2f;
    for (int i = 0; i < 64; ++i)
      keys[static_cast<size_t>(row * 64 + i)] =
          0.5f * keys[static_cast<size_t>(row * 64 + i)] + share * centre[static_cast<size_t>(row * 64 + i)];
  }
  const std::vector<float> before = keys;
  const uint64_t centred = subtract_centre(c.bytes.data(), 64, c.table, 50, keys.data(), scratch.data());
  const auto norm = [](const float* row) { return std::inner_product(row, row + 64, row, 0.0); };
  int taken = 0;
  for (int row = 0; row < kPageRows; ++row) {
    std::vector<float> without(64);
    for (int i = 0; i < 64; ++i)
      without[static_cast<size_t>(i)] =
          before[static_cast<size_t>(row * 64 + i)] - centre[static_cast<size_t>(row * 64 + i)];
    const bool smaller = norm(without.data()) < norm(before.data() + row * 64);
    EXPECT_EQ((centred >> row & 1) != 0, smaller) << row;
    taken += smaller;
    EXPECT_TRUE(std::equal(keys.begin() + row * 64, keys.begin() + (row + 1) * 64,
                           smaller ? without.begin() : before.begin() + row * 64))
        << row;
  }
  EXPECT_GE(taken, 32);
  EXPECT_LE(taken, 48);
}

// A query's side and a page's side meet in add_centre(): q·c_t of the rows that have it, on every set.
TEST(Centre, ScoresGetTheExactProductOfTheRowsThatHaveIt) {
  for (const Shape& shape : kShapes) {
    const Case c(shape, 30, 11);
    for (int heads : {1, 3, 4, 7}) {
      const std::vector<float> queries = random_floats(12, int64_t{heads} * shape.dim);
      const int64_t stride = centre_query_floats(shape.dim);
      std::vector<float> prepared(static_cast<size_t>(heads * stride));
      for (int h = 0; h < heads; ++h)
        prepare_centre(c.bytes.data(), shape.dim, c.table, queries.data() + h * shape.dim,
                       prepared.data() + h * stride);
      std::vector<const float*> rows;
      std::vector<uint16_t> pairs;
      for (int k = 0; k < kHalves; ++k) {
        const uint16_t* exact = exact_pairs_of(c.bytes.data(), shape.dim);
        pairs.insert(pairs.end(), exact, exact + exact_pairs(c.table));
      }
      for (int e = 0; e < exact_pairs(c.table); ++e)
        rows.push_back(c.table.half_rows(exact_pairs_of(c.bytes.data(), shape.dim)[e]).cos);
      for (int64_t page : {int64_t{3}, int64_t{2047}}) {
        std::vector<float> scratch(static_cast<size_t>(2 * shape.pairs + 1));
        const PairRotation turn = c.table.page(page, scratch.data());
        const uint64_t centred = 0xfffe7ffd00f13579;
        const cpu::CentreScores scores_of{
            heads,    shape.pairs, exact_pairs(c.table), prepared.data(), stride,
            turn.cos, turn.sin,    rows.data(),          pairs.data(),    centred};
        for (Isa isa : available_isas()) {
          std::vector<float> scores(static_cast<size_t>(heads * kPageRows), 0.25f);
          cpu::attend_kernels(isa, Products::kExact).add_centre(scores_of, scores.data());
          for (int h = 0; h < heads; ++h) {
            for (int row = 0; row < kPageRows; ++row) {
              const std::vector<double> at = c.centre_at(page, row);
              double exact = 0.25, size = 0;
              for (int i = 0; i < shape.dim && (centred >> row & 1) != 0; ++i) {
                const double product =
                    queries[static_cast<size_t>(h * shape.dim + i)] * at[static_cast<size_t>(i)];
                exact += product;
                size += std::fabs(product);
              }
              ASSERT_NEAR(scores[static_cast<size_t>(h * kPageRows + row)], exact, size * 2e-6 + 1e-5)
                  << isa_name(isa) << " d " << shape.dim << " heads " << heads << " row " << row;
            }
          }
        }
      }
    }
  }
}

// --- large biases --------------------------------------------------------------------------------

constexpr int kDim = 64, kPairs = 32;
constexpr int kKeys = 192, kQueries = 24;  // of a set of rows.f16

// Rows of one (layer, KV head) of the default model, before RoPE (tests/data/keys/make_rows.py).
struct RealRows {
  std::vector<float> keys, values, queries;
};

std::vector<RealRows> read_rows() {
  const std::string bytes = read_test_file(test_data("keys/rows.f16"));
  const size_t set = size_t{2 * kKeys + kQueries} * kDim;
  std::vector<RealRows> sets;
  const auto floats = [&](size_t first, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * (first + i), sizeof bits);
      values[i] = fp16_to_float(bits);
    }
    return values;
  };
  for (size_t at = 0; (at + set) * 2 <= bytes.size(); at += set) {
    const size_t rows = size_t{kKeys} * kDim;
    sets.push_back(
        {floats(at, rows), floats(at + rows, rows), floats(at + 2 * rows, size_t{kQueries} * kDim)});
  }
  return sets;
}

float to_fp16_and_back(double value) {
  return fp16_to_float(float_to_fp16(static_cast<float>(value)));
}

// Squares of errors and of what they are errors of.
struct Error {
  double error = 0, norm = 0;
  double relative() const { return std::sqrt(error / norm); }
};

// One set's page 0 and two pages of its keys from page `page` on, with a bias, as a scheme reads them.
class Biased {
 public:
  Biased(const RealRows& rows, const std::vector<double>& bias, int64_t page)
      : rows_(rows), rope_(rope_of(kPairs, 1e5)), table_(rope_.inv_freq, kTablePages), page_(page) {
    for (int k = 0; k < kKeys; ++k) {
      std::vector<double> key = doubles(rows.keys.data() + k * kDim, kDim);
      for (size_t i = 0; i < key.size(); ++i) key[i] += bias[i];
      for (double value : turned(rope_, key, static_cast<double>(position_of(k))))
        keys_.push_back(to_fp16_and_back(value));
    }
  }

  // How far attention over the format's rows is from that over the raw ones.
  void add_error(const RowFormat& format, bool plain, Error& error) const {
    const std::vector<float> keys = through(format, Side::kKey, keys_, plain);
    const std::vector<float> values = through(format, Side::kValue, rows_.values, plain);
    for (int q = 0; q < kQueries; ++q) {
      const std::vector<double> query = turned(rope_, doubles(rows_.queries.data() + q * kDim, kDim),
                                               static_cast<double>(position_of(kKeys - 1) + 1 + q));
      const std::vector<double> exact = attend(query, keys_, rows_.values),
                                found = attend(query, keys, values);
      for (size_t i = 0; i < exact.size(); ++i) {
        error.error += (found[i] - exact[i]) * (found[i] - exact[i]);
        error.norm += exact[i] * exact[i];
      }
    }
  }

 private:
  // Page 0 stands where it stands; the others far away.
  int64_t position_of(int k) const { return k < kPageRows ? k : page_ * kPageRows + k - kPageRows; }

  std::vector<double> attend(const std::vector<double>& query, const std::vector<float>& keys,
                             const std::vector<float>& values) const {
    std::vector<double> weights, out(kDim);
    double most = -INFINITY, total = 0;
    for (int k = 0; k < kKeys; ++k) {
      double score = 0;
      for (int i = 0; i < kDim; ++i)
        score += query[static_cast<size_t>(i)] * keys[static_cast<size_t>(k * kDim + i)] / 8;
      weights.push_back(score);
      most = std::max(most, score);
    }
    for (double& weight : weights) total += weight = std::exp(weight - most);
    for (int k = 0; k < kKeys; ++k) {
      for (int i = 0; i < kDim; ++i)
        out[static_cast<size_t>(i)] +=
            weights[static_cast<size_t>(k)] / total * values[static_cast<size_t>(k * kDim + i)];
    }
    return out;
  }

  std::vector<float> through(const RowFormat& format, Side side, const std::vector<float>& rows,
                             bool plain) const {
    const RowShape shape{kDim, DType::kF16, 3, side, format.bits, format.group};
    std::vector<std::byte> centre(static_cast<size_t>(4 * kDim)),
        record(static_cast<size_t>(format.record_bytes(shape)));
    Buffer scratch = Buffer::allocate(encode_scratch_bytes(kDim)).value();
    const bool centres = side == Side::kKey && !plain;
    if (centres) make_centre(rows.data(), kDim, table_, centre.data());
    std::vector<float> result;
    for (int first = 0; first < kKeys; first += kPageRows) {
      const int64_t page = page_of(position_of(first));
      std::vector<float> of_page(rows.begin() + first * kDim, rows.begin() + (first + kPageRows) * kDim),
          back(of_page.size()), c(of_page.size());
      RecordTail tail;
      if (centres)
        tail.centred = subtract_centre(centre.data(), kDim, table_, page, of_page.data(), c.data());
      if (first == 0 && !plain) std::fill_n(of_page.begin(), kPinnedRows * kDim, 0.0f);
      format.reference->encode(shape, of_page.data(), record.data(), &tail, scratch.data());
      format.reference->decode(shape, {record.data(), kPageRows, &tail}, back.data());
      if (centres) centre_rows(centre.data(), kDim, table_, page, c.data());
      for (size_t i = 0; i < back.size(); ++i) {
        if (tail.centred >> (i / kDim) & 1) back[i] += c[i];
      }
      if (first == 0 && !plain) std::copy_n(rows.begin(), kPinnedRows * kDim, back.begin());
      result.insert(result.end(), back.begin(), back.end());
    }
    return result;
  }

  const RealRows& rows_;
  RopeTable rope_;
  RotaryTable table_;
  int64_t page_;
  std::vector<float> keys_;
};

// |b| is 20 times the rms of the keys, over two fast pairs and two slow ones.
std::vector<double> large_bias(const RealRows& rows) {
  double squares = 0;
  for (float value : rows.keys) squares += static_cast<double>(value) * value;
  const double size = 20 * std::sqrt(squares / static_cast<double>(rows.keys.size()));
  std::vector<double> bias(kDim);
  for (int pair : {1, 4, 18, 29}) {
    bias[static_cast<size_t>(pair)] = 0.6 * size / 2;
    bias[static_cast<size_t>(pair + kPairs)] = -0.8 * size / 2;
  }
  return bias;
}

TEST(LargeBiases, CostALossyFormatNextToNothing) {
  const std::vector<RealRows> sets = read_rows();
  ASSERT_EQ(sets.size(), 3u);
  std::printf("%-12s %-29s %s\n", "", "centred: error, with b", "plain: error, with b");
  for (const RowFormat* format : row_formats()) {
    if (!format->lossy) continue;
    std::array<Error, 4> errors;  // centred without and with b, plain without and with b
    for (const RealRows& rows : sets) {
      for (int64_t page : {1, 100, 2046}) {  // positions up to 131,072
        if (kSanitized && page != 2046) continue;
        const Biased without(rows, std::vector<double>(kDim), page), with(rows, large_bias(rows), page);
        for (const bool plain : {false, true}) {
          without.add_error(*format, plain, errors[plain ? 2 : 0]);
          with.add_error(*format, plain, errors[plain ? 3 : 1]);
        }
      }
    }
    const double ratio = errors[1].relative() / errors[0].relative();
    std::printf("%-12s %.5f, %.5f: %.2fx      %.5f, %.5f: %.2fx\n", format->name, errors[0].relative(),
                errors[1].relative(), ratio, errors[2].relative(), errors[3].relative(),
                errors[3].relative() / errors[2].relative());
    EXPECT_LE(ratio, 1.3) << format->name;
  }
}

}  // namespace
}  // namespace butter
