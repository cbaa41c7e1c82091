#include "kernels/reference/linear.h"

#include "core/dequantise.h"

namespace butter::reference {

void linear(const TensorView& weight, const float* x, int64_t x_stride, int64_t rows, IndexRange outputs,
            const LinearTarget& target, float* scratch) {
  const int64_t columns = weight.columns();
  for (int64_t n = outputs.begin; n < outputs.end; ++n) {
    dequantise_row(weight, n, scratch);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = x + row * x_stride;
      float sum = 0;
      for (int64_t k = 0; k < columns; ++k) sum += from[k] * scratch[k];
      if (target.bias != nullptr) sum += target.bias[n];
      float& y = target.y[row * target.stride + n];
      y = target.accumulate ? y + target.multiplier * sum : sum;
    }
  }
}

}  // namespace butter::reference
