// Options that all commands share, and how they become those of the library.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "butter/engine.h"
#include "butter/options.h"
#include "butter/session.h"
#include "cli/arguments.h"

namespace butter::cli {

// The most that --max-context takes; the model's own length bounds it further.
constexpr int64_t kMaxContextLimit = int64_t{1} << 31;
// The most that --state-snapshots takes.
constexpr int64_t kMostStateSnapshots = 64;

struct CommonOptions {
  std::string model;
  int64_t threads = 0;
  std::string device = "cpu";
  std::string kv_cache;
  std::string key_format;    // -ctk
  std::string value_format;  // -ctv
  int64_t prefill_span = 0;  // 0: not given
  int64_t kv_window_size = 0;
  int64_t kv_window_keep = 4;
  int64_t max_context = 0;  // 0: not given
  int64_t state_snapshots = SequenceOptions().state_snapshots;
  uint64_t seed = 0;
  bool json = false;
  bool verbose = false;

  void declare(Arguments& arguments);

  // -m, or the default model where it has been fetched.
  std::string model_name() const;
  // The scheme, or the list of them as it was given (scheme_list.h): names in Butter's words, --prefill-span
  // added to those that seal.
  std::string scheme() const;
  // Tokens of a prefill step: more than usual where a scheme reads longer spans raw.
  int prefill_rows() const;
  SequenceOptions sequence_options() const;
  EngineOptions engine_options() const;
};

struct SamplingArguments {
  SamplingOptions sampling;
  int64_t top_k = 0;
  int64_t max_tokens = -1;
  std::vector<std::string> stop;
  std::vector<std::string> logit_biases;
  std::optional<int64_t> logprobs;
  bool ignore_eos = false;

  void declare(Arguments& arguments);
  // Refuses what cannot be, before a model is loaded.
  void check();
  GenerateOptions generate_options(uint64_t seed) const;
};

// Refuses a --max-context beyond what the model advertises.
void check_context(const CommonOptions& options);
// Loads with a progress bar. A signal ends the program until it returns; from then on interrupted() tells.
std::unique_ptr<Engine> load_engine(const CommonOptions& options, EngineOptions engine_options);

}  // namespace butter::cli
