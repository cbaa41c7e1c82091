// The linear op on float32 rows, in plain scalar text: the specification of every fast form.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "core/thread_pool.h"
#include "kernels/linear_target.h"

namespace butter::reference {

// Rows of x (`x_stride` floats apart) times the rows `outputs` of the weight, each decoded into `scratch`,
// which holds weight.columns() floats. A product is summed in float32, from the first column to the last.
void linear(const TensorView& weight, const float* x, int64_t x_stride, int64_t rows, IndexRange outputs,
            const LinearTarget& target, float* scratch);

}  // namespace butter::reference
