// Engine: a loaded model on a device. Sequence: the cache of one stream of tokens, with its position.
//
//   auto engine = butter::Engine::load({.model = "smollm2"});
//   auto sequence = (*engine)->make_layer_caches({});
//   butter::Sampler sampler({.temperature = 0.7f});
//   auto next = (*engine)->forward_sample(*sequence, prompt_ids, sampler);
//
// An Engine may be shared by threads: its steps run one at a time. A Sequence belongs to one caller, and must
// not outlive its engine. Errors are Results (butter/status.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "butter/export.h"
#include "butter/options.h"
#include "butter/plan.h"
#include "butter/sampler.h"
#include "butter/status.h"
#include "butter/tokenizer.h"

namespace butter {

struct ModelInfo {
  std::string name;    // of the file or folder
  std::string family;  // "llama"
  std::string device;  // "cpu"
  std::string isa;
  int threads = 1;
  int layers = 0;
  int vocabulary = 0;
  int hidden = 0;
  int64_t max_positions = 0;  // as the model advertises
  int64_t file_bytes = 0;
  int64_t weight_bytes = 0;       // in their run-time forms
  int64_t step_weight_bytes = 0;  // of them, what a step of one token reads: of experts, those it chooses
  int64_t workspace_bytes = 0;    // of the largest step
  std::vector<std::string>
      notes;  // what is odd about the files and does not stand in the way, a sentence each
};

// What a trace says of one op: norms of the rows that it left.
struct TraceRow {
  int layer = -1;  // -1: before the first layer or after the last
  std::string what;
  double rms = 0;
  double max_abs = 0;
};

class BUTTER_API Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  // Tokens fed so far. Only truncate() makes it smaller.
  int64_t position() const;
  int64_t max_context() const;
  // Every layer has a window: positions grow for ever.
  bool unbounded() const;
  // Goes back to position n or the nearest below it that can be reached, and returns that; the caller feeds
  // the tokens from there on again. Recurrent state can only go back to the snapshots that were
  // taken at page boundaries (multiples of 64), of which SequenceOptions::state_snapshots are kept: where the
  // last tokens were fed together, the boundary before the first of them and the one before the last stay
  // longest.
  Result<int64_t> truncate(int64_t n);
  // A second sequence with the same past. Full pages are shared, not copied.
  Result<Sequence> fork() const;
  // Writes the cache to a file, for Engine::load_sequence(): whole, or not at all. `tokens`: the ids that
  // were fed, position() of them, to be kept in the file too; or none.
  Status save(const std::string& path, std::span<const int32_t> tokens = {}) const;
  // Called between prefill steps of this sequence with the tokens done, on the thread that feeds it; returns
  // false to stop with kCancelled. A fork has none.
  void set_prefill_progress(std::function<bool(int64_t done, int64_t total)> progress);
  int64_t held_bytes() const;
  // What a raw cache would hold at this position.
  Result<int64_t> raw_bytes() const;
  std::vector<LayerMemory> layers() const;

 private:
  friend class Engine;
  friend class AttentionComparison;
  friend class TracedForward;
  struct State;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One sequence's tokens in a batch of forward_batch().
struct BatchItem {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
};

class BUTTER_API Engine {
 public:
  static Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelInfo& info() const;
  // Null where the checkpoint has no tokenizer.
  const Tokenizer* tokenizer() const;
  // Ids that have logits and stand for no token, sorted: vocabularies of models may be padded.
  // forward_sample() chooses none of them. Empty where there is no tokenizer.
  std::span<const int32_t> absent_ids() const;
  // The source of the chat template, where the checkpoint has one; or of the other that some have for
  // requests with tools.
  Result<std::optional<std::string>> chat_template(bool for_tools = false) const;

  // An empty sequence. Fails where the options make no sense or the budget cannot hold the plan.
  Result<Sequence> make_layer_caches(const SequenceOptions& options = {});
  // A sequence that goes on where a saved one ended, bit for bit as if it had never been saved. Options must
  // name the scheme and the window that it was saved with; those, another model or device, or a file that is
  // not as it was written, are refused with a reason. `tokens`, if not null, gets the ids that were saved
  // with it.
  Result<Sequence> load_sequence(const std::string& path, const SequenceOptions& options = {},
                                 std::vector<int32_t>* tokens = nullptr);
  // The bytes that make_layer_caches() will come to need.
  Result<CachePlan> plan_caches(const SequenceOptions& options = {}) const;

  // Feeds tokens and returns the logits [vocabulary] after the last one; valid until the engine's next step.
  // Nothing is computed if an id is out of range or the context would be exceeded. A step that fails leaves
  // the sequence at the last prefill step that succeeded.
  Result<std::span<const float>> forward(Sequence& sequence, std::span<const int32_t> tokens);
  // The same, copied to `logits`, [vocabulary]: for an engine whose next step may be another thread's.
  Status forward(Sequence& sequence, std::span<const int32_t> tokens, std::span<float> logits);
  // The same for every token fed: calls on_logits(index of the token, logits) in order.
  Status forward_all(Sequence& sequence, std::span<const int32_t> tokens,
                     const std::function<void(int64_t index, std::span<const float> logits)>& on_logits);
  // Feeds tokens and chooses the next one.
  Result<int32_t> forward_sample(Sequence& sequence, std::span<const int32_t> tokens, Sampler& sampler);
  // One step of several sequences, at most 15 tokens in all; logits [items][vocabulary], of the last token of
  // each. A sequence gets the same bits as it would alone.
  Result<std::span<const float>> forward_batch(std::span<const BatchItem> items);
  // Brings a sequence to `position` (a multiple of 64 beyond its own) by copying its full pages again and
  // again, for benchmarks: quick, every page owns its bytes, and the answer has no meaning.
  Status fill_by_repeating(Sequence& sequence, int64_t position);
  // forward() with a record of what every op left.
  Result<std::vector<TraceRow>> trace(Sequence& sequence, std::span<const int32_t> tokens);

  // Bytes of pages held by all sequences now, and the most there were at once.
  int64_t cache_bytes() const;
  int64_t peak_cache_bytes() const;

 private:
  friend class Sequence;
  friend class AttentionComparison;  // behind butter/eval.h
  friend class TracedForward;        // engine/traced_forward.h
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace butter
