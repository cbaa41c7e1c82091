// measure_quality: the raw cache and every scheme read the same windows side by side, a chunk at a time.
#include "butter/eval.h"

#include <algorithm>
#include <thread>

#include "core/status.h"
#include "engine/eval_metrics.h"
#include "engine/eval_sequences.h"

namespace butter {
namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;  // of the raw cache's logits; as much of a scheme's
constexpr int kMostChunkRows = 256;
constexpr int kPageRows = 64;
constexpr int64_t kMostWindows = int64_t{1} << 20;

// Logits [rows][vocabulary] of one chunk, with a summary of each row.
class LogitChunk {
 public:
  LogitChunk(int64_t rows, int64_t vocabulary)
      : vocabulary_(static_cast<size_t>(vocabulary)),
        values_(static_cast<size_t>(rows) * vocabulary_),
        summaries_(static_cast<size_t>(rows)) {}

  // Feeds the tokens and keeps what they give.
  Status fill(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens) {
    return engine.forward_all(sequence, tokens, [&](int64_t row, std::span<const float> logits) {
      std::copy(logits.begin(), logits.end(), values_.begin() + row * static_cast<int64_t>(vocabulary_));
    });
  }

  std::span<const float> row(size_t r) const { return {values_.data() + r * vocabulary_, vocabulary_}; }
  const LogitSummary& summary(size_t r) const { return summaries_[r]; }
  void summarise_row(size_t r) { summaries_[r] = summarise(row(r)); }
  double negative_log_likelihood(size_t r, int32_t id) const {
    return summary(r).log_sum - row(r)[static_cast<size_t>(id)];
  }

 private:
  size_t vocabulary_;
  std::vector<float> values_;
  std::vector<LogitSummary> summaries_;
};

// each(row) for rows 0 to count - 1, on up to `threads` threads. A row is large: half a million operations.
template <typename Each>
void for_rows(size_t count, int threads, const Each& each) {
  const size_t workers = std::min<size_t>(static_cast<size_t>(threads), std::max<size_t>(1, count / 8));
  const auto work = [&](size_t worker) {
    for (size_t row = worker; row < count; row += workers) each(row);
  };
  std::vector<std::jthread> others;
  for (size_t worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
}

class QualityRun {
 public:
  QualityRun(Engine& engine, std::span<const std::vector<int32_t>> windows, const EvalOptions& options)
      : engine_(engine),
        windows_(windows),
        options_(options),
        chunk_rows_(step_rows(options.step_tokens, engine.info().vocabulary)),
        raw_(chunk_rows_, engine.info().vocabulary),
        scheme_(chunk_rows_, engine.info().vocabulary),
        klds_(static_cast<size_t>(chunk_rows_)),
        tallies_(options.kv_caches.size()) {
    for (const auto& window : windows) total_ += passes() * predicted(window);
  }

  Result<QualityReport> run() {
    QualityReport report;
    for (const auto& window : windows_) {
      BUTTER_ASSIGN(report.complete, read_window(window));
      if (!report.complete) break;
    }
    for (size_t s = 0; s < tallies_.size(); ++s) {
      BUTTER_ASSIGN(SchemeQuality row, describe_scheme(engine_, options_, s));
      const QualityTally& tally = tallies_[s];
      row.positions = tally.positions();
      row.kld_mean = tally.kld_mean();
      row.kld_p99 = tally.kld_percentile(0.99);
      row.top1 = tally.same_best_share();
      row.ppl = tally.perplexity();
      row.ppl_raw = raw_tally_.perplexity();
      report.rows.push_back(std::move(row));
    }
    return report;
  }

 private:
  static int64_t step_rows(int64_t step_tokens, int64_t vocabulary) {
    const int64_t most = eval_chunk_rows(vocabulary);
    return step_tokens == 0 ? most : std::min(step_tokens, most);
  }
  int64_t passes() const { return 1 + static_cast<int64_t>(options_.kv_caches.size()); }
  // The last token of a window has nothing to be held against.
  static int64_t predicted(const std::vector<int32_t>& window) {
    return std::max<int64_t>(0, static_cast<int64_t>(window.size()) - 1);
  }

  // False: cancelled.
  Result<bool> read_window(std::span<const int32_t> window) {
    BUTTER_ASSIGN(Sequence raw, make_raw_sequence(engine_, options_));
    std::vector<Sequence> sequences;
    for (size_t s = 0; s < tallies_.size(); ++s) {
      BUTTER_ASSIGN(Sequence sequence, make_scheme_sequence(engine_, options_, s));
      sequences.push_back(std::move(sequence));
    }
    const std::span<const int32_t> next = window.empty() ? window : window.subspan(1);
    for (size_t at = 0; at < next.size(); at += static_cast<size_t>(chunk_rows_)) {
      const size_t rows = std::min(next.size() - at, static_cast<size_t>(chunk_rows_));
      BUTTER_ASSIGN(const bool whole,
                    read_chunk(raw, sequences, window.subspan(at, rows), next.subspan(at, rows)));
      if (!whole) return false;
    }
    return true;
  }

  // All schemes have seen the same positions after a chunk; one that is cancelled counts for none.
  Result<bool> read_chunk(Sequence& raw, std::vector<Sequence>& sequences, std::span<const int32_t> tokens,
                          std::span<const int32_t> next) {
    if (is_cancelled(options_.control)) return false;
    BUTTER_TRY(raw_.fill(engine_, raw, tokens));
    report_tokens(tokens.size());
    for_rows(tokens.size(), engine_.info().threads, [&](size_t row) { raw_.summarise_row(row); });
    std::vector<QualityTally> tallies = tallies_;
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (is_cancelled(options_.control)) return false;
      BUTTER_TRY(scheme_.fill(engine_, sequences[s], tokens));
      report_tokens(tokens.size());
      compare(next, tallies[s]);
    }
    tallies_ = std::move(tallies);
    for (size_t row = 0; row < tokens.size(); ++row) {
      raw_tally_.add(0, true, raw_.negative_log_likelihood(row, next[row]));
    }
    return true;
  }

  void compare(std::span<const int32_t> next, QualityTally& tally) {
    for_rows(next.size(), engine_.info().threads, [&](size_t row) {
      scheme_.summarise_row(row);
      klds_[row] = kullback_leibler(raw_.row(row), raw_.summary(row), scheme_.row(row), scheme_.summary(row));
    });
    for (size_t row = 0; row < next.size(); ++row) {
      tally.add(klds_[row], raw_.summary(row).best == scheme_.summary(row).best,
                scheme_.negative_log_likelihood(row, next[row]));
    }
  }

  void report_tokens(size_t tokens) {
    done_ += static_cast<int64_t>(tokens);
    if (options_.control.progress) options_.control.progress(done_, total_);
  }

  Engine& engine_;
  std::span<const std::vector<int32_t>> windows_;
  const EvalOptions& options_;
  int64_t chunk_rows_;
  LogitChunk raw_, scheme_;
  std::vector<double> klds_;  // of a chunk
  std::vector<QualityTally> tallies_;
  QualityTally raw_tally_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

int eval_chunk_rows(int64_t vocabulary) {
  const int64_t row_bytes = std::max<int64_t>(1, vocabulary) * static_cast<int64_t>(sizeof(float));
  const int64_t fit = kChunkBytes / row_bytes / kPageRows * kPageRows;
  return static_cast<int>(std::clamp<int64_t>(fit, kPageRows, kMostChunkRows));
}

Result<std::vector<std::vector<int32_t>>> cut_windows(const Tokenizer& tokenizer,
                                                      std::span<const NamedText> texts, int64_t count,
                                                      int64_t tokens) {
  if (texts.empty()) return fail(StatusCode::kInvalidArgument, "there is no text; at least one is expected");
  if (count < 1 || count > kMostWindows || tokens < 2) {
    return fail(StatusCode::kInvalidArgument,
                "{} windows of {} tokens were asked for; 1 to {} windows of at least 2 tokens are expected",
                count, tokens, kMostWindows);
  }
  const bool bos = tokenizer.adds_bos() && tokenizer.bos_id();
  const int64_t taken = tokens - (bos ? 1 : 0);  // of the text
  const auto sources = static_cast<int64_t>(texts.size());
  std::vector<std::vector<int32_t>> windows(static_cast<size_t>(count));
  for (int64_t t = 0; t < sources && t < count; ++t) {
    const NamedText& text = texts[static_cast<size_t>(t)];
    BUTTER_ASSIGN(const std::vector<int32_t> ids,
                  tokenizer.encode(text.text, {.add_bos = false, .add_eos = false}));
    const auto held = static_cast<int64_t>(ids.size());
    const int64_t wanted = (count - t + sources - 1) / sources;  // of this text
    if (held / taken < wanted) {
      return fail(
          StatusCode::kInvalidArgument,
          "{} has {} tokens, which is {} window{} of {}; {} {} expected (fewer --windows, or a smaller "
          "--window-tokens, ask for less)",
          text.name, held, held / taken, held / taken == 1 ? "" : "s", tokens, wanted,
          wanted == 1 ? "is" : "are");
    }
    for (int64_t w = 0; w < wanted; ++w) {
      std::vector<int32_t>& window = windows[static_cast<size_t>(t + w * sources)];
      if (bos) window.push_back(*tokenizer.bos_id());
      const auto from = ids.begin() + w * (held / wanted);
      window.insert(window.end(), from, from + taken);
    }
  }
  return windows;
}

Result<QualityReport> measure_quality(Engine& engine, std::span<const std::vector<int32_t>> windows,
                                      const EvalOptions& options) {
  if (options.step_tokens < 0) {
    return fail(StatusCode::kInvalidArgument, "a step of {} tokens was asked for; 0 or more is expected",
                options.step_tokens);
  }
  return QualityRun(engine, windows, options).run();
}

}  // namespace butter
