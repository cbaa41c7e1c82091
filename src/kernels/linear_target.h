// LinearTarget: where the result of one weight of a linear op goes, and how.
#pragma once

#include <cstdint>

namespace butter {

// y = x·Wᵀ + bias, or y += multiplier · (x·Wᵀ + bias) where accumulate.
struct LinearTarget {
  float* y = nullptr;           // of the first row
  int64_t stride = 0;           // floats from one row of y to the next
  const float* bias = nullptr;  // one for each row of the weight, or null
  bool accumulate = false;
  float multiplier = 1;  // used only where accumulate
};

}  // namespace butter
