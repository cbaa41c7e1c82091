// Sampler: chooses the next token from logits, by SamplingOptions.
//
// Order: repetition penalty, temperature, top-k, top-p, min-p, then one draw. Greedy at temperature 0; equal
// logits go to the lowest id. The draws depend on the seed alone, so a text is the same on every thread
// count. One sampler serves one sequence; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "butter/options.h"
#include "butter/status.h"

namespace butter {

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // Refuses NaN and values out of range, naming the option.
  static Status check(const SamplingOptions& options);

  // Tokens of the sequence, for the repetition penalty.
  void observe(std::span<const int32_t> tokens);
  // The next token. kNumeric where the logits hold NaN, or nothing but -infinity.
  Result<int32_t> sample(std::span<const float> logits);

 private:
  struct Candidate {
    int32_t id;
    float logit;
    float weight;  // exp((logit - largest) / temperature)
  };
  static bool more_likely(const Candidate& a, const Candidate& b);
  double uniform();
  int32_t draw(float top);
  void sort_best(size_t count);
  void cut_to_nucleus();

  SamplingOptions options_;
  uint64_t state_;
  std::vector<int32_t> seen_;  // ids observed, in order of first appearance
  std::vector<bool> is_seen_;  // by id
  std::vector<Candidate> candidates_;
};

}  // namespace butter
