// Windows: logits against an independent model with an explicit mask; memory that does not grow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tiny_llama.h"
#include "kernels/rotated_testing.h"
#include "support/sanitized.h"

namespace butter {
namespace {

constexpr float kFloatBound = 1e-3f;  // float32 against double
constexpr float kBf16Bound = 2e-1f;

const Fixture& llama() {
  static const Fixture fixture = load_fixture("llama");
  return fixture;
}
const Fixture& mistral() {
  static const Fixture fixture = load_fixture("mistral_swa");
  return fixture;
}

SequenceOptions windowed(int64_t size, int64_t keep, const std::string& kv_cache = "raw") {
  SequenceOptions options;
  options.kv_cache = kv_cache;
  options.kv_window_size = size;
  options.kv_window_keep = keep;
  return options;
}

Mask window_mask(int64_t size, int64_t keep) {
  return [=](int64_t p, int64_t k) { return k < keep || p - k < size - keep; };
}

struct UserWindow {
  int64_t size, keep;
};

TEST(Windows, TheIndependentModelIsTheRecordedOne) {
  const auto check = [](const Fixture& fixture, const Mask& mask) {
    const Logits logits = tiny_llama(fixture, fixture.input_ids, mask);
    for (size_t r = 0; r < logits.size(); ++r) {
      ASSERT_LE(max_difference(logits[r], {fixture.logits.row(static_cast<int64_t>(r)), 256}), kFloatBound);
    }
  };
  check(llama(), [](int64_t, int64_t) { return true; });
  check(mistral(), window_mask(16, 0));
}

TEST(Windows, PromptsShorterEqualAndThreeTimesTheWindowAreMaskedExactly) {
  rotated_format();
  const std::span<const int32_t> ids = llama().input_ids;
  const auto reference = load_engine(tiny_options(llama().folder, "reference"));
  const auto cpu = load_engine(tiny_options(llama().folder, "cpu"));
  std::vector<UserWindow> user_windows = {{69, 4}, {65, 5}, {100, 70}, {1, 0},  {16, 4},
                                          {64, 0}, {64, 4}, {208, 4},  {300, 4}};
  if (kSanitized) user_windows.resize(3);
  for (const UserWindow& w : user_windows) {
    const Logits expected = tiny_llama(llama(), ids, window_mask(w.size, w.keep));
    for (const char* kv_cache : {"raw", "rotated"}) {
      for (size_t chunk : {1000, 7}) {
        SCOPED_TRACE(testing::Message()
                     << w.size << "/" << w.keep << " " << kv_cache << " chunks of " << chunk);
        Sequence exact = make_sequence(*reference, windowed(w.size, w.keep, kv_cache));
        EXPECT_LE(max_difference(feed_all(*reference, exact, ids, chunk), expected), kFloatBound);
        Sequence fast = make_sequence(*cpu, windowed(w.size, w.keep, kv_cache));
        EXPECT_LE(max_difference(feed_all(*cpu, fast, ids, chunk), expected), kBf16Bound);
      }
    }
  }
}

TEST(Windows, SmallerOfModelsAndUsersWindowHoldsAndKeepGoesWithTheUsers) {
  const std::span<const int32_t> ids = mistral().input_ids;
  const auto engine = load_engine(tiny_options(mistral().folder, "reference"));
  for (const UserWindow& w : {UserWindow{12, 4}, {15, 0}, {16, 4}, {64, 4}}) {
    Sequence sequence = make_sequence(*engine, windowed(w.size, w.keep));
    const Mask mask = w.size < 16 ? window_mask(w.size, w.keep) : window_mask(16, 0);
    EXPECT_LE(max_difference(feed_all(*engine, sequence, ids), tiny_llama(mistral(), ids, mask)), kFloatBound)
        << w.size;
  }
}

class StreamTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

INSTANTIATE_TEST_SUITE_P(Devices, StreamTest,
                         testing::Combine(testing::Values("reference", "cpu"),
                                          testing::Values("raw", "rotated")),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

TEST_P(StreamTest, TwentyWindowsOfTokensPastTheContextTakeFlatMemory) {
  rotated_format();
  const auto [device, kv_cache] = GetParam();
  EngineOptions options = tiny_options(llama().folder, device);
  options.prefill_rows = 64;
  options.logit_rows = 1;
  options.max_context = 256;
  const auto engine = load_engine(options);
  const int64_t window = 64;
  Sequence sequence = make_sequence(*engine, windowed(window, 4, kv_cache));
  EXPECT_TRUE(sequence.unbounded());
  const CachePlan plan = *engine->plan_caches(windowed(window, 4, kv_cache));
  int64_t held = 0;
  for (int64_t fed = 0; fed < 20 * window; fed += 64) {
    const std::vector<float> logits =
        feed_last(*engine, sequence, random_ids(64, static_cast<uint32_t>(fed)));
    ASSERT_EQ(logits.size(), 256u);
    if (fed == 256) held = sequence.held_bytes();
    if (fed > 256) {
      ASSERT_EQ(sequence.held_bytes(), held);
    }
  }
  EXPECT_EQ(sequence.position(), 20 * window);
  EXPECT_EQ(sequence.held_bytes(), plan.total_bytes);
  EXPECT_LE(engine->peak_cache_bytes(), plan.total_bytes + plan.prefill_bytes);
  // What is out of sight does not matter: a stream that differs only there ends in the same answer. Layers
  // pass information on, so the first tokens that count lie layers * window back.
  Sequence recent = make_sequence(*engine, windowed(window, 0, kv_cache));
  Sequence other = make_sequence(*engine, windowed(window, 0, kv_cache));
  feed_last(*engine, recent, random_ids(128, 1));
  feed_last(*engine, other, random_ids(128, 2));
  const std::vector<int32_t> tail = random_ids(4 * 64 + 64, 3);
  EXPECT_EQ(feed_last(*engine, recent, tail), feed_last(*engine, other, tail));
}

TEST(Windows, BudgetIsAskedForTheWindowWhereTheContextIsShorter) {
  EngineOptions options = tiny_options(llama().folder, "reference");
  options.max_context = 4096;
  SequenceOptions short_context = windowed(300, 4);
  short_context.max_context = 64;
  SequenceOptions long_context = windowed(300, 4);
  const CachePlan plan = *load_engine(options)->plan_caches(long_context);
  options.cache_budget_bytes = plan.total_bytes + plan.prefill_bytes - 1;
  EXPECT_FALSE(load_engine(options)->make_layer_caches(short_context)) << "positions go on to 300 and beyond";
  ++options.cache_budget_bytes;
  const auto engine = load_engine(options);
  Sequence sequence = make_sequence(*engine, short_context);
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(feed_last(*engine, sequence, random_ids(100, i)).size(), 256u);
}

TEST(Windows, LayersWithoutAWindowAreHeldToTheContext) {
  EngineOptions options = tiny_options(llama().folder, "reference");
  options.max_context = 128;
  const auto engine = load_engine(options);
  Sequence sequence = make_sequence(*engine);
  EXPECT_FALSE(sequence.unbounded());
  feed_last(*engine, sequence, random_ids(128, 1));
  const auto more = engine->forward(sequence, random_ids(1, 1));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code(), StatusCode::kLimit);
}

}  // namespace
}  // namespace butter
