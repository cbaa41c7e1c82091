// run_experts: ExpertsOp on the CPU (program.h): the rows of a step, each through the experts that its routes
// name.
//
// Rows are sorted by expert: every (row, route) pair gets a place, an expert's pairs stand together, and each
// of its three matrices is one product with all of them. Workers split the outputs of every product, so that
// a single row's experts are read by all. What a row gets does not depend on the rows beside it: its products
// are summed in the order of its own routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/program.h"
#include "kernels/vector_weights.h"

namespace butter::cpu {

struct ExpertsStep {
  const ExpertsOp* op = nullptr;
  const std::vector<LinearWeight>* weights = nullptr;
  const VectorWeights* vectors = nullptr;
  const Elementwise* elementwise = nullptr;
  Isa isa = Isa::kPortable;
  LinearPath path = LinearPath::kDecode;
  int64_t rows = 0;
  StridedRows in, routes, out;
};

// Bytes of scratch that run_experts() needs for steps of up to `rows` rows, aligned to 64.
int64_t experts_scratch_bytes(const ExpertsOp& op, const std::vector<LinearWeight>& weights, int64_t rows);

// To be called by every worker of a region with the same step and scratch; meets the others at barriers
// inside. Each leaves its part of `out` to a last barrier of the caller. `linear_scratch` is the worker's own
// (linear_scratch_bytes).
void run_experts(const ExpertsStep& step, std::byte* scratch, std::byte* linear_scratch,
                 const Worker& worker);

}  // namespace butter::cpu
