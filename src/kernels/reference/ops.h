// Element-wise ops on float32 rows, in plain scalar text: the specification that the fast kernels are
// compared with.
//
// Rows are dense float32; nothing is allocated; every function may be called from several threads on
// different rows.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor_view.h"
#include "kernels/program.h"

namespace butter::reference {

// out[0, columns) = scale · table[id]. The table is any float or block-quantised matrix; id is one of its
// rows.
void embed(const TensorView& table, int32_t id, float scale, float* out);

// Each of op.runs equal runs of the row `in` of `width` values: x / sqrt(mean(x²) + eps) · w · op.multiplier,
// with w = 1 + weight where op.centred, and 1 where `weight` is null. The weight spans the row, or one run
// where op.shared_weight. out may be in.
void rms_norm(const RmsNormOp& op, const float* in, int64_t width, const float* weight, float* out);

// cos and sin, times the table's amplitude, of position · inv_freq[i]; one each for every pair. The angle is
// formed and reduced to a turn in float64, so that far positions lose nothing.
void rope_angles(std::span<const double> inv_freq, float amplitude, int64_t position, float* cos, float* sin);

// Turns the first 2·pairs channels of each head of a row: (x[i], x[i + pairs]) by angle i.
void rope(const RopeOp& op, int64_t pairs, const float* cos, const float* sin, float* row);

// act(x): silu is x / (1 + exp(-x)); gelu is x/2 · (1 + erf(x / sqrt(2))); gelu-tanh is
// x/2 · (1 + tanh(sqrt(2/pi) · (x + 0.044715 x³))); sigmoid is 1 / (1 + exp(-x)); relu is max(x, 0).
float activate(Activation activation, float x);

// out = function(gate, up) (program.h), one gate for `run` values. out may be `up`, or gate where run is 1.
void activate_mul(const GateFunction& function, const float* gate, const float* up, int64_t count, float* out,
                  int64_t run = 1);

// out += multiplier · in
void add(float multiplier, const float* in, int64_t count, float* out);

// y = multiplier · out; out = cap · tanh(y / cap), or y where cap is 0.
void scale(float multiplier, float cap, int64_t count, float* out);

// The op on one row.
void scale_runs(const ScaleRunsOp& op, float* row);

// One row of RouteOp: scores [experts] to ids and weights [2 · chosen]. A NaN is chosen last, and wherever
// one stands all weights are NaN. `choice_bias` may be null; `scratch` holds experts + groups floats.
void route(const Routing& routing, const float* scores, const float* choice_bias, float* scratch, float* out);

}  // namespace butter::reference
