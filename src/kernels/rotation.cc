#include "kernels/rotation.h"

#include <array>
#include <cmath>

#include "core/check.h"

namespace butter {
namespace {

constexpr int kSmallestBlock = 8;
constexpr int kLargestPaley = 28;

template <int kOrder>
using Matrix = std::array<int8_t, kOrder * kOrder>;

// 1 for squares modulo the prime q, -1 for other numbers, 0 for 0.
constexpr int quadratic_character(int number, int q) {
  const int residue = (number % q + q) % q;
  if (residue == 0) return 0;
  for (int root = 1; root < q; ++root) {
    if (root * root % q == residue) return 1;
  }
  return -1;
}

// The border of ones around Q[i][j] = character(i - j): row 0 is 0 1 1 ..., column 0 is 0 c c ...
constexpr int bordered(int i, int j, int q, int column) {
  if (i == 0) return j == 0 ? 0 : 1;
  return j == 0 ? column : quadratic_character(i - j, q);
}

// Paley's first construction, q = 3 mod 4: I + the bordered matrix, whose transpose is its negative.
template <int kOrder>
constexpr Matrix<kOrder> paley_first() {
  Matrix<kOrder> matrix{};
  for (int i = 0; i < kOrder; ++i) {
    for (int j = 0; j < kOrder; ++j) {
      matrix[i * kOrder + j] = static_cast<int8_t>(bordered(i, j, kOrder - 1, -1) + (i == j ? 1 : 0));
    }
  }
  return matrix;
}

// Paley's second construction, q = 1 mod 4: C ⊗ [1 1; 1 -1] + I ⊗ [1 -1; -1 -1], C the bordered matrix.
template <int kOrder>
constexpr Matrix<kOrder> paley_second() {
  constexpr int kOfBorder[2][2] = {{1, 1}, {1, -1}};
  constexpr int kOfIdentity[2][2] = {{1, -1}, {-1, -1}};
  Matrix<kOrder> matrix{};
  for (int i = 0; i < kOrder; ++i) {
    for (int j = 0; j < kOrder; ++j) {
      const int border = bordered(i / 2, j / 2, kOrder / 2 - 1, 1) * kOfBorder[i % 2][j % 2];
      const int identity = i / 2 == j / 2 ? kOfIdentity[i % 2][j % 2] : 0;
      matrix[i * kOrder + j] = static_cast<int8_t>(border + identity);
    }
  }
  return matrix;
}

constexpr Matrix<12> kPaley12 = paley_first<12>();
constexpr Matrix<20> kPaley20 = paley_first<20>();
constexpr Matrix<28> kPaley28 = paley_second<28>();

// Sylvester's matrix, not normalised, on `size` = 2^n neighbouring values.
void sylvester_transform(int size, float* values) {
  for (int half = 1; half < size; half *= 2) {
    for (int i = 0; i < size; ++i) {
      if ((i & half) != 0) continue;
      const float a = values[i];
      const float b = values[i + half];
      values[i] = a + b;
      values[i + half] = a - b;
    }
  }
}

// Paley's matrix, or its transpose, not normalised, on `order` values that stand `stride` apart.
void paley_transform(int order, bool transposed, int stride, float* values) {
  const int8_t* matrix = paley_matrix(order);
  std::array<float, kLargestPaley> sums{};
  for (int i = 0; i < order; ++i) {
    for (int j = 0; j < order; ++j) {
      const int sign = transposed ? matrix[j * order + i] : matrix[i * order + j];
      sums[i] += static_cast<float>(sign) * values[j * stride];
    }
  }
  for (int i = 0; i < order; ++i) values[i * stride] = sums[i];
}

void transform(int dim, bool transposed, float* row) {
  const HadamardShape shape = hadamard_shape(dim);
  const float norm = 1 / std::sqrt(static_cast<float>(shape.block()));
  for (int block = 0; block < shape.blocks; ++block) {
    float* values = row + block * shape.block();
    for (int i = 0; i < shape.paley; ++i) sylvester_transform(shape.sylvester, values + i * shape.sylvester);
    if (shape.paley > 1) {
      for (int i = 0; i < shape.sylvester; ++i) {
        paley_transform(shape.paley, transposed, shape.sylvester, values + i);
      }
    }
    for (int i = 0; i < shape.block(); ++i) values[i] *= norm;
  }
}

// splitmix64 (S. Vigna): the next output of a generator.
uint64_t next_output(uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void flip_signs(int layer, Side side, int dim, float* row) {
  uint64_t state = 2 * static_cast<uint64_t>(layer) + (side == Side::kKey ? 0 : 1);
  for (int j = 0; j < dim; ++j) {
    if (next_output(state) >> 63 != 0) row[j] = -row[j];
  }
}

}  // namespace

HadamardShape hadamard_shape(int dim) {
  BUTTER_CHECK(dim > 0);
  const int power = dim & -dim;
  const int odd = dim / power;
  for (const int odd_of_paley : {3, 5, 7}) {
    if (odd == odd_of_paley && power >= 4) return {1, 4 * odd_of_paley, power / 4};
  }
  return {odd, 1, power};
}

bool rotation_takes(int dim) {
  return dim > 0 && hadamard_shape(dim).block() >= kSmallestBlock;
}

const int8_t* paley_matrix(int order) {
  BUTTER_CHECK(order == 12 || order == 20 || order == 28);
  return order == 12 ? kPaley12.data() : order == 20 ? kPaley20.data() : kPaley28.data();
}

void rotation_signs(int layer, Side side, int dim, float* signs) {
  for (int j = 0; j < dim; ++j) signs[j] = 1;
  flip_signs(layer, side, dim, signs);
}

void hadamard(int dim, float* row) {
  transform(dim, false, row);
}

void hadamard_inverse(int dim, float* row) {
  transform(dim, true, row);
}

void rotate(int layer, Side side, int dim, float* row) {
  flip_signs(layer, side, dim, row);
  hadamard(dim, row);
}

void rotate_back(int layer, Side side, int dim, float* row) {
  hadamard_inverse(dim, row);
  flip_signs(layer, side, dim, row);
}

}  // namespace butter
