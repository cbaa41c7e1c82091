// Elementwise: the CPU's element-wise ops on float32 rows, for one instruction set.
//
// Each does what the function of that name in reference/ops.h says, on one row or on any part of one where an
// op has no sum; workers split rows (or, for activate_mul and add, columns). Nothing is allocated; all are
// thread-safe on disjoint rows. A row's result does not depend on who computes it. Pointers need no
// alignment. What is made of a NaN is NaN.
//
// Errors against the reference in float32, relative to the largest value of a run: rms_norm 1e-6 (another
// order of the sum), rope 3e-7, silu, gelu-tanh and the clamped silu 1e-6 of |gate · up|, gelu 2e-7 · |up| ·
// max(1, |gate|) (the erf is Abramowitz and Stegun 7.1.26, absolute error 1.5e-7).
#pragma once

#include <cstdint>

#include "core/cpu_isa.h"
#include "kernels/program.h"

namespace butter::cpu {

struct Elementwise {
  void (*rms_norm)(const RmsNormOp& op, const float* in, int64_t width, const float* weight, float* out);
  // cos and sin: of the row's position, from reference::rope_angles().
  void (*rope)(const RopeOp& op, int64_t pairs, const float* cos, const float* sin, float* row);
  void (*activate_mul)(const GateFunction& function, const float* gate, const float* up, int64_t count,
                       float* out);
  // out += factor · in
  void (*add)(const float* in, float factor, int64_t count, float* out);
  // out *= factor
  void (*scale)(float factor, int64_t count, float* out);
  // Rounds to nearest even. False, with `out` written all the same, where a rounded value is NaN or infinite.
  bool (*to_f16)(const float* in, int64_t count, uint16_t* out);
  bool (*to_bf16)(const float* in, int64_t count, uint16_t* out);
  bool (*copy)(const float* in, int64_t count, float* out);
};

const Elementwise& elementwise(Isa isa);

}  // namespace butter::cpu
