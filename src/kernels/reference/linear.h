// The linear op on float32 rows, in plain scalar text: the specification of every fast form.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "core/thread_pool.h"

namespace butter::reference {

// What one matrix of a LinearOp leaves: y = x·Wᵀ + bias, or y += multiplier · (x·Wᵀ + bias) where accumulate.
struct LinearTarget {
  float* y = nullptr;
  int64_t stride = 0;           // floats from one row of y to the next
  const float* bias = nullptr;  // one for each row of the weight, or null
  bool accumulate = false;
  float multiplier = 1;
};

// Rows of x (`x_stride` floats apart) times the rows `outputs` of the weight, each decoded into `scratch`,
// which holds weight.columns() floats. A product is summed in float32, from the first column to the last.
void linear(const TensorView& weight, const float* x, int64_t x_stride, int64_t rows, IndexRange outputs,
            const LinearTarget& target, float* scratch);

}  // namespace butter::reference
