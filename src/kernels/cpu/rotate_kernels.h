// The kernels behind cpu/rotate.cc, one for each instruction set.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function.
#pragma once

#include <cstdint>

#include "kernels/rotation.h"

namespace butter::cpu {

struct RotatePlan {
  int dim = 0;
  int sylvester = 0;             // order of the Sylvester blocks: a power of two, at least 4
  int order = 1;                 // order of the Paley matrix over them; 1: none
  bool back = false;             // S·Hᵀ, not H·S
  const float* signs = nullptr;  // [dim] S, times the factor that makes H orthonormal
  const float* columns =
      nullptr;  // the Paley matrix (back: transposed), columns repeated: see paley_columns()
};

// One instruction set. Takes widths that are a multiple of `lanes`.
struct RotateKernel {
  int lanes;
  // to [count][dim] = the rotated rows of from [count][dim], which may be the same.
  void (*rotate)(const RotatePlan& plan, int64_t count, const float* from, float* to);
};

extern const RotateKernel kRotatePortable;
#if defined(__x86_64__)
extern const RotateKernel kRotateAvx2;
extern const RotateKernel kRotateAvx512;
#endif

}  // namespace butter::cpu
