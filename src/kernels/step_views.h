// StepViews: the KvView of every (KV layer, sequence) of a step, made before the step starts.
//
// Also checks that a step's inputs keep the device's promises. Storage is sized once, for the prepared
// limits.
#pragma once

#include <vector>

#include "core/status.h"
#include "kernels/attention.h"
#include "kernels/device.h"

namespace butter {

class StepViews {
 public:
  StepViews(const Program& program, const StepLimits& limits);

  // Bytes of the scratch that holds the raw rows of a chunk's inner pages, one layer at a time.
  static int64_t scratch_bytes(const Program& program, const StepLimits& limits);

  // Every id, row count and position within the limits; sequences in row order; nothing touched yet.
  Status check(const StepInputs& inputs) const;
  // Fills in the views. `scratch`: scratch_bytes() of memory.
  void set(const StepInputs& inputs, std::byte* scratch);

  int sequences() const { return sequences_; }
  // Views of one KV layer, a sequence each.
  const AttendSequence* layer(int kv_layer) const {
    return views_.data() + static_cast<size_t>(kv_layer) * static_cast<size_t>(limits_.sequences);
  }

 private:
  struct LayerPlace {
    int window_class = 0;
    int index_in_class = 0;
    LayerLayout scratch;  // of this layer alone
  };

  // Of a layer's keys in a sequence that may have so many positions.
  const RotaryTable& rotary(const KvLayerShape& shape, int64_t max_positions) const;

  const Program& program_;
  StepLimits limits_;
  std::vector<LayerPlace> places_;
  std::vector<RotaryTable> rotary_, long_rotary_;  // one for each rope table
  const RotaryTable no_rotation_;
  int64_t scratch_page_bytes_ = 0;
  size_t raw_pages_per_layer_ = 0;
  std::vector<AttendSequence> views_;
  std::vector<RawPage> raw_pages_;
  int sequences_ = 0;
};

// Pages that a step of a sequence fills: [begin, end) by logical number.
struct PageSpan {
  int64_t begin = 0;
  int64_t end = 0;
};
inline PageSpan filled_pages(const AttendSequence& sequence) {
  return {page_of(sequence.position), page_of(sequence.position + sequence.rows)};
}

}  // namespace butter
