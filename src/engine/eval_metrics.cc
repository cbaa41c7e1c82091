#include "engine/eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace butter {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNormal95 = 1.959963984540054;  // the normal distribution's 97.5 % quantile

}  // namespace

LogitSummary summarise(std::span<const float> logits) {
  LogitSummary summary;
  const auto best = std::max_element(logits.begin(), logits.end());
  summary.best = static_cast<int32_t>(best - logits.begin());
  summary.top = *best;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - summary.top);
  summary.log_sum = summary.top + std::log(sum);
  return summary;
}

double kullback_leibler(std::span<const float> p_logits, const LogitSummary& p,
                        std::span<const float> q_logits, const LogitSummary& q) {
  // sum of p_i (log p_i - log q_i), the parts that do not depend on i taken out of the sum.
  double weighted = 0, total = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double weight = std::exp(p_logits[i] - p.top);
    if (weight == 0) continue;  // -infinity may stand there, in both
    total += weight;
    weighted += weight * (static_cast<double>(p_logits[i]) - q_logits[i]);
  }
  const double distance = weighted / total - p.log_sum + q.log_sum;
  return distance < 0 ? 0 : distance;  // below 0 by rounding only; NaN stays
}

void QualityTally::add(double kld, bool same_best, double negative_log_likelihood) {
  klds_.push_back(static_cast<float>(kld));
  kld_sum_ += kld;
  nll_sum_ += negative_log_likelihood;
  same_best_ += same_best ? 1 : 0;
}

double QualityTally::kld_mean() const {
  return klds_.empty() ? kNan : kld_sum_ / static_cast<double>(positions());
}

double QualityTally::kld_percentile(double share) const {
  if (klds_.empty()) return kNan;
  const double rank = std::ceil(share * static_cast<double>(positions()));
  const auto index =
      static_cast<std::ptrdiff_t>(std::clamp<double>(rank - 1, 0, static_cast<double>(positions() - 1)));
  std::vector<float> sorted = klds_;
  std::nth_element(sorted.begin(), sorted.begin() + index, sorted.end());
  return sorted[static_cast<size_t>(index)];
}

double QualityTally::same_best_share() const {
  return klds_.empty() ? kNan : static_cast<double>(same_best_) / static_cast<double>(positions());
}

double QualityTally::perplexity() const {
  return klds_.empty() ? kNan : std::exp(nll_sum_ / static_cast<double>(positions()));
}

Interval wilson_interval(int64_t right, int64_t asked) {
  if (asked <= 0) return {};
  const auto n = static_cast<double>(asked);
  const double share = static_cast<double>(right) / n;
  const double z2 = kNormal95 * kNormal95;
  const double centre = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kNormal95 / (1 + z2 / n) * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace butter
