// Measuring what cache schemes cost on a model and a text of the user's own, against the raw cache.
//
//   auto windows = butter::cut_windows(*engine->tokenizer(), texts, 6, 2048);
//   auto report = butter::measure_quality(*engine, *windows, {.kv_caches = {"affine4", "aura"}});
//
// Every scheme reads the same tokens as the raw cache, beside it, with the same windows. Memory is bounded:
// the logits of one chunk of positions at a time, and one float for each position and scheme. All of it runs
// on the caller's thread and on as many more as the engine has. An error of a step ends a measurement; a
// cancelled one gives what was measured till then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "butter/engine.h"
#include "butter/export.h"

namespace butter {

// How a long measurement tells where it is, and is stopped.
struct EvalControl {
  // Steps of the measurement's own kind done and in all: tokens, questions.
  std::function<void(int64_t done, int64_t total)> progress = {};
  // Ends the measurement between steps when it turns true.
  const std::atomic<bool>* cancel = nullptr;
};

struct NamedText {
  std::string name;
  std::string text;
};

struct EvalOptions {
  std::vector<std::string> kv_caches = {};  // schemes, in the order of the results
  SequenceOptions sequence = {};            // its windows hold for the raw cache too; its scheme is not read
  // Tokens of a step: 0 for as many as eval_chunk_rows(), read as a prompt is; 1 reads them as decode does,
  // by its kernels, which round queries and weights.
  int64_t step_tokens = 0;
  EvalControl control = {};
};

// --- Distributions

// `count` windows of `tokens` tokens: each text in turn gives one, spread evenly over it, without overlap. A
// BOS stands first where the tokenizer adds one. kInvalidArgument where a text is too short, saying what it
// holds.
BUTTER_API Result<std::vector<std::vector<int32_t>>> cut_windows(const Tokenizer& tokenizer,
                                                                 std::span<const NamedText> texts,
                                                                 int64_t count, int64_t tokens);

// Of 100 questions, say, 93 answered right.
struct BUTTER_API NeedleScore {
  int64_t asked = 0;
  int64_t right = 0;
  int64_t context_tokens = 0;
  // By where the fact stood: fifths of the text, the first fifth first.
  struct Depth {
    int64_t asked = 0;
    int64_t right = 0;
  };
  std::vector<Depth> depths;

  double share() const;
  // Wilson's interval of 95 %.
  double low() const;
  double high() const;
};

// What a scheme costs. Every figure is over the same positions: those of each window that have a successor in
// it.
struct SchemeQuality {
  std::string kv_cache;
  int64_t positions = 0;
  double bits_per_value = 0;  // of a sealed page, all its bytes counted
  double ratio_sealed = 1;
  double kld_mean = 0;  // KLD(raw || scheme) in nats
  double kld_p99 = 0;   // 99 % of positions have at most this
  double top1 = 0;      // share of positions with the same most likely token
  double ppl = 0;       // of the text, with this scheme
  double ppl_raw = 0;   // and with the raw cache
  std::optional<NeedleScore> needle;
};

struct QualityReport {
  std::vector<SchemeQuality> rows;  // figures are NaN where no position was reached
  bool complete = true;             // false: cancelled
};

// Positions whose logits are held at once, of the raw cache and of one scheme: what EngineOptions::logit_rows
// should be for measure_quality().
BUTTER_API int eval_chunk_rows(int64_t vocabulary);

BUTTER_API Result<QualityReport> measure_quality(Engine& engine,
                                                 std::span<const std::vector<int32_t>> windows,
                                                 const EvalOptions& options);

// --- Retrieval

struct NeedleOptions {
  int64_t needles = 200;
  int64_t context_tokens = 2048;  // of the prompt with its answer
  uint64_t seed = 0;
};

struct NeedleReport {
  std::vector<NeedleScore> scores;  // by scheme
  bool complete = true;
};

// Facts ("the access code of the amber tower is 40713") stand at different depths of a text, and are asked
// for at its end, by the model's chat template or plainly; an answer is right if the greedy continuation says
// the value. A prompt holds several facts, and is read once for all questions to it. The facts depend on the
// seed alone.
BUTTER_API Result<NeedleReport> probe_needles(Engine& engine, std::span<const NamedText> filler,
                                              const NeedleOptions& needles, const EvalOptions& options);

// --- Layers

struct AttentionErrors {
  std::string kv_cache;
  // By layer: rms(attention of the scheme - raw) / rms(raw), over the positions that see sealed rows;
  // negative where a layer has no attention, or no position reached was one of them. Each layer is given the
  // exact inputs: errors of the layers below it are not part of its own.
  std::vector<double> layers;
};

struct AttentionReport {
  std::vector<AttentionErrors> rows;
  bool complete = true;
};

BUTTER_API Result<AttentionReport> measure_attention_error(Engine& engine,
                                                           std::span<const std::vector<int32_t>> windows,
                                                           const EvalOptions& options);

}  // namespace butter
