// Arithmetic of evaluations: distances between two distributions, percentiles, intervals. Pure functions.
//
// Logits are float rows [vocabulary]. exp() is taken in float (its errors are random, 6e-8 of each term),
// sums are double, in the order of the ids; so a row compared with itself has a distance of exactly 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace butter {

// What is needed of a row of logits again and again.
struct LogitSummary {
  int32_t best = 0;    // the most likely id; of equals the lowest
  float top = 0;       // its logit
  double log_sum = 0;  // log of the sum of e^logit
};
LogitSummary summarise(std::span<const float> logits);

// KLD(p || q) in nats, p and q the softmax of two rows. Never negative.
double kullback_leibler(std::span<const float> p_logits, const LogitSummary& p,
                        std::span<const float> q_logits, const LogitSummary& q);

// One scheme's positions, added up in order.
class QualityTally {
 public:
  void add(double kld, bool same_best, double negative_log_likelihood);

  int64_t positions() const { return static_cast<int64_t>(klds_.size()); }
  double kld_mean() const;
  // The smallest distance that `share` of the positions do not exceed: a rank, not interpolated.
  double kld_percentile(double share) const;
  double same_best_share() const;
  double perplexity() const;

 private:
  std::vector<float> klds_;
  double kld_sum_ = 0;
  double nll_sum_ = 0;
  int64_t same_best_ = 0;
};

// Wilson's score interval of 95 %, of `right` successes in `asked` trials; 0 to 1 where nothing was asked.
struct Interval {
  double low = 0;
  double high = 1;
};
Interval wilson_interval(int64_t right, int64_t asked);

}  // namespace butter
