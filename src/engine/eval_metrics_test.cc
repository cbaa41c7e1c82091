#include "engine/eval_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace butter {
namespace {

double kld(const std::vector<float>& p, const std::vector<float>& q) {
  return kullback_leibler(p, summarise(p), q, summarise(q));
}

std::vector<float> logs(const std::vector<double>& shares) {
  std::vector<float> logits;
  for (const double share : shares) logits.push_back(static_cast<float>(std::log(share)));
  return logits;
}

TEST(EvalMetrics, SummaryIsTheLogOfTheSumAndTheFirstOfTheBest) {
  const std::vector<float> logits = {0, std::log(3.0f), std::log(3.0f), -INFINITY};
  const LogitSummary summary = summarise(logits);
  EXPECT_EQ(summary.best, 1);
  EXPECT_NEAR(summary.log_sum, std::log(7.0), 1e-7);
  // Far from zero, where e^logit would overflow.
  EXPECT_NEAR(summarise(std::vector<float>{1000, 1000}).log_sum, 1000 + std::log(2.0), 1e-6);
}

TEST(EvalMetrics, DistanceIsThatOfAHandComputation) {
  // 0.5 ln(0.5/0.25) + 0.25 ln(0.25/0.25) + 0.25 ln(0.25/0.5) = 0.25 ln 2
  EXPECT_NEAR(kld(logs({0.5, 0.25, 0.25}), logs({0.25, 0.25, 0.5})), 0.25 * std::log(2.0), 1e-7);
  // Logits are shares up to a constant, which does not count.
  std::vector<float> shifted = logs({0.25, 0.25, 0.5});
  for (float& logit : shifted) logit += 40;
  EXPECT_NEAR(kld(logs({0.5, 0.25, 0.25}), shifted), 0.25 * std::log(2.0), 1e-5);
}

TEST(EvalMetrics, DistanceOfARowToItselfIsExactlyZero) {
  std::vector<float> row;
  for (int i = 0; i < 5000; ++i) row.push_back(7 * std::sin(static_cast<float>(i) * 1.7f));
  EXPECT_EQ(kld(row, row), 0);
  row[3] = -INFINITY;
  EXPECT_EQ(kld(row, row), 0);
}

TEST(EvalMetrics, SmallDistancesKeepTheirDigits) {
  std::vector<float> p, q;
  long double sum_p = 0, sum_q = 0, distance = 0;
  for (int i = 0; i < 50000; ++i) {
    p.push_back(8 * std::sin(static_cast<float>(i) * 0.37f));
    q.push_back(p.back() + 0.003f * std::cos(static_cast<float>(i) * 1.3f));
    sum_p += std::exp(static_cast<long double>(p.back()));
    sum_q += std::exp(static_cast<long double>(q.back()));
  }
  for (size_t i = 0; i < p.size(); ++i) {
    const long double share = std::exp(static_cast<long double>(p[i])) / sum_p;
    distance += share * (static_cast<long double>(p[i]) - q[i] - std::log(sum_p) + std::log(sum_q));
  }
  EXPECT_NEAR(kld(p, q) / static_cast<double>(distance), 1, 0.01) << "of " << static_cast<double>(distance);
}

TEST(EvalMetrics, TallyCountsEveryPositionOnce) {
  QualityTally tally;
  EXPECT_TRUE(std::isnan(tally.kld_mean()));
  EXPECT_TRUE(std::isnan(tally.kld_percentile(0.99)));
  for (int i = 200; i >= 1; --i) tally.add(i, i % 4 != 0, std::log(2.0) * (i % 2 == 0 ? 1 : 3));
  EXPECT_EQ(tally.positions(), 200);
  EXPECT_DOUBLE_EQ(tally.kld_mean(), 100.5);
  EXPECT_EQ(tally.kld_percentile(0.99), 198) << "two of 200 are above it";
  EXPECT_EQ(tally.kld_percentile(0.5), 100);
  EXPECT_EQ(tally.kld_percentile(1), 200);
  EXPECT_DOUBLE_EQ(tally.same_best_share(), 0.75);
  EXPECT_NEAR(tally.perplexity(), 4, 1e-12);
}

TEST(EvalMetrics, IntervalIsWilsons) {
  // 8 of 10: (0.8 + 1.9208 / 10) / 1.38416 -+ ..., as textbooks have it.
  EXPECT_NEAR(wilson_interval(8, 10).low, 0.4902, 1e-4);
  EXPECT_NEAR(wilson_interval(8, 10).high, 0.9433, 1e-4);
  EXPECT_NEAR(wilson_interval(0, 200).low, 0, 1e-12);
  EXPECT_NEAR(wilson_interval(0, 200).high, 0.01885, 1e-4);
  EXPECT_NEAR(wilson_interval(200, 200).high, 1, 1e-12);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

}  // namespace
}  // namespace butter
