// Sessions: turns reuse what the cache holds and give what a fresh run gives; generation ends for the right
// reason.
//
// The fixtures have no tokenizer: prompts are token ids here (tests/cli tries text with the default model).
#include "butter/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/rotated_testing.h"
#include "support/run_engine.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::HasSubstr;

const std::string& llama_folder() {
  static const std::string folder = test_data("fixtures/llama");
  return folder;
}

Session make_session(Engine& engine, const SequenceOptions& options = {}) {
  auto session = Session::create(engine, options);
  EXPECT_TRUE(session) << session.error().message();
  BUTTER_CHECK(session.has_value());
  return std::move(*session);
}

GenerateResult complete(Session& session, const std::vector<int32_t>& ids, const GenerateOptions& options) {
  const auto result = session.complete(ids, options, nullptr);
  EXPECT_TRUE(result) << result.error().message();
  return result.value_or(GenerateResult{});
}

GenerateOptions tokens(int64_t count) {
  GenerateOptions options;
  options.max_tokens = count;
  return options;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SessionTest : public testing::TestWithParam<const char*> {
 protected:
  // Formats are there before the engine is loaded.
  static void SetUpTestSuite() { rotated_format(); }
  SessionTest() : engine_(load_engine(tiny_options(llama_folder(), "reference"))) {
    options_.kv_cache = GetParam();
  }
  Session session() { return make_session(*engine_, options_); }
  std::vector<int32_t> fresh_answer(const std::vector<int32_t>& ids, const GenerateOptions& options) {
    Session fresh = session();
    return complete(fresh, ids, options).token_ids;
  }

  std::unique_ptr<Engine> engine_;
  SequenceOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Schemes, SessionTest, testing::Values("raw", "rotated"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(SessionTest, NextTurnFeedsOnlyWhatIsNew) {
  Session chat = session();
  const std::vector<int32_t> first = random_ids(150, 1);
  const GenerateResult answer = complete(chat, first, tokens(10));
  EXPECT_EQ(answer.reused_tokens, 0);
  EXPECT_EQ(answer.prompt_tokens, 150);
  EXPECT_EQ(answer.finish_reason, "length");
  ASSERT_EQ(answer.token_ids.size(), 10u);
  EXPECT_EQ(chat.sequence().position(), 159) << "the last token was never fed";
  const std::vector<int32_t> second = joined(joined(first, answer.token_ids), random_ids(30, 2));
  const GenerateResult next = complete(chat, second, tokens(10));
  EXPECT_EQ(next.reused_tokens, 159);
  EXPECT_EQ(next.token_ids, fresh_answer(second, tokens(10)));
  EXPECT_EQ(chat.tokens(), joined(second, {next.token_ids.begin(), next.token_ids.end() - 1}));
}

TEST_P(SessionTest, EditedTailIsCutAndFedAgain) {
  const std::vector<int32_t> first = random_ids(150, 1);
  for (size_t edited : {1, 5, 50, 149, 150}) {
    Session chat = session();
    complete(chat, first, tokens(5));
    std::vector<int32_t> second(first.begin(), first.end() - static_cast<std::ptrdiff_t>(edited));
    for (size_t i = 0; i < edited; ++i) second.push_back((first[second.size()] + 1) % 256);
    const GenerateResult answer = complete(chat, second, tokens(12));
    EXPECT_EQ(answer.token_ids, fresh_answer(second, tokens(12))) << edited;
    // The open page goes back to the token, older ones to their beginning.
    const int64_t same = 150 - static_cast<int64_t>(edited);
    EXPECT_EQ(answer.reused_tokens, same >= 128 ? same : same / 64 * 64);
  }
}

TEST_P(SessionTest, SamePromptAgainGivesTheSameAnswer) {
  Session chat = session();
  const std::vector<int32_t> ids = random_ids(100, 1);
  const GenerateResult once = complete(chat, ids, tokens(5));
  const GenerateResult again = complete(chat, ids, tokens(5));
  EXPECT_EQ(again.token_ids, once.token_ids);
  EXPECT_EQ(again.reused_tokens, 99);
  const std::vector<int32_t> shorter(ids.begin(), ids.begin() + 70);
  EXPECT_EQ(complete(chat, shorter, tokens(5)).token_ids, fresh_answer(shorter, tokens(5)));
  ASSERT_TRUE(chat.reset());
  EXPECT_EQ(chat.sequence().position(), 0);
  EXPECT_EQ(complete(chat, ids, tokens(5)).reused_tokens, 0);
}

TEST_P(SessionTest, WindowThatLetGoOfThePastFeedsItAgain) {
  options_.kv_window_size = 70;
  Session chat = session();
  const std::vector<int32_t> first = random_ids(300, 1);
  complete(chat, first, tokens(3));
  std::vector<int32_t> second(first.begin(), first.begin() + 150);
  second.push_back((first[150] + 1) % 256);
  EXPECT_EQ(complete(chat, second, tokens(8)).token_ids, fresh_answer(second, tokens(8)));
}

TEST_P(SessionTest, ContextThatIsFullEndsTheAnswer) {
  options_.max_context = 100;
  Session chat = session();
  const GenerateResult answer = complete(chat, random_ids(95, 1), tokens(-1));
  EXPECT_EQ(answer.finish_reason, "length");
  // 95 fed give one token, and each of the 5 that still fit gives another.
  EXPECT_EQ(answer.token_ids.size(), 6u);
  EXPECT_EQ(chat.sequence().position(), 100);
  const GenerateResult exact = complete(chat, random_ids(100, 2), tokens(-1));
  EXPECT_EQ(exact.token_ids.size(), 1u);
  const auto too_long = chat.complete(random_ids(101, 3), tokens(5), nullptr);
  ASSERT_FALSE(too_long);
  EXPECT_THAT(too_long.error().message(), testing::AllOf(HasSubstr("101"), HasSubstr("100")));
  EXPECT_EQ(complete(chat, random_ids(20, 4), tokens(3)).token_ids,
            fresh_answer(random_ids(20, 4), tokens(3)));
}

TEST_P(SessionTest, PromptThatCannotBeIsRefusedAndTheSessionGoesOn) {
  Session chat = session();
  const std::vector<int32_t> ids = random_ids(100, 1);
  complete(chat, ids, tokens(2));
  EXPECT_THAT(chat.complete(std::vector<int32_t>{}, tokens(1), nullptr).error().message(),
              HasSubstr("empty"));
  std::vector<int32_t> bad = ids;
  bad.push_back(5000);
  EXPECT_THAT(chat.complete(bad, tokens(1), nullptr).error().message(), HasSubstr("5000"));
  GenerateOptions nonsense = tokens(1);
  nonsense.stop = {""};
  EXPECT_THAT(chat.complete(ids, nonsense, nullptr).error().message(), HasSubstr("--stop"));
  nonsense = tokens(-2);
  EXPECT_THAT(chat.complete(ids, nonsense, nullptr).error().message(), HasSubstr("--max-tokens"));
  nonsense = tokens(1);
  nonsense.sampling.temperature = NAN;
  EXPECT_THAT(chat.complete(ids, nonsense, nullptr).error().message(), HasSubstr("--temperature"));
  EXPECT_THAT(chat.complete("text", tokens(1), nullptr).error().message(), HasSubstr("no tokenizer"));
  EXPECT_THAT(chat.chat({{"user", "text"}}, tokens(1), nullptr).error().message(), HasSubstr("no tokenizer"));
  EXPECT_EQ(complete(chat, ids, tokens(5)).token_ids, fresh_answer(ids, tokens(5)));
}

TEST_P(SessionTest, NoTokensWantedFeedsThePromptOnly) {
  Session chat = session();
  const GenerateResult answer = complete(chat, random_ids(70, 1), tokens(0));
  EXPECT_TRUE(answer.token_ids.empty());
  EXPECT_EQ(chat.sequence().position(), 70);
}

TEST_P(SessionTest, CancelledBeforeAndDuringIsCleanAndTheSessionGoesOn) {
  EngineOptions small_steps = tiny_options(llama_folder(), "reference");
  small_steps.prefill_rows = 64;
  small_steps.logit_rows = 1;
  const auto engine = load_engine(small_steps);
  Session chat = make_session(*engine, options_);
  const std::vector<int32_t> ids = random_ids(200, 1);
  std::atomic<bool> cancel = true;
  GenerateOptions options = tokens(5);
  options.cancel = &cancel;
  GenerateResult stopped = complete(chat, ids, options);
  EXPECT_EQ(stopped.finish_reason, "cancelled");
  EXPECT_TRUE(stopped.token_ids.empty());
  cancel = false;
  options.on_prefill = [&](int64_t done, int64_t) { cancel = done >= 128; };
  stopped = complete(chat, ids, options);
  EXPECT_EQ(stopped.finish_reason, "cancelled");
  EXPECT_EQ(chat.sequence().position(), 128);
  EXPECT_EQ(static_cast<int64_t>(chat.tokens().size()), 128);
  cancel = false;
  options.on_prefill = nullptr;
  const GenerateResult done = complete(chat, ids, options);
  EXPECT_EQ(done.reused_tokens, 128);
  EXPECT_EQ(done.token_ids, fresh_answer(ids, tokens(5)));
}

TEST_P(SessionTest, SeededAnswersAreTheSameOnEveryThreadCount) {
  const auto one = load_engine(tiny_options(llama_folder(), "cpu", 1));
  const auto three = load_engine(tiny_options(llama_folder(), "cpu", 3));
  GenerateOptions options = tokens(40);
  options.sampling.temperature = 0.9f;
  options.sampling.top_p = 0.95f;
  options.sampling.repetition_penalty = 1.1f;
  const auto answer = [&](Engine& engine, uint64_t seed) {
    options.sampling.seed = seed;
    Session chat = make_session(engine, options_);
    return complete(chat, random_ids(100, 1), options).token_ids;
  };
  EXPECT_EQ(answer(*one, 7), answer(*three, 7));
  EXPECT_EQ(answer(*one, 7), answer(*one, 7));
  EXPECT_NE(answer(*one, 7), answer(*one, 8));
}

TEST_P(SessionTest, BytesAreThoseOfTheSequence) {
  Session chat = session();
  const GenerateResult answer = complete(chat, random_ids(130, 1), tokens(5));
  EXPECT_EQ(answer.kv_bytes, chat.sequence().held_bytes());
  EXPECT_GT(answer.kv_raw_bytes, 0);
  if (options_.kv_cache == "raw") {
    EXPECT_EQ(answer.kv_bytes, answer.kv_raw_bytes);
  }
  EXPECT_GT(answer.prefill_tps(), 0);
  EXPECT_GT(answer.decode_tps(), 0);
}

}  // namespace
}  // namespace butter
