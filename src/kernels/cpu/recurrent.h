// Recurrent: the CPU's recurrent mixers on the rows of one sequence, for one instruction set (program.h has
// the equations, families.md 4 the chunk forms).
//
// A sequence of fewer than kPrefillRows rows goes position by position, reading and writing each head's state
// once (it stays in the first caches meanwhile). More rows go in chunks of kChunkRows, as products of
// matrices in float32: within a chunk the state is never formed. Mamba1's decay differs from channel to
// channel, so it has no such form: its positions are scanned with a vector of channels and their states at a
// time.
//
// Workers split channels (conv, mamba1) or heads (mamba2, delta rule); a result does not depend on how.
// Nothing is allocated; all are thread-safe on disjoint parts. They return false where the state that they
// leave has a value that is NaN or infinite.
//
// Errors against the reference, relative to the largest value of a row: 2e-6 position by position (the order
// of sums, exp and log1p), 2e-5 in chunks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu_isa.h"
#include "kernels/program.h"

namespace butter::cpu {

constexpr int kChunkRows = 64;

// Rows [rows][stride], of which an op reads or writes the first columns.
struct StridedRows {
  float* data = nullptr;
  int64_t stride = 0;

  float* row(int64_t index) const { return data + index * stride; }
};

struct ConvRows {
  StridedRows in, out;
  int64_t rows = 0;
  int64_t channels = 0;
  int taps = 0;
  const float* weight = nullptr;  // [taps][channels]
  const float* bias = nullptr;    // or null
  const float* past = nullptr;    // [taps − 1][channels], or null for zeros
  float* next_past = nullptr;
};

struct Mamba1Rows {
  StridedRows x, dt, b, c, out;
  int64_t rows = 0;
  int64_t width = 0;
  int state_size = 0;
  const float* decay = nullptr;  // [state_size][width]
  const float* skip = nullptr;
  const float* state = nullptr;  // or null for zeros
  float* next_state = nullptr;
};

struct Mamba2Rows {
  const Mamba2Op* op = nullptr;
  StridedRows conv, dt, out;
  int64_t rows = 0;
  const float* decay = nullptr;
  const float* skip = nullptr;
  const float* dt_bias = nullptr;
  const float* state = nullptr;  // or null for zeros
  float* next_state = nullptr;
};

struct DeltaRows {
  const DeltaRuleOp* op = nullptr;
  StridedRows conv, beta, alpha, out;
  int64_t rows = 0;
  const float* decay = nullptr;
  const float* dt_bias = nullptr;
  const float* state = nullptr;  // or null for zeros
  float* next_state = nullptr;
};

struct Recurrent {
  // Channels [begin, end).
  void (*conv)(const ConvRows& rows, int64_t begin, int64_t end);
  bool (*mamba1)(const Mamba1Rows& rows, int64_t begin, int64_t end);
  // Heads [begin, end); scratch of recurrent_scratch_floats().
  bool (*mamba2)(const Mamba2Rows& rows, int64_t begin, int64_t end, float* scratch);
  bool (*delta_rule)(const DeltaRows& rows, int64_t begin, int64_t end, float* scratch);
};

const Recurrent& recurrent(Isa isa);

// One worker's scratch, aligned to 64.
int64_t recurrent_scratch_floats(const Mamba2Op& op);
int64_t recurrent_scratch_floats(const DeltaRuleOp& op);

}  // namespace butter::cpu
