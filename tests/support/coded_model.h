// What is promised of models whose weights are codes: the same logits on every device, for the same experts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu_isa.h"
#include "engine/traced_forward.h"
#include "support/fixture.h"
#include "support/run_engine.h"

namespace butter {

inline constexpr float kCodesBound =
    4e-1f;  // 8-bit activations on block-quantised weights, against float ones
inline constexpr double kCodesDivergence = 1e-3;
// Tiles hold codes as bf16 weights, off by 2^-9: models whose states enlarge roundings (model/decoder.cc)
// feel that, as they would feel another 8-bit quantisation of the weights.
inline constexpr float kTileCodesBound = 5;
inline constexpr double kTileCodesDivergence = 1e-2;

// Some models advertise more than a test's caches should hold.
inline SequenceOptions short_sequence() {
  SequenceOptions options;
  options.max_context = 256;
  return options;
}

// The experts that a run chose, to be imposed on another: where two experts are nearly as good, roundings
// that hardly change a score change the choice, and with it the logits by more than any bound. So scores are
// compared, and logits for the same choices. Empty for models without experts.
class Routes {
 public:
  // Those of a run on the engine's device.
  static Routes of(Engine& engine, std::span<const int32_t> ids) {
    Routes routes;
    const TraceFn record = [&](const OpLabel& label, const Slot& slot, const float* rows, int64_t count) {
      if (Recording* recording = routes.find(label))
        recording->values.insert(recording->values.end(), rows, rows + count * slot.width);
    };
    Sequence sequence = make_sequence(engine, short_sequence());
    EXPECT_TRUE(TracedForward::run(engine, sequence, ids, record, [](int64_t, std::span<const float>) {}));
    return routes;
  }

  bool empty() const { return recordings_.empty(); }

  // The logits of a run with these choices. Scores are off by no more than `bound`.
  Logits impose(Engine& engine, std::span<const int32_t> ids, size_t chunk, float bound) {
    Sequence sequence = make_sequence(engine, short_sequence());
    if (recordings_.empty()) return feed_all(engine, sequence, ids, chunk);
    float worst = 0;
    const TraceFn follow = [&](const OpLabel& label, const Slot& slot, float* rows, int64_t count) {
      Recording* recording = find(label);
      if (recording == nullptr) return;
      const auto size = static_cast<size_t>(count * slot.width);
      const std::span<const float> recorded(recording->values.data() + recording->used, size);
      recording->used += size;
      if (is_route(label)) {
        std::copy(recorded.begin(), recorded.end(), rows);
      } else {
        worst = std::max(worst, max_difference(recorded, {rows, size}));
      }
    };
    Logits logits;
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const Status status = TracedForward::run(
          engine, sequence, ids.subspan(at, std::min(chunk, ids.size() - at)), follow,
          [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
      EXPECT_TRUE(status) << status.error().message();
    }
    for (auto& [place, recording] : recordings_) recording.used = 0;
    EXPECT_LE(worst, bound) << "of a router's score";
    return logits;
  }

 private:
  struct Recording {
    std::vector<float> values;
    size_t used = 0;
  };

  static bool is_route(const OpLabel& label) { return std::string(label.what) == "route"; }
  Recording* find(const OpLabel& label) {
    if (!is_route(label) && std::string(label.what) != "router") return nullptr;
    return &recordings_[{label.layer, is_route(label)}];
  }

  std::map<std::pair<int, bool>, Recording> recordings_;  // by layer: scores, choices
};

// The divergence (KLD) of a row's distribution from the exact one, on average.
inline double mean_divergence(const Logits& exact, const Logits& other) {
  double sum = 0;
  for (size_t r = 0; r < exact.size(); ++r) {
    double exact_total = 0, other_total = 0, row = 0;
    for (float x : exact[r]) exact_total += std::exp(static_cast<double>(x));
    for (float x : other[r]) other_total += std::exp(static_cast<double>(x));
    for (size_t i = 0; i < exact[r].size(); ++i) {
      const double p = std::exp(static_cast<double>(exact[r][i])) / exact_total;
      row += p * (exact[r][i] - other[r][i] - std::log(exact_total / other_total));
    }
    sum += row;
  }
  return sum / static_cast<double>(exact.size());
}

// Logits of a model with coded weights on each instruction set, against those of the reference device.
inline void expect_codes_mean_the_same(const Fixture& fixture, const std::string& model) {
  const auto reference = load_engine(tiny_options(model, "reference"));
  Sequence sequence = make_sequence(*reference, short_sequence());
  const Logits expected = feed_all(*reference, sequence, fixture.input_ids);
  Routes routes = Routes::of(*reference, fixture.input_ids);
  for (Isa isa : available_isas()) {
    const ScopedIsa forced(isa_name(isa));
    const auto engine = load_engine(tiny_options(model, "cpu"));
    for (size_t chunk : {5, 1000}) {
      SCOPED_TRACE(testing::Message() << isa_name(isa) << " chunks of " << chunk);
      const bool tiles = isa == Isa::kAmx && chunk > 16 && enlarges_roundings(fixture.name);
      const float bound = tiles ? kTileCodesBound : kCodesBound;
      const Logits logits = routes.impose(*engine, fixture.input_ids, chunk, bound);
      EXPECT_LE(max_difference(logits, expected), bound);
      EXPECT_LE(mean_divergence(expected, logits), tiles ? kTileCodesDivergence : kCodesDivergence);
    }
  }
}

}  // namespace butter
