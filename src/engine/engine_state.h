// What stands behind the public Engine and Sequence.
#pragma once

#include <mutex>
#include <optional>

#include "butter/engine.h"
#include "cache/cache_plan.h"
#include "cache/cache_set.h"
#include "checkpoint/checkpoint.h"
#include "kernels/device.h"
#include "model/model_spec.h"

namespace butter {

struct Engine::State {
  // Destroyed in reverse order: the pool and programs before the device, the device before what it reads.
  std::optional<Checkpoint> checkpoint;
  std::vector<Buffer> weight_buffers;
  std::unique_ptr<Device> device;
  ModelSpec spec;
  Program program;
  CacheModel cache_model;
  StepLimits limits;
  std::unique_ptr<PreparedProgram> prepared;
  std::shared_ptr<PagePool> pool;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> absent_ids;
  ModelInfo info;
  EngineOptions options;
  std::mutex step_mutex;  // one step at a time

  // Called for every prefill step: tokens done before it, its rows, whether it is the last.
  using StepFn = std::function<Status(int64_t done, int rows, bool last)>;

  Result<CacheOptions> cache_options(const SequenceOptions& options) const;
  Status load_weights();
  Status prepare();
  void describe(const std::string& path);

  Status check_tokens(const Sequence::State& sequence, std::span<const int32_t> tokens) const;
  Status run_step(std::span<Sequence::State* const> sequences, std::span<const int> rows,
                  std::span<const int32_t> ids, std::span<const int32_t> logit_rows, const TraceFn* trace);
  Status run_step(Sequence::State& sequence, std::span<const int32_t> ids,
                  std::span<const int32_t> logit_rows, const TraceFn* trace);
  Status feed(Sequence::State& sequence, std::span<const int32_t> tokens, int step_rows, const StepFn& each);
  Status feed_last(Sequence::State& sequence, std::span<const int32_t> tokens, const TraceFn* trace);
  Status feed_all(Sequence::State& sequence, std::span<const int32_t> tokens,
                  const std::function<void(int64_t, std::span<const float>)>& on_logits,
                  const TraceFn* trace);
};

struct Sequence::State {
  Engine::State* engine = nullptr;
  std::optional<CacheSet> caches;
  SequenceOptions options;
  std::function<bool(int64_t, int64_t)> prefill_progress;
  int64_t max_context = 0;
  bool unbounded = false;  // every layer has a window: positions grow for ever
};

// Splits `remaining` tokens from `position` on: the rows of the next prefill step. It ends at the last token
// or at a boundary of the scheme's spans (pages, if it has none), the one that `step_rows` rows from the
// start of a span reach, so that steps share boundaries wherever they start; smaller steps never cross one.
int next_step_rows(int64_t position, int64_t remaining, int step_rows, int64_t span);

}  // namespace butter
