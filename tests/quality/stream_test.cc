// A long stream of text through a window, with every scheme: the memory is flat to the byte and the
// perplexity is that of the raw cache with the same window. On the default model, which must have been
// fetched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "butter/tokenizer.h"
#include "cache/cache_scheme.h"
#include "support/run_engine.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr size_t kTokens = 20'000;
constexpr int64_t kWindow = 1024, kKeep = 4;
constexpr int kStepRows = 256;
constexpr double kPerplexityBound = 0.03;  // of raw's

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.model = "smollm2";
    options.max_context = 2048;
    options.prefill_rows = options.logit_rows = kStepRows;
    auto engine = Engine::load(options);
    if (!engine && engine.error().code() == StatusCode::kNotFound) GTEST_SKIP() << engine.error().message();
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = std::move(*engine);
    const auto ids = engine_->tokenizer()->encode(read_test_file(test_data("text/alice29.txt")));
    ASSERT_TRUE(ids) << ids.error().message();
    ids_ = *ids;
    ASSERT_GE(ids_.size(), kTokens);
    ids_.resize(kTokens);
  }

  // Feeds the stream; exp of the mean negative log-likelihood of what came after the window was first full.
  double perplexity(const std::string& kv_cache) {
    SequenceOptions options;
    options.kv_cache = kv_cache;
    options.kv_window_size = kWindow;
    options.kv_window_keep = kKeep;
    Sequence sequence = make_sequence(*engine_, options);
    EXPECT_TRUE(sequence.unbounded());
    double sum = 0;
    int64_t count = 0, held = 0;
    for (size_t at = 0; at < ids_.size(); at += kStepRows) {
      const auto ids = std::span(ids_).subspan(at, std::min<size_t>(kStepRows, ids_.size() - at));
      const Status status = engine_->forward_all(sequence, ids, [&](int64_t i, std::span<const float> row) {
        const size_t next = at + static_cast<size_t>(i) + 1;
        if (next >= ids_.size() || next < kWindow) return;
        sum += log_sum_exp(row) - row[static_cast<size_t>(ids_[next])];
        ++count;
      });
      EXPECT_TRUE(status) << status.error().message();
      if (ids.size() < kStepRows) break;  // ends inside a page, which raw caches hold one more of
      if (at == 2 * kWindow) held = sequence.held_bytes();
      if (at > 2 * kWindow) {
        EXPECT_EQ(sequence.held_bytes(), held) << kv_cache << " at " << sequence.position();
      }
    }
    EXPECT_EQ(sequence.position(), static_cast<int64_t>(kTokens));
    return std::exp(sum / static_cast<double>(count));
  }

  static double log_sum_exp(std::span<const float> logits) {
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - top);
    return top + std::log(sum);
  }

  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> ids_;
};

TEST_F(StreamTest, TwentyThousandTokensThroughAWindowTakeFlatMemoryAndKeepTheirPerplexity) {
  const double raw = perplexity("raw");
  ASSERT_TRUE(std::isfinite(raw));
  std::printf("stream raw       perplexity %.4f\n", raw);
  for (const std::string& scheme : scheme_choices()) {
    if (scheme == "raw") continue;
    const double found = perplexity(scheme);
    std::printf("stream %-9s perplexity %.4f, %+.3f %% of raw's\n", scheme.c_str(), found,
                100 * (found / raw - 1));
    std::fflush(stdout);
    EXPECT_LE(std::fabs(found / raw - 1), kPerplexityBound) << scheme;
  }
}

}  // namespace
}  // namespace butter
