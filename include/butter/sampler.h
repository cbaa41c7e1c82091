// Sampler: chooses the next token from logits, by SamplingOptions.
//
// Order: logit bias, repetition penalty, frequency and presence penalty, temperature, top-k, top-p, min-p,
// then one draw. Greedy at temperature 0; equal logits go to the lowest id. The draws depend on the seed
// alone, so a text is the same on every thread count. One sampler serves one sequence; not thread-safe.
//
// Log-probabilities are those of the model: natural logarithms of the softmax over the logits as they came,
// before bias, penalties, temperature and cuts, as vLLM reports them and OpenAI's API does. Ids that may not
// be chosen because they are no tokens have no part in them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "butter/export.h"
#include "butter/options.h"
#include "butter/status.h"

namespace butter {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // likeliest first; equal ones by id
};

class BUTTER_API Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // Refuses NaN and values out of range, naming the option.
  static Status check(const SamplingOptions& options);

  // Tokens of the sequence, for the repetition penalty. For the other two, those that sample() gave count.
  void observe(std::span<const int32_t> tokens);
  // The next token; none of `absent`: ids that are no tokens, sorted (Engine::absent_ids()). kNumeric where
  // the logits hold NaN, or nothing but -infinity.
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> absent = {});
  // Of the last token that sample() gave; empty where SamplingOptions::logprobs is -1.
  const TokenLogprobs& logprobs() const { return logprobs_; }

 private:
  struct Candidate {
    int32_t id;
    float logit;
    float weight;  // exp((logit - largest) / temperature)
  };
  static bool more_likely(const Candidate& a, const Candidate& b);
  Result<int32_t> choose(std::span<const float> logits, std::span<const int32_t> absent);
  bool changes_logits() const;
  void change_logits();
  void record_logprobs(std::span<const float> logits, std::span<const int32_t> absent, int32_t id);
  void count(int32_t id);
  double uniform();
  int32_t draw(float top);
  void sort_best(size_t count);
  void cut_to_nucleus();

  SamplingOptions options_;
  uint64_t state_;
  std::vector<int32_t> seen_;       // ids observed, in order of first appearance
  std::vector<bool> is_seen_;       // by id
  std::vector<int32_t> generated_;  // ids that sample() gave, in order of first appearance
  std::vector<int32_t> counts_;     // how often, by id
  TokenLogprobs logprobs_;
  std::vector<Candidate> candidates_;
};

}  // namespace butter
