// measure_attention_error: what a scheme does to each layer's attention, all else being exact.
//
// The raw sequence takes a step and each layer's attention rows are kept. Another scheme's sequence takes the
// same step; after each layer's attention its rows are compared with the kept ones and replaced by them, so
// that what follows, the next layers' keys and values among it, is what the raw sequence computed.
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/status.h"
#include "engine/engine_state.h"
#include "engine/eval_sequences.h"

namespace butter {
namespace {

constexpr int kStepRows = 64;
constexpr int64_t kFirstCompared = 64;  // the first page's queries read no sealed rows

// The decoder's name for the op whose rows are compared.
bool is_attention(const OpLabel& label) {
  return label.layer >= 0 && std::string_view(label.what) == "attend";
}

// Of one scheme and layer.
struct ErrorSums {
  double squared_error = 0;
  double squared_norm = 0;
};

double relative_error(const ErrorSums& sums) {
  return sums.squared_norm > 0 ? std::sqrt(sums.squared_error / sums.squared_norm) : -1;
}

}  // namespace

class AttentionComparison {
 public:
  AttentionComparison(Engine& engine, const EvalOptions& options)
      : engine_(engine), state_(*engine.state_), options_(options) {
    kept_.resize(state_.spec.layers.size());
    sums_.assign(options.kv_caches.size(), std::vector<ErrorSums>(state_.spec.layers.size()));
  }

  // False: cancelled.
  Result<bool> run(std::span<const std::vector<int32_t>> windows) {
    for (const auto& window : windows) total_ += static_cast<int64_t>(window.size()) * passes();
    for (const auto& window : windows) {
      BUTTER_ASSIGN(const bool whole, read_window(window));
      if (!whole) return false;
    }
    return true;
  }

  std::vector<double> errors(size_t scheme) const {
    std::vector<double> layers;
    for (const ErrorSums& sums : sums_[scheme]) layers.push_back(relative_error(sums));
    return layers;
  }

 private:
  int64_t passes() const { return 1 + static_cast<int64_t>(sums_.size()); }

  Result<bool> read_window(std::span<const int32_t> window) {
    BUTTER_ASSIGN(Sequence raw, make_raw_sequence(engine_, options_));
    std::vector<Sequence> sequences;
    for (size_t s = 0; s < sums_.size(); ++s) {
      BUTTER_ASSIGN(Sequence sequence, make_scheme_sequence(engine_, options_, s));
      sequences.push_back(std::move(sequence));
    }
    for (size_t at = 0; at < window.size(); at += kStepRows) {
      if (is_cancelled(options_.control)) return false;
      const auto tokens = window.subspan(at, std::min<size_t>(kStepRows, window.size() - at));
      BUTTER_TRY(take_step(raw, sequences, tokens));
      done_ += static_cast<int64_t>(tokens.size()) * passes();
      if (options_.control.progress) options_.control.progress(done_, total_);
    }
    return true;
  }

  Status take_step(Sequence& raw, std::vector<Sequence>& sequences, std::span<const int32_t> tokens) {
    std::lock_guard<std::mutex> lock(state_.step_mutex);
    const bool counts = raw.position() >= kFirstCompared;
    const TraceFn keep = [this](const OpLabel& label, const Slot& slot, const float* rows, int64_t count) {
      if (is_attention(label))
        kept_[static_cast<size_t>(label.layer)].assign(rows, rows + count * slot.width);
    };
    BUTTER_TRY(step(raw, tokens, keep));
    for (size_t s = 0; s < sequences.size(); ++s) {
      const TraceFn compare = [&](const OpLabel& label, const Slot&, float* rows, int64_t) {
        if (!is_attention(label)) return;
        const std::vector<float>& exact = kept_[static_cast<size_t>(label.layer)];
        if (counts) add_errors(exact, rows, sums_[s][static_cast<size_t>(label.layer)]);
        std::memcpy(rows, exact.data(), exact.size() * sizeof(float));
      };
      BUTTER_TRY(step(sequences[s], tokens, compare));
    }
    return {};
  }

  Status step(Sequence& sequence, std::span<const int32_t> tokens, const TraceFn& trace) {
    BUTTER_TRY(state_.check_tokens(*sequence.state_, tokens));
    return state_.run_step(*sequence.state_, tokens, {}, &trace);
  }

  static void add_errors(std::span<const float> exact, const float* found, ErrorSums& sums) {
    for (size_t i = 0; i < exact.size(); ++i) {
      const double error = static_cast<double>(found[i]) - exact[i];
      sums.squared_error += error * error;
      sums.squared_norm += static_cast<double>(exact[i]) * exact[i];
    }
  }

  Engine& engine_;
  Engine::State& state_;
  const EvalOptions& options_;
  std::vector<std::vector<float>> kept_;      // by layer: the raw sequence's rows of this step
  std::vector<std::vector<ErrorSums>> sums_;  // by scheme and layer
  int64_t done_ = 0, total_ = 0;
};

Result<AttentionReport> measure_attention_error(Engine& engine, std::span<const std::vector<int32_t>> windows,
                                                const EvalOptions& options) {
  AttentionComparison comparison(engine, options);
  AttentionReport report;
  BUTTER_ASSIGN(report.complete, comparison.run(windows));
  for (size_t s = 0; s < options.kv_caches.size(); ++s) {
    BUTTER_ASSIGN(const SchemeQuality scheme, describe_scheme(engine, options, s));
    report.rows.push_back({scheme.kv_cache, comparison.errors(s)});
  }
  return report;
}

}  // namespace butter
