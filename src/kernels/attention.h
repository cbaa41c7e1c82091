// Attention over paged caches: arguments shared by the reference and the CPU kernels.
//
// For every row r of a sequence (position p = position + r - first_row) and query head h, with
// kv = h / (q_heads / kv_heads):
//
//   out[r][h] = Σ_k softmax_k(scale · q[r][h]·K[kv][k]) · V[kv][k]   over the keys k that p sees
//
// and, where there are sinks, one score more in the softmax, sinks[h], that has no value. Softmax and sums in
// float32. The rows of the step are already in the view's raw pages, and the pages that
// the step fills are already sealed (attention before sealing would make answers depend on the chunk size).
// The split of the work depends on positions only, never on threads or on the rows beside a row; partial
// states merge in position order.
#pragma once

#include "core/thread_pool.h"
#include "kernels/kv_view.h"
#include "kernels/products.h"

namespace butter {

struct AttendSequence {
  KvView view;
  int64_t position = 0;  // of its first row
  int first_row = 0;     // its rows in queries and out
  int rows = 0;
};

struct AttendBatch {
  const AttendSequence* sequences = nullptr;
  int count = 0;
  const float* queries = nullptr;  // [rows of the step][q_heads * key_dim], after rope
  float* out = nullptr;            // [rows of the step][q_heads * value_dim]
  int q_heads = 0;
  float scale = 1;
  const float* sinks = nullptr;  // [q_heads] a score more for each head, without a value; or null
  Products products = Products::kExact;
};

// The largest batch that a prepared program will see, to plan scratch for.
struct AttendLimits {
  int rows = 0;               // of all sequences of a step
  int64_t max_positions = 0;  // of a sequence
  int q_heads = 0;
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int workers = 1;
};

namespace reference {

// Plain text of the definition above, one thread; every key is decoded to float on its own.
void attend(const AttendBatch& batch);

}  // namespace reference

namespace cpu {

// Bytes of scratch that attend() needs for any batch within the limits.
int64_t attend_scratch_bytes(const AttendLimits& limits);

// To be called by every worker of a region with the same arguments; meets the others at barriers inside, and
// returns with out complete for all.
void attend(const AttendBatch& batch, Isa isa, std::byte* scratch, const Worker& worker);

}  // namespace cpu

}  // namespace butter
