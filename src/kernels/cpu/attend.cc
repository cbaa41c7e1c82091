// Attention on the CPU: scratch, and the two forms of a sequence's rows, decode (attend_decode.cc) and
// prefill (attend_prefill.cc). Which form a sequence takes depends on its own rows alone.
#include "kernels/attention.h"

#include "kernels/cpu/attend_plan.h"

namespace butter::cpu {
namespace {

// Hands out pieces of scratch in order; with no base it only counts.
class Carver {
 public:
  Carver(std::byte* base, int64_t used) : base_(base), used_(used) {}

  template <typename T>
  T* take(int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), Buffer::kAlignment);
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_;
};

DecodeScratch lay_out_decode(const AttendLimits& limits, int64_t round_parts, Carver& carver) {
  const int group = limits.q_heads / limits.kv_heads;
  DecodeScratch scratch;
  scratch.units = carver.take<Unit>(round_parts);
  scratch.rows = carver.take<RowPlan>(round_parts);
  scratch.queries = carver.take<float>(int64_t{group} * limits.key_dim);
  scratch.prepared_stride = round_up(prepared_bytes_limit(limits.key_dim, group), Buffer::kAlignment);
  scratch.prepared_sealed = carver.take<std::byte>(limits.kv_heads * scratch.prepared_stride);
  scratch.prepared_raw = carver.take<std::byte>(limits.kv_heads * scratch.prepared_stride);
  scratch.sealed_row = carver.take<int64_t>(limits.kv_heads);
  scratch.raw_row = carver.take<int64_t>(limits.kv_heads);
  scratch.centre_stride = centre_query_floats(limits.key_dim);
  scratch.centre = carver.take<float>(limits.q_heads * scratch.centre_stride);
  scratch.centre_rows = carver.take<const float*>(limits.kv_heads * max_exact_pairs(limits.key_dim));
  scratch.centre_pairs = carver.take<uint16_t>(limits.kv_heads * kHalves * max_exact_pairs(limits.key_dim));
  scratch.page_turn = carver.take<float>(limits.key_dim);
  scratch.scores = carver.take<float>(int64_t{group} * kPageRows);
  scratch.merged = carver.take<float>(part_floats(group, limits.value_dim));
  return scratch;
}

PrefillScratch lay_out_prefill(const AttendLimits& limits, Carver& carver) {
  const int group = limits.q_heads / limits.kv_heads;
  const int64_t rows = round_up(int64_t{group} * block_positions(group), kMaxTileRows) + kMaxTileRows;
  const int64_t key_floats = round_up(limits.key_dim, 32), value_floats = round_up(limits.value_dim, 32);
  PrefillScratch scratch;
  scratch.queries = carver.take<float>(rows * limits.key_dim);
  scratch.page = carver.take<float>(int64_t{kPageRows} * std::max(limits.key_dim, limits.value_dim));
  scratch.centre = carver.take<float>(int64_t{kPageRows} * limits.key_dim);
  scratch.packed_queries = carver.take<std::byte>(rows * key_floats * 4);
  scratch.packed_keys = carver.take<std::byte>(kPageRows * key_floats * 4);
  scratch.packed_values = carver.take<std::byte>(kPageRows * value_floats * 4);
  scratch.max = carver.take<float>(rows);
  scratch.sum = carver.take<float>(rows);
  scratch.acc = carver.take<float>(rows * value_floats);
  scratch.visible = carver.take<uint64_t>(rows);
  scratch.kernel = carver.take<std::byte>(kPrefillScratchBytes);
  return scratch;
}

// The limits that a batch itself needs: one layer, so one shape; and a window bounds what a query sees,
// however far the positions have gone.
AttendLimits limits_of(const AttendBatch& batch, int workers) {
  const KvLayerShape& shape = batch.sequences[0].view.shape;
  AttendLimits limits{0, 0, batch.q_heads, shape.kv_heads, shape.key_dim, shape.value_dim, workers};
  for (int s = 0; s < batch.count; ++s) {
    const AttendSequence& sequence = batch.sequences[s];
    const Window& window = sequence.view.window;
    const int64_t end = sequence.position + sequence.rows;
    limits.rows += sequence.rows;
    limits.max_positions =
        std::max(limits.max_positions, window.none() ? end : std::min(end, window.max_size));
  }
  return limits;
}

}  // namespace

AttendScratch::AttendScratch(const AttendLimits& limits, std::byte* base, int worker) {
  const int group = limits.q_heads / limits.kv_heads;
  round_parts = max_parts(limits.max_positions) * std::min(limits.rows, kRoundRows);
  Carver shared(base, 0);
  parts = shared.take<float>(round_parts * limits.kv_heads * part_floats(group, limits.value_dim));
  // A worker is through with decode rows before it takes up prefill blocks: one place serves both.
  const auto lay_out_worker = [&](std::byte* at, int64_t begin) {
    Carver decode_carver(at, begin), prefill_carver(at, begin);
    decode = lay_out_decode(limits, round_parts, decode_carver);
    if (limits.rows >= kPrefillRows) prefill = lay_out_prefill(limits, prefill_carver);
    return std::max(decode_carver.used(), prefill_carver.used()) - begin;
  };
  const int64_t worker_bytes = lay_out_worker(nullptr, 0);
  bytes = shared.used() + limits.workers * worker_bytes;
  if (base != nullptr) lay_out_worker(base, shared.used() + worker * worker_bytes);
}

const AttendKernels& attend_kernels([[maybe_unused]] Isa isa, [[maybe_unused]] Products products) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return attend_kernels_amx(products);
  if (isa == Isa::kAvx512) return attend_kernels_avx512();
  if (isa == Isa::kAvx2) return attend_kernels_avx2();
#endif
  return attend_kernels_portable();
}

int64_t attend_scratch_bytes(const AttendLimits& limits) {
  return AttendScratch(limits, nullptr, 0).bytes;
}

void attend(const AttendBatch& batch, Isa isa, std::byte* scratch, const Worker& worker) {
  if (batch.count == 0) return;
  const AttendScratch places(limits_of(batch, worker.count()), scratch, worker.index());
  attend_decode(batch, isa, places, worker);
  attend_prefill(batch, isa, places, worker);
  worker.barrier();
}

}  // namespace butter::cpu
