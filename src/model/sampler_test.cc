#include "butter/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace butter {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(size_t count, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

int32_t sample(Sampler& sampler, const std::vector<float>& logits) {
  const auto id = sampler.sample(logits);
  EXPECT_TRUE(id) << id.error().message();
  return id.value_or(-1);
}

// Probabilities by the text of the definition: sort everything, cut everything, divide.
std::vector<double> brute_force(const SamplingOptions& options, std::vector<float> logits,
                                const std::set<int32_t>& seen) {
  for (int32_t id : seen) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
  }
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weights(logits.size(), 0);
  const float top = logits[order[0]];
  size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights[order[i]] =
        std::exp(static_cast<double>(logits[order[i]] - top) / static_cast<double>(options.temperature));
    total += weights[order[i]];
  }
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double before = sum;
    sum += weights[order[i]];
    if (before >= static_cast<double>(options.top_p) * total) weights[order[i]] = 0;
  }
  for (double& weight : weights) weight = weight < static_cast<double>(options.min_p) ? 0 : weight;
  total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  Sampler greedy{SamplingOptions{}};
  EXPECT_EQ(sample(greedy, {0.5f, 2.0f, 1.0f}), 1);
  EXPECT_EQ(sample(greedy, {1.0f, 3.0f, 3.0f, 3.0f}), 1);
  EXPECT_EQ(sample(greedy, {0.0f, -0.0f}), 0);
  EXPECT_EQ(sample(greedy, {-kInfinity, -7.0f, -kInfinity}), 1);
}

TEST(Sampler, GreedyFindsTheLargestWhereverItIsAndOddOnesToo) {
  SamplingOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy);
  for (size_t count : {1, 15, 16, 17, 40}) {
    const std::vector<float> logits = random_logits(count, 5);
    for (size_t at = 0; at < count; ++at) {
      std::vector<float> own = logits;
      own[at] = 100;
      EXPECT_EQ(sample(sampler, own), static_cast<int32_t>(at)) << count;
      own[count - 1] = 100;
      EXPECT_EQ(sample(sampler, own), static_cast<int32_t>(at)) << count;
      own[at] = kNan;
      const auto odd = sampler.sample(own);
      ASSERT_FALSE(odd) << count << " " << at;
      EXPECT_THAT(odd.error().message(), HasSubstr("the logit of token " + std::to_string(at)));
      own[at] = kInfinity;
      EXPECT_FALSE(sampler.sample(own)) << count << " " << at;
    }
    EXPECT_FALSE(sampler.sample(std::vector<float>(count, -kInfinity)));
  }
}

TEST(Sampler, GreedyHasNoUseForTheOtherOptions) {
  SamplingOptions options;
  options.top_k = 3;
  options.top_p = 0.1f;
  options.min_p = 1;
  options.seed = 9;
  Sampler sampler(options);
  const std::vector<float> logits = random_logits(1000, 1);
  EXPECT_EQ(sample(sampler, logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Sampler, DrawsAreDistributedAsTheDefinitionSays) {
  std::vector<SamplingOptions> cases;
  for (float temperature : {0.3f, 1.0f, 2.0f}) {
    for (int top_k : {0, 1, 5, 100}) {
      for (float top_p : {1.0f, 0.8f, 0.01f}) {
        for (float min_p : {0.0f, 0.1f}) cases.push_back({temperature, top_k, top_p, min_p, 1, 11});
      }
    }
  }
  cases.push_back({0.8f, 10, 0.9f, 0.05f, 1.5f, 3});
  const std::vector<float> logits = random_logits(40, 2, 1.5f);
  const std::vector<int32_t> seen = {3, 7, 7, 20};
  for (const SamplingOptions& options : cases) {
    Sampler sampler(options);
    sampler.observe(seen);
    const std::vector<double> expected = brute_force(
        options, logits,
        options.repetition_penalty == 1 ? std::set<int32_t>() : std::set<int32_t>(seen.begin(), seen.end()));
    constexpr int kDraws = 4000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[sample(sampler, logits)];
    for (size_t id = 0; id < logits.size(); ++id) {
      const double share = counts[static_cast<int32_t>(id)] / static_cast<double>(kDraws);
      // Five standard deviations and, for the rare, a few draws; what is cut away never comes.
      const double slack =
          5 * std::sqrt(expected[id] * (1 - expected[id]) / kDraws) + (expected[id] > 0 ? 4.0 / kDraws : 0);
      ASSERT_NEAR(share, expected[id], slack)
          << "token " << id << " at temperature " << options.temperature << " top_k " << options.top_k
          << " top_p " << options.top_p << " min_p " << options.min_p;
    }
  }
}

TEST(Sampler, LargeVocabularyIsCutAsTheSmallOneIs) {
  // A flat top: the nucleus needs more than the first few hundred candidates.
  std::vector<float> logits = random_logits(5000, 5, 0.05f);
  SamplingOptions options{1, 0, 0.5f, 0, 1, 1};
  const std::vector<double> expected = brute_force(options, logits, {});
  const auto kept = std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0; });
  EXPECT_GT(kept, 2000);
  Sampler sampler(options);
  for (int i = 0; i < 2000; ++i) ASSERT_GT(expected[static_cast<size_t>(sample(sampler, logits))], 0);
}

TEST(Sampler, SameSeedSameDraws) {
  const std::vector<float> logits = random_logits(300, 3);
  const auto draws = [&](uint64_t seed) {
    Sampler sampler({0.9f, 0, 0.95f, 0, 1, seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sample(sampler, logits));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
  EXPECT_NE(draws(0), draws(~uint64_t{0}));
}

TEST(Sampler, RepetitionPenaltyHoldsOnceForEachTokenThatWasSeen) {
  Sampler sampler({0, 0, 1, 0, 2, 0});
  const std::vector<float> logits = {4.0f, 3.0f, -1.0f, -1.5f};
  EXPECT_EQ(sample(sampler, logits), 0);
  sampler.observe(std::vector<int32_t>{0, 0, 0});
  EXPECT_EQ(sample(sampler, logits), 1) << "4 / 2 is below 3";
  sampler.observe(std::vector<int32_t>{1});
  EXPECT_EQ(sample(sampler, logits), 0) << "4 / 2 above 3 / 2: seen three times counts once";
  sampler.observe(std::vector<int32_t>{-5, 1 << 20});
  EXPECT_EQ(sample(sampler, logits), 0) << "ids without a logit do no harm";
  sampler.observe(std::vector<int32_t>{2});
  EXPECT_EQ(sample(sampler, {-10.0f, -10.0f, -1.0f, -1.5f}), 3) << "negative logits are multiplied";
}

TEST(Sampler, PresencePenaltyHoldsOnceAndFrequencyPenaltyForEachTimeATokenWasGenerated) {
  SamplingOptions options;
  options.presence_penalty = 1;
  Sampler presence(options);
  const std::vector<float> logits = {4.0f, 3.5f, 2.75f, -9.0f};
  std::vector<int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(sample(presence, logits));
  EXPECT_THAT(ids, testing::ElementsAre(0, 1, 0, 0, 0)) << "4, 3.5 and 2.75 become 3, 2.5 and 2.75 once";

  options.presence_penalty = 0;
  options.frequency_penalty = 0.5f;
  Sampler frequency(options);
  ids.clear();
  for (int i = 0; i < 7; ++i) ids.push_back(sample(frequency, logits));
  // 4 3.5 2.75 | 3.5 3.5 | 3 3.5 | 3 3 | 2.5 3 | 2.5 2.5 2.75 | 2.5 2.5 2.25
  EXPECT_THAT(ids, testing::ElementsAre(0, 0, 1, 0, 1, 2, 0));
}

TEST(Sampler, PenaltiesOfGeneratedTokensLeaveThePromptAlone) {
  SamplingOptions options;
  options.presence_penalty = 2;
  options.frequency_penalty = 2;
  Sampler sampler(options);
  sampler.observe(std::vector<int32_t>{0, 0, 0, 0});
  EXPECT_EQ(sample(sampler, {1, 0}), 0);
  EXPECT_EQ(sample(sampler, {1, 0}), 1) << "it was generated once: 1 - 2 - 2";
  options.presence_penalty = -2;
  options.frequency_penalty = 0;
  Sampler fond(options);
  EXPECT_EQ(sample(fond, {1, 0}), 0);
  EXPECT_EQ(sample(fond, {1, 2.5f}), 0) << "a negative penalty is a reward";
}

TEST(Sampler, PenaltiesFollowEachOtherInTheDocumentedOrder) {
  SamplingOptions options;
  options.logit_bias = {{0, 2}, {0, 1}};
  options.repetition_penalty = 2;
  options.presence_penalty = 0.5f;
  options.frequency_penalty = 0.25f;
  options.temperature = 0;
  Sampler sampler(options);
  sampler.observe(std::vector<int32_t>{0});
  // (1 + 3) / 2 = 2, then 2 - 0.25 - 0.5 = 1.25, then 1.
  EXPECT_EQ(sample(sampler, {1, 1.9f}), 0);
  EXPECT_EQ(sample(sampler, {1, 1.2f}), 0);
  EXPECT_EQ(sample(sampler, {1, 1.1f}), 1);
}

TEST(Sampler, BiasIsAddedAndMinusInfinityBans) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.logit_bias = {{1, -kInfinity}, {2, 50}, {77, 100}};
    Sampler sampler(options);
    const std::vector<float> logits = {0, 40, 0};
    for (int i = 0; i < 50; ++i) EXPECT_EQ(sample(sampler, logits), 2);
    options.logit_bias = {{0, -kInfinity}, {1, -kInfinity}, {2, -kInfinity}};
    Sampler nothing(options);
    const auto id = nothing.sample(logits);
    ASSERT_FALSE(id);
    EXPECT_THAT(id.error().message(), HasSubstr("--logit-bias leaves no token"));
  }
}

TEST(Sampler, AbsentIdsAreNeverChosen) {
  const std::vector<int32_t> absent = {1, 3, 4, 900};
  const std::vector<float> logits = {0.5f, 9, 0.25f, 9, 9};
  for (float temperature : {0.0f, 5.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.logprobs = 5;
    options.logit_bias = {{3, 100}};
    Sampler sampler(options);
    for (int i = 0; i < 100; ++i) {
      const auto id = sampler.sample(logits, absent);
      ASSERT_TRUE(id);
      EXPECT_TRUE(*id == 0 || *id == 2) << *id;
    }
    ASSERT_EQ(sampler.logprobs().top.size(), 2u) << "and are no part of the distribution";
    EXPECT_NEAR(sampler.logprobs().top[0].logprob, std::log(1 / (1 + std::exp(-0.25))), 1e-6);
  }
  Sampler greedy{SamplingOptions{}};
  EXPECT_EQ(*greedy.sample(logits, absent), 0);
}

TEST(Sampler, LogprobsAreOfTheModelsDistributionWhateverTheOptionsDoToIt) {
  const std::vector<float> logits = random_logits(500, 4);
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit));
  const auto expected = [&](int32_t id) {
    return std::log(std::exp(static_cast<double>(logits[static_cast<size_t>(id)])) / total);
  };
  SamplingOptions options{0.5f, 20, 0.9f, 0.01f, 1.3f, 5};
  options.presence_penalty = 1;
  options.logit_bias = {{3, 4}};
  options.logprobs = 7;
  Sampler sampler(options);
  sampler.observe(std::vector<int32_t>{9, 10});
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (int i = 0; i < 20; ++i) {
    const int32_t id = sample(sampler, logits);
    const TokenLogprobs& found = sampler.logprobs();
    EXPECT_EQ(found.chosen.id, id);
    EXPECT_NEAR(found.chosen.logprob, expected(id), 1e-5);
    ASSERT_EQ(found.top.size(), 7u);
    for (size_t at = 0; at < 7; ++at) {
      EXPECT_EQ(found.top[at].id, order[at]);
      EXPECT_NEAR(found.top[at].logprob, expected(order[at]), 1e-5);
    }
  }
}

TEST(Sampler, LogprobsAreKeptOnlyWhereTheyAreAskedFor) {
  SamplingOptions options;
  Sampler silent(options);
  sample(silent, {1, 2});
  EXPECT_TRUE(silent.logprobs().top.empty());
  options.logprobs = 0;
  Sampler chosen_alone(options);
  EXPECT_EQ(sample(chosen_alone, {0, 0}), 0);
  EXPECT_NEAR(chosen_alone.logprobs().chosen.logprob, std::log(0.5), 1e-6);
  EXPECT_TRUE(chosen_alone.logprobs().top.empty());
  options.logprobs = 1000;
  Sampler all(options);
  sample(all, {1e30f, 0, -kInfinity});
  ASSERT_EQ(all.logprobs().top.size(), 2u) << "what cannot come is not listed";
  EXPECT_EQ(all.logprobs().top[0].logprob, 0);
}

TEST(Sampler, LogitsThatAreNoNumbersAreAnError) {
  for (float temperature : {0.0f, 1.0f}) {
    Sampler sampler({temperature, 0, 1, 0, 1, 0});
    for (const std::vector<float>& logits : {std::vector<float>{1, kNan, 2}, std::vector<float>{kNan}}) {
      const auto id = sampler.sample(logits);
      ASSERT_FALSE(id);
      EXPECT_EQ(id.error().code(), StatusCode::kNumeric);
      EXPECT_THAT(id.error().message(), HasSubstr("not a number"));
    }
    EXPECT_FALSE(sampler.sample(std::vector<float>{}));
    EXPECT_FALSE(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}));
    EXPECT_FALSE(sampler.sample(std::vector<float>{1, kInfinity}));
    EXPECT_EQ(sample(sampler, {-kInfinity, 2, -kInfinity}), 1) << "what is masked away never comes";
  }
}

TEST(Sampler, VerySmallTemperatureIsGreedyAndNeverOverflows) {
  Sampler sampler({1e-38f, 0, 1, 0, 1, 4});
  const std::vector<float> logits = {1e30f, -1e30f, 9.9e29f};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sample(sampler, logits), 0);
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto refusal = [](const SamplingOptions& options) {
    const Status status = Sampler::check(options);
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({0.7f, 40, 0.9f, 0.05f, 1.1f, 3}), "accepted");
  EXPECT_THAT(refusal({kNan, 0, 1, 0, 1, 0}), HasSubstr("--temperature"));
  EXPECT_THAT(refusal({-0.1f, 0, 1, 0, 1, 0}), HasSubstr("--temperature"));
  EXPECT_THAT(refusal({kInfinity, 0, 1, 0, 1, 0}), HasSubstr("--temperature"));
  EXPECT_THAT(refusal({0, -1, 1, 0, 1, 0}), HasSubstr("--top-k"));
  for (float top_p : {0.0f, 1.1f, -1.0f, kNan})
    EXPECT_THAT(refusal({0, 0, top_p, 0, 1, 0}), HasSubstr("--top-p"));
  for (float min_p : {-0.1f, 1.1f, kNan}) EXPECT_THAT(refusal({0, 0, 1, min_p, 1, 0}), HasSubstr("--min-p"));
  for (float penalty : {0.0f, -1.0f, kNan, kInfinity}) {
    EXPECT_THAT(refusal({0, 0, 1, 0, penalty, 0}), HasSubstr("--repetition-penalty"));
  }
  for (float penalty : {-2.1f, 2.1f, kNan, kInfinity}) {
    SamplingOptions options;
    options.presence_penalty = penalty;
    EXPECT_THAT(refusal(options), HasSubstr("--presence-penalty"));
    options.presence_penalty = 2;
    EXPECT_EQ(refusal(options), "accepted");
    options.frequency_penalty = penalty;
    EXPECT_THAT(refusal(options), HasSubstr("--frequency-penalty"));
  }
  for (const LogitBias& bias :
       {LogitBias{-1, 0}, LogitBias{5, 100.5f}, LogitBias{5, kNan}, LogitBias{5, kInfinity}}) {
    SamplingOptions options;
    options.logit_bias = {{4, -kInfinity}, bias};
    EXPECT_THAT(refusal(options), HasSubstr("--logit-bias"));
  }
  for (int logprobs : {-2, 1001}) {
    SamplingOptions options;
    options.logprobs = logprobs;
    EXPECT_THAT(refusal(options), HasSubstr("--logprobs"));
  }
}

}  // namespace
}  // namespace butter
