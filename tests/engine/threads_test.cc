// One engine, several threads: each has sequences and sessions of its own, and gets what it would get alone.
#include <gtest/gtest.h>

#include <thread>

#include "butter/session.h"
#include "support/run_engine.h"
#include "support/sanitized.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr int kThreads = 4;
constexpr int kTurns = kSanitized ? 2 : 6;

std::vector<int32_t> conversation(Session& session, uint32_t seed, int64_t* prefill_calls) {
  std::vector<int32_t> ids = random_ids(70 + seed * 10, seed);
  GenerateOptions options;
  options.max_tokens = 8;
  options.on_prefill = [&](int64_t, int64_t) { ++*prefill_calls; };
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto answer = session.complete(ids, options, nullptr);
    EXPECT_TRUE(answer) << answer.error().message();
    if (!answer) break;
    ids.insert(ids.end(), answer->token_ids.begin(), answer->token_ids.end());
    ids.push_back(static_cast<int32_t>(seed));
  }
  return ids;
}

std::unique_ptr<Engine> engine_of_small_steps() {
  EngineOptions options = tiny_options(test_data("fixtures/llama"), "cpu", 2);
  options.prefill_rows = 64;
  options.logit_rows = 1;
  return load_engine(options);
}

TEST(Threads, SessionsOfOneEngineAnswerAsTheyWouldAlone) {
  const auto engine = engine_of_small_steps();
  std::vector<std::vector<int32_t>> alone(kThreads), together(kThreads);
  std::vector<int64_t> calls_alone(kThreads), calls_together(kThreads);
  const auto run = [&](int i, std::vector<std::vector<int32_t>>& out, std::vector<int64_t>& calls) {
    auto session = Session::create(*engine);
    ASSERT_TRUE(session);
    const auto at = static_cast<size_t>(i);
    out[at] = conversation(*session, static_cast<uint32_t>(i), &calls[at]);
  };
  for (int i = 0; i < kThreads; ++i) run(i, alone, calls_alone);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { run(i, together, calls_together); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  EXPECT_EQ(calls_together, calls_alone) << "progress is that of one's own prompt";
}

TEST(Threads, CopiedLogitsAreThoseOfTheCallersOwnStep) {
  const auto engine = engine_of_small_steps();
  const auto vocabulary = static_cast<size_t>(engine->info().vocabulary);
  const auto last_logits = [&](uint32_t seed) {
    Sequence sequence = make_sequence(*engine);
    std::vector<float> logits(vocabulary);
    for (const int32_t id : random_ids(30, seed)) {
      const Status fed = engine->forward(sequence, std::vector<int32_t>{id}, logits);
      EXPECT_TRUE(fed) << fed.error().message();
    }
    return logits;
  };
  std::vector<std::vector<float>> alone, together(kThreads);
  for (uint32_t seed = 0; seed < kThreads; ++seed) alone.push_back(last_logits(seed));
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < kThreads; ++seed)
    threads.emplace_back([&, seed] { together[seed] = last_logits(seed); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  Sequence sequence = make_sequence(*engine);
  std::vector<float> small(vocabulary - 1);
  EXPECT_FALSE(engine->forward(sequence, std::vector<int32_t>{1}, small));
  EXPECT_EQ(sequence.position(), 0);
}

}  // namespace
}  // namespace butter
