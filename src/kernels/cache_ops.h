// Writing rows into open pages, and sealing full ones: what both host devices share.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/status.h"
#include "kernels/attention.h"
#include "kernels/step_views.h"

namespace butter {

// The first value of a step that is NaN or infinite, by (layer, position, head): the same whichever worker
// met it.
class NonFinite {
 public:
  void reset() { first_.store(kNothing, std::memory_order_relaxed); }
  void report(int layer, int64_t position, int head);
  // The recurrent state that a step from `position` on leaves.
  void report_state(int layer, int64_t position);
  bool found() const { return first_.load(std::memory_order_relaxed) != kNothing; }
  // "layer 3, KV head 1, position 17: ... " as an error; nothing where none was found.
  Status status() const;

 private:
  static constexpr uint64_t kNothing = ~uint64_t{0};
  std::atomic<uint64_t> first_{kNothing};
};

// Rounds `count` floats to a raw type (nearest, ties to even); false if one of them is, or becomes, NaN or
// infinite.
struct RowConverter {
  bool (*to_f16)(const float* in, int64_t count, uint16_t* out) = nullptr;
  bool (*to_bf16)(const float* in, int64_t count, uint16_t* out) = nullptr;
  bool (*copy)(const float* in, int64_t count, float* out) = nullptr;

  bool convert(const float* from, int64_t count, DType raw, std::byte* to) const;
};

// In plain scalar text.
extern const RowConverter kScalarConverter;

// Writes row `row` of a sequence (its K and V of every head, [kv_heads][dim]) to its page, and to the pinned
// rows if it is one of the first. Different rows may be written at once.
void write_kv_row(const AttendSequence& sequence, int64_t row, const float* key, const float* value,
                  const RowConverter& converter, NonFinite& non_finite);

// Whose codecs seal.
struct SealOptions {
  bool reference = false;
  Isa isa = Isa::kPortable;
};

// Bytes of scratch that the functions below need, aligned to 64.
int64_t seal_scratch_bytes(const KvLayerShape& shape);

// Whether the step fills page 0 of a sequence whose keys are centred: then make_head_centre() goes before the
// first seal_head(), for every head.
bool makes_centre(const AttendSequence& sequence);
void make_head_centre(const AttendSequence& sequence, int head, const SealOptions& options,
                      std::byte* scratch);

// Encodes one head of a page that the step fills. Rows that are pinned count as zero.
void seal_head(const AttendSequence& sequence, int64_t page, int head, const SealOptions& options,
               std::byte* scratch);

}  // namespace butter
