// Sampling as the engine and its sessions do it: ids that are no tokens, bias, log-probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "butter/session.h"
#include "support/chat_model.h"
#include "support/run_engine.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;

std::unique_ptr<Engine> chat_engine(const TempDir& folder, const ChatModelOptions& options) {
  write_chat_model(folder.file("model.gguf"), options);
  return load_engine(tiny_options(folder.file("model.gguf"), "reference"));
}

int32_t next_token(Engine& engine, const std::vector<int32_t>& ids, const SamplingOptions& options = {}) {
  Sequence sequence = make_sequence(engine);
  Sampler sampler(options);
  const auto next = engine.forward_sample(sequence, ids, sampler);
  EXPECT_TRUE(next) << next.error().message();
  return next.value_or(-1);
}

std::vector<int32_t> by_likelihood(const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

// A prompt whose likeliest continuation is one of the last ids, and that continuation.
std::pair<std::vector<int32_t>, std::vector<int32_t>> prompt_with_late_answer(Engine& engine, int32_t least) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const std::vector<int32_t> ids = random_ids(12, seed, 100);
    Sequence sequence = make_sequence(engine);
    const std::vector<int32_t> order = by_likelihood(feed_last(engine, sequence, ids));
    if (order[0] >= least) return {ids, order};
  }
  ADD_FAILURE() << "no prompt is answered with an id of " << least << " or more";
  return {{1}, {0}};
}

TEST(AbsentIds, OfPaddedVocabulariesAreNeverSampled) {
  const TempDir folder;
  const auto engine = chat_engine(folder, {});
  const std::vector<int32_t> absent(engine->absent_ids().begin(), engine->absent_ids().end());
  ASSERT_THAT(absent, testing::ElementsAre(246, 247, 248, 249, 250, 251, 252, 253, 254, 255));
  const auto [ids, order] = prompt_with_late_answer(*engine, kByteTokens);
  const auto first_token =
      std::find_if(order.begin(), order.end(), [](int32_t id) { return id < kByteTokens; });
  EXPECT_EQ(next_token(*engine, ids), *first_token);
  SamplingOptions hot;
  hot.temperature = 100;  // near to even
  for (hot.seed = 0; hot.seed < 200; ++hot.seed) EXPECT_LT(next_token(*engine, ids, hot), kByteTokens);
}

TEST(AbsentIds, AreUnusedTokensTooButNotTheEndOfATurn) {
  const TempDir folder;
  const auto engine = chat_engine(folder, {.unused = {kByteEndId, 90, 91}});
  const auto absent = engine->absent_ids();
  ASSERT_EQ(absent.size(), 12u);
  EXPECT_EQ(absent[0], 90);
  EXPECT_EQ(absent[1], 91);
}

TEST(AbsentIds, ThereAreNoneWithoutATokenizer) {
  const auto engine = load_engine(tiny_options(test_data("fixtures/llama"), "reference"));
  EXPECT_TRUE(engine->absent_ids().empty());
}

TEST(SessionSampling, LogprobsStandBesideEachToken) {
  const auto engine = load_engine(tiny_options(test_data("fixtures/llama"), "reference"));
  auto session = Session::create(*engine);
  ASSERT_TRUE(session);
  GenerateOptions options;
  options.max_tokens = 6;
  options.sampling.logprobs = 3;
  const std::vector<int32_t> prompt = random_ids(20, 1);
  const auto answer = session->complete(prompt, options, nullptr);
  ASSERT_TRUE(answer) << answer.error().message();
  ASSERT_EQ(answer->logprobs.size(), 6u);
  std::vector<int32_t> fed = prompt;
  for (size_t i = 0; i < 6; ++i) {
    Sequence sequence = make_sequence(*engine);
    const std::vector<float> logits = feed_last(*engine, sequence, fed);
    const std::vector<int32_t> order = by_likelihood(logits);
    double total = 0;
    for (float logit : logits) total += std::exp(static_cast<double>(logit));
    EXPECT_EQ(answer->logprobs[i].chosen.id, answer->token_ids[i]);
    ASSERT_EQ(answer->logprobs[i].top.size(), 3u);
    for (size_t at = 0; at < 3; ++at) {
      const TokenLogprob& found = answer->logprobs[i].top[at];
      EXPECT_EQ(found.id, order[at]);
      EXPECT_NEAR(found.logprob, static_cast<double>(logits[static_cast<size_t>(found.id)]) - std::log(total),
                  1e-4);
    }
    fed.push_back(answer->token_ids[i]);
  }
  options.sampling.logprobs = -1;
  EXPECT_TRUE(session->complete(prompt, options, nullptr)->logprobs.empty());
}

TEST(SessionSampling, BiasOfAnIdThatTheModelLacksIsRefused) {
  const auto engine = load_engine(tiny_options(test_data("fixtures/llama"), "reference"));
  auto session = Session::create(*engine);
  ASSERT_TRUE(session);
  GenerateOptions options;
  options.max_tokens = 4;
  options.sampling.logit_bias = {{256, 1}};
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto refused = session->complete(prompt, options, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              testing::AllOf(HasSubstr("the token 256"), HasSubstr("ids 0 to 255")));
  options.sampling.logit_bias = {{77, 100}};
  const auto answer = session->complete(prompt, options, nullptr);
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->token_ids, testing::Each(77));
}

// The same token is not generated twice where each coming of it costs more than logits are apart.
TEST(SessionSampling, PenaltiesReachTheTokensOfTheAnswer) {
  const auto engine = load_engine(tiny_options(test_data("fixtures/llama"), "reference"));
  auto session = Session::create(*engine);
  ASSERT_TRUE(session);
  GenerateOptions options;
  options.max_tokens = 30;
  const std::vector<int32_t> prompt = random_ids(20, 1);
  const auto plain = session->complete(prompt, options, nullptr);
  options.sampling.presence_penalty = 2;
  options.sampling.frequency_penalty = 2;
  const auto penalised = session->complete(prompt, options, nullptr);
  ASSERT_TRUE(plain && penalised);
  const auto distinct = [](std::vector<int32_t> ids) {
    std::sort(ids.begin(), ids.end());
    return std::unique(ids.begin(), ids.end()) - ids.begin();
  };
  EXPECT_GT(distinct(penalised->token_ids), distinct(plain->token_ids));
}

}  // namespace
}  // namespace butter
