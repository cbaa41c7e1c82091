// Options of the library: what to load, how a sequence's cache is kept, how tokens are chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace butter {

// Progress of a long load: bytes done and in all. Called from the loading thread.
using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// A sequence's cache.
struct SequenceOptions {
  std::string kv_cache = "raw";  // scheme: "raw", "aura", "affine4", "k=...,v=..." (docs/kv-cache.md)
  int64_t kv_window_size = 0;    // positions that stay visible; 0: all
  int64_t kv_window_keep = 4;    // of them, the first positions, which never leave
  // Positions that layers without a window hold. 0: what the model advertises. Negative is an error.
  int64_t max_context = 0;
  // Recurrent state that is kept at page boundaries, to go back to: this many copies of it. 0: only to the
  // beginning.
  int state_snapshots = 3;
};

struct EngineOptions {
  std::string model;           // a file, a folder, or the name of a model that `butter pull` fetched
  std::string device = "cpu";  // "cpu" or "reference" (float32, scalar: the specification)
  int threads = 0;             // 0: as many as the process may use
  // Positions of the longest sequence; sizes the workspace. 0: what the model advertises.
  int64_t max_context = 0;
  // Bytes that all sequences of the engine may hold together. 0: what is free on the machine.
  int64_t cache_budget_bytes = 0;
  // Tokens of one prefill step: a multiple of 64.
  int prefill_rows = 512;
  // Rows of a step whose logits may be asked for at once.
  int logit_rows = 1;
  // Prefill rounds its operands no more than decode does: slower where the CPU has bf16 tiles. To compare
  // caches whose errors are smaller than such rounding.
  bool precise = false;
  LoadProgress progress;
};

// What is added to the logit of a token: -100 to 100, or -infinity, which bans it.
struct LogitBias {
  int32_t id = 0;
  float bias = 0;
};

struct SamplingOptions {
  float temperature = 0;         // 0: the most likely token (greedy)
  int top_k = 0;                 // 0: no limit
  float top_p = 1;               // 1: no limit
  float min_p = 0;               // 0: no limit
  float repetition_penalty = 1;  // 1: none; over all tokens of the sequence
  uint64_t seed = 0;
  // Over the tokens that were generated, as OpenAI's API defines them: what is taken off a token's logit for
  // having come at all, and for each time that it came. -2 to 2.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<LogitBias> logit_bias = {};
  // Likeliest tokens that Sampler::logprobs() lists beside the chosen one, up to 1000; -1: nothing is kept.
  int logprobs = -1;
};

}  // namespace butter
