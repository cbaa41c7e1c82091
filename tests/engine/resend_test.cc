// What chat clients do to a session, on every fixture there is: the same prompt again, its end edited, the
// answer regenerated. The answer is always the one of a fresh session.
//
// Tokens are compared on the reference device, where they are equal bit for bit however a prompt is cut into
// steps. On the CPU, decode and prefill kernels differ in rounding: there the likeliest token is compared
// wherever it is ahead, of models without experts.
#include <gtest/gtest.h>

#include "butter/session.h"
#include "support/fixture.h"
#include "support/run_engine.h"
#include "support/sanitized.h"

namespace butter {
namespace {

constexpr size_t kPromptTokens = 150;  // two full pages and part of a third
constexpr int64_t kAnswerTokens = 8;
constexpr float kAhead = 0.5f;

struct Case {
  std::string fixture;
  std::string kv_cache;
  int64_t kv_window_size = 0;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string& fixture : fixture_names()) {
    cases.push_back({fixture, "raw"});
    if (!kSanitized) cases.push_back({fixture, "aura4v4", 70});
  }
  return cases;
}

class ResendTest : public testing::TestWithParam<Case> {
 protected:
  ResendTest() : fixture_(load_fixture(GetParam().fixture)) {
    ids_.assign(fixture_.input_ids.begin(), fixture_.input_ids.begin() + kPromptTokens);
  }

  void load(const std::string& device) { engine_ = load_engine(tiny_options(fixture_.folder, device)); }

  Session session() {
    SequenceOptions options;
    options.kv_cache = GetParam().kv_cache;
    options.kv_window_size = GetParam().kv_window_size;
    options.max_context = 256;
    auto made = Session::create(*engine_, options);
    EXPECT_TRUE(made) << made.error().message();
    BUTTER_CHECK(made.has_value());
    return std::move(*made);
  }

  std::vector<int32_t> answer(Session& session, const std::vector<int32_t>& ids) {
    GenerateOptions options;
    options.max_tokens = kAnswerTokens;
    options.ignore_eos = true;
    const auto result = session.complete(ids, options, nullptr);
    EXPECT_TRUE(result) << result.error().message();
    return result ? result->token_ids : std::vector<int32_t>();
  }

  std::vector<int32_t> fresh_answer(const std::vector<int32_t>& ids) {
    Session fresh = session();
    return answer(fresh, ids);
  }

  // The prompt with its last tokens replaced by others.
  std::vector<int32_t> edited(size_t count) const {
    std::vector<int32_t> ids = ids_;
    for (size_t i = ids.size() - count; i < ids.size(); ++i) ids[i] = (ids[i] + 7) % fixture_.vocabulary();
    return ids;
  }

  Fixture fixture_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Fixtures, ResendTest, testing::ValuesIn(all_cases()), [](const auto& instance) {
  const Case& each = instance.param;
  return each.fixture + "_" + each.kv_cache + (each.kv_window_size > 0 ? "_window" : "");
});

TEST_P(ResendTest, TheAnswerIsThatOfAFreshSession) {
  load("reference");
  Session chat = session();
  const std::vector<int32_t> first = answer(chat, ids_);
  ASSERT_EQ(first.size(), static_cast<size_t>(kAnswerTokens));
  EXPECT_EQ(first, fresh_answer(ids_));
  EXPECT_EQ(answer(chat, ids_), first) << "the same prompt again";
  for (const size_t count : {1, 5, 50})
    EXPECT_EQ(answer(chat, edited(count)), fresh_answer(edited(count))) << count << " tokens edited";
  const std::vector<int32_t> shorter(ids_.begin(), ids_.end() - 20);
  EXPECT_EQ(answer(chat, shorter), fresh_answer(shorter)) << "20 tokens dropped";
  EXPECT_EQ(answer(chat, ids_), first) << "and back";

  // The answer is thrown away and asked for again, and the conversation goes on from it.
  std::vector<int32_t> conversation = ids_;
  conversation.insert(conversation.end(), first.begin(), first.end());
  const std::vector<int32_t> next = random_ids(10, 1, fixture_.vocabulary());
  conversation.insert(conversation.end(), next.begin(), next.end());
  const std::vector<int32_t> second = answer(chat, conversation);
  EXPECT_EQ(answer(chat, conversation), second) << "regenerated";
  EXPECT_EQ(second, fresh_answer(conversation)) << "the turn after it";
}

TEST_P(ResendTest, OnTheCpuTheLikeliestTokenIsThatOfAFreshSession) {
  load("cpu");
  const bool experts = has_experts(GetParam().fixture);  // which roundings choose: then it need only answer
  for (const size_t count : {0, 1, 5, 50}) {
    Session chat = session();
    answer(chat, ids_);
    const std::vector<int32_t> found = answer(chat, edited(count));
    ASSERT_EQ(found.size(), static_cast<size_t>(kAnswerTokens));
    // Each token of the answer, given those before it.
    std::vector<int32_t> fed = edited(count);
    for (const int32_t token : found) {
      Sequence sequence = make_sequence(*engine_, {GetParam().kv_cache, GetParam().kv_window_size, 4, 256});
      const std::vector<float> logits = feed_last(*engine_, sequence, fed);
      if (top_gap(logits) > kAhead && !experts) {
        EXPECT_EQ(token, argmax(logits)) << count << " tokens edited";
      }
      fed.push_back(token);
    }
  }
}

}  // namespace
}  // namespace butter
