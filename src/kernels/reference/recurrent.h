// Recurrent mixers on float32 rows, one position at a time, in plain scalar text: the specification that the
// fast forms are compared with, whole chunks of positions among them (program.h has the equations).
//
// `state` is read and written in place. Nothing is allocated.
#pragma once

#include <cstdint>

#include "kernels/program.h"

namespace butter::reference {

// One position of ConvOp: `in` and `out` are [channels], `past` the inputs of the taps − 1 positions before
// it, oldest first, which move on by one. out may not be in.
void conv(const ConvOp& op, int64_t channels, const float* weight, const float* bias, const float* in,
          float* past, float* out);

// log(1 + exp(x)); x itself above 20.
float softplus(float x);

struct Mamba2Weights {
  const float* decay = nullptr;
  const float* skip = nullptr;
  const float* dt_bias = nullptr;
};
// One position: `conv` [x | B | C], `dt` [heads], `out` [heads · head_dim].
void mamba2(const Mamba2Op& op, const Mamba2Weights& weights, const float* conv, const float* dt,
            float* state, float* out);

struct Mamba1Inputs {
  const float* x = nullptr;   // [width]
  const float* dt = nullptr;  // [width]
  const float* b = nullptr;   // [state_size]
  const float* c = nullptr;
};
// One position; `decay` [state_size][width], `skip` [width].
void mamba1(const Mamba1Op& op, int64_t width, const float* decay, const float* skip,
            const Mamba1Inputs& inputs, float* state, float* out);

struct DeltaInputs {
  const float* conv = nullptr;   // [q | k | v]
  const float* beta = nullptr;   // [value_heads]
  const float* alpha = nullptr;  // [value_heads]
};
// One position; `scratch` holds 2 · key_dim + value_dim floats.
void delta_rule(const DeltaRuleOp& op, const float* decay, const float* dt_bias, const DeltaInputs& inputs,
                float* state, float* scratch, float* out);

// x / sqrt(Σx² + 1e-6) · factor
void unit_length(const float* x, int64_t count, float factor, float* out);

}  // namespace butter::reference
