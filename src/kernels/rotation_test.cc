#include "kernels/rotation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

namespace butter {
namespace {

const int kDims[] = {8, 12, 16, 20, 24, 28, 32, 40, 56, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 576};

template <typename Value>
std::string signs_text(const Value* values, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += values[i] > 0 ? '+' : '-';
  return text;
}

// [dim][dim], row-major.
std::vector<float> matrix_of(int dim, void (*transform)(int, float*)) {
  std::vector<float> matrix(static_cast<size_t>(dim * dim));
  std::vector<float> column(static_cast<size_t>(dim));
  for (int c = 0; c < dim; ++c) {
    std::fill(column.begin(), column.end(), 0.0F);
    column[static_cast<size_t>(c)] = 1;
    transform(dim, column.data());
    for (int r = 0; r < dim; ++r) matrix[static_cast<size_t>(r * dim + c)] = column[static_cast<size_t>(r)];
  }
  return matrix;
}

TEST(Rotation, SignsAreTheTopBitsOfSplitmix64) {
  std::vector<float> signs(64);
  rotation_signs(0, Side::kKey, 64, signs.data());
  EXPECT_EQ(signs_text(signs.data(), 64), "-++-+++-+-+-----+-+----+--++---+++-+++++-+++--++++--++--+----++-");
  rotation_signs(0, Side::kValue, 64, signs.data());
  EXPECT_EQ(signs_text(signs.data(), 64), "---++---+-+-+-++----++++++--+---+++-------+---++--+++-++-+---+--");
  rotation_signs(1, Side::kKey, 64, signs.data());
  EXPECT_EQ(signs_text(signs.data(), 64), "----++--+-++-+-++++++-++----++--++-+++-+-++--+--+-+-+--+-+++-+-+");
  rotation_signs(29, Side::kValue, 64, signs.data());
  EXPECT_EQ(signs_text(signs.data(), 64), "------+-++--+++-+++-+--+-+++-+-+++--+-++--+++-++++--+-+--++++-+-");
}

TEST(Rotation, PaleyMatricesStandAsTheyWereFixed) {
  EXPECT_EQ(signs_text(paley_matrix(12), 12), "++++++++++++");
  EXPECT_EQ(signs_text(paley_matrix(12) + 12, 12), "-+-+---+++-+");
  EXPECT_EQ(signs_text(paley_matrix(12) + 11 * 12, 12), "--+---+++-++");
  EXPECT_EQ(signs_text(paley_matrix(20) + 20, 20), "-+-++----+-+-++++--+");
  EXPECT_EQ(signs_text(paley_matrix(20) + 19 * 20, 20), "--++----+-+-++++--++");
  EXPECT_EQ(signs_text(paley_matrix(28), 28), "+-++++++++++++++++++++++++++");
  EXPECT_EQ(signs_text(paley_matrix(28) + 2 * 28, 28), "+++-++--++++--------++++--++");
  EXPECT_EQ(signs_text(paley_matrix(28) + 27 * 28, 28), "+-+--++-+--+-+-+-++-+--++---");
}

TEST(Rotation, RowsOfEveryWidthAreOrthonormal) {
  for (const int dim : kDims) {
    const std::vector<float> h = matrix_of(dim, hadamard);
    for (int a = 0; a < dim; ++a) {
      for (int b = a; b < dim; ++b) {
        double product = 0;
        for (int c = 0; c < dim; ++c) product += double{h[size_t(a * dim + c)]} * h[size_t(b * dim + c)];
        ASSERT_NEAR(product, a == b ? 1 : 0, 1e-5) << dim << ": rows " << a << ", " << b;
      }
    }
  }
}

TEST(Rotation, TheWayBackIsTheTranspose) {
  for (const int dim : kDims) {
    const std::vector<float> h = matrix_of(dim, hadamard);
    const std::vector<float> back = matrix_of(dim, hadamard_inverse);
    for (int r = 0; r < dim; ++r) {
      for (int c = 0; c < dim; ++c) {
        ASSERT_FLOAT_EQ(back[size_t(r * dim + c)], h[size_t(c * dim + r)]) << dim;
      }
    }
  }
}

TEST(Rotation, EntriesAreThoseOfPaleyTimesSylvesterInBlocks) {
  for (const int dim : kDims) {
    const HadamardShape shape = hadamard_shape(dim);
    ASSERT_EQ(shape.blocks * shape.paley * shape.sylvester, dim);
    const std::vector<float> h = matrix_of(dim, hadamard);
    for (int r = 0; r < dim; ++r) {
      for (int c = 0; c < dim; ++c) {
        const int i = r % shape.block() / shape.sylvester;
        const int j = c % shape.block() / shape.sylvester;
        const auto both = static_cast<unsigned>(r % shape.sylvester & c % shape.sylvester);
        double entry = (std::popcount(both) % 2 == 0 ? 1 : -1) / std::sqrt(shape.block());
        if (shape.paley > 1) entry *= paley_matrix(shape.paley)[i * shape.paley + j];
        if (r / shape.block() != c / shape.block()) entry = 0;
        ASSERT_NEAR(h[size_t(r * dim + c)], entry, 1e-6) << dim << ": " << r << ", " << c;
      }
    }
  }
}

TEST(Rotation, BlocksFollowTheWidth) {
  const auto shape_text = [](int dim) {
    const HadamardShape shape = hadamard_shape(dim);
    return std::to_string(shape.blocks) + "x" + std::to_string(shape.paley) + "x" +
           std::to_string(shape.sylvester);
  };
  EXPECT_EQ(shape_text(64), "1x1x64");
  EXPECT_EQ(shape_text(80), "1x20x4");
  EXPECT_EQ(shape_text(96), "1x12x8");
  EXPECT_EQ(shape_text(112), "1x28x4");
  EXPECT_EQ(shape_text(160), "1x20x8");
  EXPECT_EQ(shape_text(192), "1x12x16");
  EXPECT_EQ(shape_text(224), "1x28x8");
  EXPECT_EQ(shape_text(72), "9x1x8");
  EXPECT_EQ(shape_text(576), "9x1x64");
}

TEST(Rotation, WidthsWithoutABlockOfEightAreRefused) {
  for (const int dim : kDims) EXPECT_TRUE(rotation_takes(dim)) << dim;
  for (const int dim : {-8, 0, 1, 2, 4, 6, 7, 36, 44, 60, 63, 100}) EXPECT_FALSE(rotation_takes(dim)) << dim;
}

TEST(Rotation, ThereAndBackGivesTheRow) {
  for (const int dim : kDims) {
    std::vector<float> row(static_cast<size_t>(dim));
    for (int j = 0; j < dim; ++j) row[static_cast<size_t>(j)] = static_cast<float>((j * 37 + 11) % 101 - 50);
    std::vector<float> turned = row;
    rotate(5, Side::kValue, dim, turned.data());
    EXPECT_NE(turned, row);
    rotate_back(5, Side::kValue, dim, turned.data());
    for (int j = 0; j < dim; ++j) {
      ASSERT_NEAR(turned[static_cast<size_t>(j)], row[static_cast<size_t>(j)], 1e-4) << dim;
    }
  }
}

}  // namespace
}  // namespace butter
