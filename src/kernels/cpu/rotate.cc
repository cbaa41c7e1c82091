#include "kernels/cpu/rotate.h"

#include <array>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "kernels/cpu/rotate_kernels.h"

namespace butter::cpu {
namespace {

constexpr int kMaxDim = 1024;  // of the vector kernels
constexpr std::array<int, 3> kOrders = {12, 20, 28};
constexpr std::array<int, 3> kRepeats = {1, 4, 8};

// [order][order · repeat]: column a of the matrix, each value `repeat` times.
std::vector<float> repeat_columns(int order, int repeat, bool transposed) {
  const int8_t* matrix = paley_matrix(order);
  std::vector<float> columns;
  for (int a = 0; a < order; ++a) {
    for (int i = 0; i < order * repeat; ++i) {
      const int row = transposed ? a : i / repeat, column = transposed ? i / repeat : a;
      columns.push_back(matrix[row * order + column]);
    }
  }
  return columns;
}

// The matrix as mix_paley() reads it.
const float* paley_columns(int order, int repeat, bool transposed) {
  static const std::vector<std::vector<float>> tables = [] {
    std::vector<std::vector<float>> all;
    for (int o : kOrders) {
      for (int r : kRepeats) {
        for (bool t : {false, true}) all.push_back(repeat_columns(o, r, t));
      }
    }
    return all;
  }();
  const int which_order = (order - kOrders[0]) / 8;
  const int which_repeat = repeat / 4;
  return tables[static_cast<size_t>((which_order * 3 + which_repeat) * 2 + (transposed ? 1 : 0))].data();
}

// The widest kernel that divides the row; null where none does.
const RotateKernel* choose_kernel([[maybe_unused]] Isa isa, int dim, const HadamardShape& hadamard) {
  if (dim > kMaxDim || hadamard.sylvester < 4) return nullptr;
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512 && dim % kRotateAvx512.lanes == 0) return &kRotateAvx512;
  if (isa >= Isa::kAvx2 && dim % kRotateAvx2.lanes == 0) return &kRotateAvx2;
#endif
  return dim % kRotatePortable.lanes == 0 ? &kRotatePortable : nullptr;
}

void rotate_rows_scalar(const RowShape& shape, bool back, int64_t count, float* rows) {
  for (int64_t r = 0; r < count; ++r) {
    const auto turn = back ? butter::rotate_back : butter::rotate;
    turn(shape.layer, shape.side, shape.dim, rows + r * shape.dim);
  }
}

// False where no kernel takes the width.
bool rotate_rows_fast(Isa isa, const RowShape& shape, bool back, int64_t count, const float* from,
                      float* to) {
  const HadamardShape hadamard = hadamard_shape(shape.dim);
  const RotateKernel* kernel = choose_kernel(isa, shape.dim, hadamard);
  if (kernel == nullptr) return false;
  alignas(64) float signs[kMaxDim];
  rotation_signs(shape.layer, shape.side, shape.dim, signs);
  const float factor = 1 / std::sqrt(static_cast<float>(hadamard.block()));
  for (int i = 0; i < shape.dim; ++i) signs[i] *= factor;
  RotatePlan plan;
  plan.dim = shape.dim;
  plan.sylvester = hadamard.sylvester;
  plan.order = hadamard.paley;
  plan.back = back;
  plan.signs = signs;
  if (plan.order > 1) {
    BUTTER_CHECK(hadamard.blocks == 1);
    const int repeat = hadamard.sylvester < kernel->lanes ? hadamard.sylvester : 1;
    plan.columns = paley_columns(plan.order, repeat, back);
  }
  kernel->rotate(plan, count, from, to);
  return true;
}

}  // namespace

void rotate_rows(Isa isa, const RowShape& shape, int64_t count, const float* from, float* to) {
  if (rotate_rows_fast(isa, shape, false, count, from, to)) return;
  if (from != to) std::copy(from, from + count * shape.dim, to);
  rotate_rows_scalar(shape, false, count, to);
}

void rotate_rows(Isa isa, const RowShape& shape, int64_t count, float* rows) {
  rotate_rows(isa, shape, count, rows, rows);
}

void rotate_rows_back(Isa isa, const RowShape& shape, int64_t count, float* rows) {
  if (rotate_rows_fast(isa, shape, true, count, rows, rows)) return;
  rotate_rows_scalar(shape, true, count, rows);
}

}  // namespace butter::cpu
