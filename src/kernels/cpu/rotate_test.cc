// Parity of the CPU's rotation with kernels/rotation.h, for every instruction set and kind of width.
#include "kernels/cpu/rotate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/rotation.h"

namespace butter {
namespace {

// Powers of two in registers and beyond, Paley widths with blocks of every size, repeated blocks, and widths
// that no vector divides.
constexpr int kDims[] = {8,   16,  32,  64,  128, 256, 512, 12 * 4, 20 * 4, 12 * 8, 28 * 4, 20 * 8,
                         192, 224, 320, 640, 72,  104, 144, 24,     40,     28,     2048};
constexpr int kRows = 5;

std::vector<float> random_rows(int dim) {
  std::mt19937 random(static_cast<unsigned>(dim));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> rows(static_cast<size_t>(kRows * dim));
  for (float& value : rows) value = normal(random);
  return rows;
}

class RotationOnEachIsa : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, RotationOnEachIsa, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

TEST_P(RotationOnEachIsa, EqualsTheReferenceBothWays) {
  for (int dim : kDims) {
    if (!rotation_takes(dim)) continue;
    SCOPED_TRACE(dim);
    for (Side side : {Side::kKey, Side::kValue}) {
      RowShape shape;
      shape.dim = dim;
      shape.layer = 7;
      shape.side = side;
      const std::vector<float> rows = random_rows(dim);
      std::vector<float> forward = rows, expected = rows, back = rows, expected_back = rows;
      cpu::rotate_rows(GetParam(), shape, kRows, forward.data());
      cpu::rotate_rows_back(GetParam(), shape, kRows, back.data());
      for (int r = 0; r < kRows; ++r) {
        rotate(shape.layer, side, dim, expected.data() + r * dim);
        rotate_back(shape.layer, side, dim, expected_back.data() + r * dim);
      }
      const float bound = 1e-6f * std::sqrt(static_cast<float>(dim));
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_NEAR(forward[i], expected[i], bound) << i;
        ASSERT_NEAR(back[i], expected_back[i], bound) << i;
      }
    }
  }
}

TEST_P(RotationOnEachIsa, TheWayBackLeadsBack) {
  for (int dim : kDims) {
    if (!rotation_takes(dim)) continue;
    RowShape shape;
    shape.dim = dim;
    const std::vector<float> rows = random_rows(dim);
    std::vector<float> turned(rows.size());
    cpu::rotate_rows(GetParam(), shape, kRows, rows.data(), turned.data());
    cpu::rotate_rows_back(GetParam(), shape, kRows, turned.data());
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(turned[i], rows[i], 1e-5f) << dim;
  }
}

}  // namespace
}  // namespace butter
