#include "kernels/step_views.h"

#include <algorithm>

#include "core/check.h"

namespace butter {
namespace {

// A step of n rows touches at most this many pages of a sequence, wherever it starts.
int64_t touched_pages(int64_t rows) {
  return (rows + kPageRows - 2) / kPageRows + 1;
}

int64_t scratch_page(const Program& program, DType raw) {
  int64_t bytes = 0;
  for (const KvLayerShape& shape : program.kv_layers)
    bytes = std::max(bytes, raw_layout({shape}, raw, kPageRows).bytes);
  return bytes;
}

}  // namespace

StepViews::StepViews(const Program& program, const StepLimits& limits)
    : program_(program), limits_(limits), scratch_page_bytes_(scratch_page(program, limits.raw)) {
  for (size_t i = 0; i < program.kv_layers.size(); ++i) {
    const KvLayerShape& shape = program.kv_layers[i];
    places_.push_back({shape.window_class, program.index_in_class(static_cast<int>(i)),
                       raw_layout({shape}, limits.raw, kPageRows).layers[0]});
  }
  const int64_t pages = limits.seals ? pages_for(limits.max_positions) : 0;
  for (const RopeTable& rope : program.rope_tables) {
    rotary_.emplace_back(rope.inv_freq, pages);
    long_rotary_.emplace_back(rope.long_inv_freq, pages);
  }
  // One page more for every further sequence: each may start and end inside a page.
  raw_pages_per_layer_ = static_cast<size_t>(touched_pages(limits.rows) + 2 * limits.sequences);
  views_.resize(program.kv_layers.size() * static_cast<size_t>(limits.sequences));
  raw_pages_.resize(program.kv_layers.size() * raw_pages_per_layer_);
}

int64_t StepViews::scratch_bytes(const Program& program, const StepLimits& limits) {
  if (!limits.seals) return 0;
  return (touched_pages(limits.rows) + limits.sequences) * scratch_page(program, limits.raw);
}

Status StepViews::check(const StepInputs& inputs) const {
  BUTTER_CHECK(static_cast<int>(inputs.ids.size()) <= limits_.rows && !inputs.ids.empty());
  BUTTER_CHECK(static_cast<int>(inputs.logit_rows.size()) <= limits_.logit_rows);
  BUTTER_CHECK(static_cast<int>(inputs.sequences.size()) <= limits_.sequences && !inputs.sequences.empty());
  for (int32_t id : inputs.ids) {
    if (id < 0 || id >= program_.vocabulary) {
      return fail(StatusCode::kInvalidArgument, "token id {} is out of range; 0 to {} are expected", id,
                  program_.vocabulary - 1);
    }
  }
  int next_row = 0;
  for (const StepSequence& sequence : inputs.sequences) {
    BUTTER_CHECK(sequence.first_row == next_row && sequence.rows > 0 && sequence.position >= 0);
    BUTTER_CHECK(sequence.classes.size() == program_.window_classes.size());
    next_row += sequence.rows;
    for (const ClassPages& pages : sequence.classes) {
      // A window bounds what a query sees, however far the positions have gone.
      const int64_t end = sequence.position + sequence.rows;
      const int64_t seen = pages.window.none() ? end : std::min(end, pages.window.max_size);
      if (seen > limits_.max_positions) {
        return fail(StatusCode::kLimit,
                    "a query of the step sees {} positions; the workspace was made for {}", seen,
                    limits_.max_positions);
      }
    }
  }
  BUTTER_CHECK(next_row == static_cast<int>(inputs.ids.size()));
  for (int32_t row : inputs.logit_rows) BUTTER_CHECK(row >= 0 && row < next_row);
  return {};
}

const RotaryTable& StepViews::rotary(const KvLayerShape& shape, int64_t max_positions) const {
  if (shape.rope_table < 0) return no_rotation_;
  const auto table = static_cast<size_t>(shape.rope_table);
  return program_.rope_tables[table].turns_long(max_positions) ? long_rotary_[table] : rotary_[table];
}

void StepViews::set(const StepInputs& inputs, std::byte* scratch) {
  sequences_ = static_cast<int>(inputs.sequences.size());
  for (size_t layer = 0; layer < places_.size(); ++layer) {
    const LayerPlace& place = places_[layer];
    RawPage* raw = raw_pages_.data() + layer * raw_pages_per_layer_;
    int64_t scratch_used = 0;
    for (int s = 0; s < sequences_; ++s) {
      const StepSequence& from = inputs.sequences[static_cast<size_t>(s)];
      const ClassPages& pages = from.classes[static_cast<size_t>(place.window_class)];
      const auto index = static_cast<size_t>(place.index_in_class);
      AttendSequence& to = views_[layer * static_cast<size_t>(limits_.sequences) + static_cast<size_t>(s)];
      to.position = from.position;
      to.first_row = from.first_row;
      to.rows = from.rows;
      KvView& view = to.view;
      view.shape = program_.kv_layers[layer];
      view.scheme = *from.scheme;
      view.window = pages.window;
      view.kept = pages.kept.data();
      view.kept_end = static_cast<int64_t>(pages.kept.size());
      view.sealed = pages.sealed.data();
      view.first_sealed = pages.first_sealed;
      view.end_sealed = pages.first_sealed + static_cast<int64_t>(pages.sealed.size());
      view.sealed_layout = &pages.sealed_layout->layers[index];
      view.raw = raw;
      view.first_raw = pages.first_raw;
      view.end_raw = pages.first_raw + static_cast<int64_t>(pages.raw.size());
      for (std::byte* base : pages.raw) {
        if (base != nullptr) {
          *raw++ = {base, &pages.raw_layout->layers[index]};
        } else {
          *raw++ = {scratch + scratch_page_bytes_ * scratch_used++, &place.scratch};
        }
      }
      view.centre = {};
      if (pages.centre != nullptr) {
        view.centre = {pages.centre, &pages.centre_layout->layers[index],
                       &rotary(view.shape, from.max_positions)};
      }
      view.pinned = {};
      if (pages.pinned != nullptr) view.pinned = {pages.pinned, &pages.pinned_layout->layers[index]};
    }
    BUTTER_CHECK(raw <= raw_pages_.data() + (layer + 1) * raw_pages_per_layer_);
  }
}

}  // namespace butter
