// How router scores become experts: against the definitions of families.md 3.8, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/ops.h"

namespace butter {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

// Ids, then weights.
std::vector<float> routes(const Routing& routing, const std::vector<float>& scores,
                          const std::vector<float>& bias = {}) {
  std::vector<float> scratch(static_cast<size_t>(routing.experts + routing.groups));
  std::vector<float> out(static_cast<size_t>(2 * routing.chosen));
  reference::route(routing, scores.data(), bias.empty() ? nullptr : bias.data(), scratch.data(), out.data());
  return out;
}

Routing routing(RouterScore score, int experts, int chosen) {
  Routing made;
  made.score = score;
  made.experts = experts;
  made.chosen = chosen;
  return made;
}

auto near(double value) {
  return FloatNear(static_cast<float>(value), 1e-6f);
}

TEST(Route, SoftmaxIsOfAllScoresAndNormalisedOnlyWhereAsked) {
  Routing how = routing(RouterScore::kSoftmax, 4, 2);
  const double total = std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + 1;
  const std::vector<float> scores = {1, 3, 0, 2};
  EXPECT_THAT(routes(how, scores),
              ElementsAre(1, 3, near(std::exp(3.0) / total), near(std::exp(2.0) / total)));
  how.normalise = true;
  const double two = std::exp(3.0) + std::exp(2.0);
  EXPECT_THAT(routes(how, scores), ElementsAre(1, 3, near(std::exp(3.0) / two), near(std::exp(2.0) / two)));
  EXPECT_EQ(routes(how, scores), routes(routing(RouterScore::kSoftmaxOfBest, 4, 2), scores));
}

TEST(Route, ChoiceBiasChoosesAndDoesNotWeigh) {
  Routing how = routing(RouterScore::kSigmoid, 3, 2);
  how.normalise = true;
  how.scale = 2.5f;
  const double low = 1 / (1 + std::exp(1.0)), middle = 0.5;
  EXPECT_THAT(routes(how, {-1, 0, 4}, {1, 0.9f, -1}),
              ElementsAre(1, 0, near(2.5 * middle / (low + middle)), near(2.5 * low / (low + middle))));
}

TEST(Route, OnlyTheBestGroupsCount) {
  Routing how = routing(RouterScore::kSigmoid, 6, 2);
  how.groups = 3;
  how.chosen_groups = 1;
  // The best expert is in the first group, the best two together in the last.
  const std::vector<float> found = routes(how, {5, -9, 0, 0, 1, 2});
  EXPECT_EQ(found[0], 5);
  EXPECT_EQ(found[1], 4);
}

TEST(Route, OfEqualScoresTheLowestIdComesFirst) {
  const std::vector<float> found = routes(routing(RouterScore::kSoftmax, 5, 3), {1, 2, 2, 2, 1});
  EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 3), (std::vector<float>{1, 2, 3}));
}

TEST(Route, ScoresThatAreNoNumbersStillNameExperts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSoftmaxOfBest, RouterScore::kSigmoid}) {
    const std::vector<float> some = routes(routing(score, 3, 2), {kNan, 1, 0});
    EXPECT_EQ(some[0], 1);
    EXPECT_EQ(some[1], 2);
    const std::vector<float> none = routes(routing(score, 3, 2), {kNan, kNan, kNan});
    EXPECT_EQ(none[0], 0);
    EXPECT_EQ(none[1], 1);
  }
}

Routing in_groups(Routing how, int groups) {
  how.groups = groups;
  how.chosen_groups = groups / 2;
  return how;
}

// Also of experts that nothing chooses: it is not known that they should not be.
TEST(Route, NotANumberStaysNotANumberInEveryWeight) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSoftmaxOfBest, RouterScore::kSigmoid}) {
    for (const int groups : {1, 4}) {
      for (const bool in_bias : {false, true}) {
        for (size_t at = 0; at < 8; ++at) {
          std::vector<float> scores = {5, 4, 3, 2, 1, 0, -1, -2}, bias(8, 0.25f);
          (in_bias ? bias : scores)[at] = kNan;
          const Routing how = in_groups(routing(score, 8, 3), groups);
          const std::vector<float> found = routes(how, scores, bias);
          EXPECT_THAT(std::vector<float>(found.begin() + 3, found.end()), testing::Each(testing::IsNan()));
          EXPECT_THAT(std::vector<float>(found.begin(), found.begin() + 3),
                      testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(8))));
        }
      }
    }
  }
}

TEST(Route, AGroupOfBothInfinitiesHasNoWeights) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float other : {kInfinity, -kInfinity}) {
    const std::vector<float> found = routes(in_groups(routing(RouterScore::kSigmoid, 4, 2), 2), {1, 1, 1, 1},
                                            {kInfinity, -kInfinity, other, -other});
    EXPECT_THAT(std::vector<float>(found.begin() + 2, found.end()), testing::Each(testing::IsNan()));
  }
}

TEST(Route, ExpertsThatABiasForbidsAreNotChosen) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(routes(routing(RouterScore::kSigmoid, 3, 2), {4, 0, 0}, {-kInfinity, 0, 0}),
              ElementsAre(1, 2, near(0.5), near(0.5)));
}

}  // namespace
}  // namespace butter
