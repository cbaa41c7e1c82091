// butter/eval.h on the tiny fixture models: what must come out whatever the figures of a real model are.
#include "butter/eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/eval_haystack.h"
#include "kernels/rotated_testing.h"
#include "support/run_engine.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::HasSubstr;

constexpr size_t kWindowTokens = 200;  // three sealed pages and more

std::unique_ptr<Engine> tiny_engine(const std::string& device) {
  rotated_format();  // before the engine, which makes room to seal
  return load_engine(tiny_options(test_data("fixtures/llama"), device, 2));
}

std::vector<std::vector<int32_t>> tiny_windows() {
  return {random_ids(kWindowTokens, 1), random_ids(kWindowTokens, 2)};
}

// What measure_quality() is a chunked form of: both sequences whole, one after the other.
double plain_kld(Engine& engine, const std::string& scheme, std::span<const int32_t> window) {
  Sequence raw = make_sequence(engine), other = make_sequence(engine, {.kv_cache = scheme});
  const Logits exact = feed_all(engine, raw, window), found = feed_all(engine, other, window);
  double sum = 0;
  for (size_t row = 0; row + 1 < window.size(); ++row) {
    long double exact_sum = 0, found_sum = 0, kld = 0;
    for (const float logit : exact[row]) exact_sum += std::exp(static_cast<long double>(logit));
    for (const float logit : found[row]) found_sum += std::exp(static_cast<long double>(logit));
    for (size_t i = 0; i < exact[row].size(); ++i) {
      const long double log_p = exact[row][i] - std::log(exact_sum),
                        log_q = found[row][i] - std::log(found_sum);
      kld += std::exp(log_p) * (log_p - log_q);
    }
    sum += static_cast<double>(kld);
  }
  return sum / static_cast<double>(window.size() - 1);
}

TEST(Eval, RawAgainstItselfCostsNothingToTheBit) {
  for (const char* device : {"cpu", "reference"}) {
    const auto engine = tiny_engine(device);
    const auto report = measure_quality(*engine, tiny_windows(), {.kv_caches = {"raw"}});
    ASSERT_TRUE(report) << report.error().message();
    const SchemeQuality& row = report->rows.at(0);
    EXPECT_TRUE(report->complete);
    EXPECT_EQ(row.positions, static_cast<int64_t>(2 * (kWindowTokens - 1)));
    EXPECT_EQ(row.kld_mean, 0);
    EXPECT_EQ(row.kld_p99, 0);
    EXPECT_EQ(row.top1, 1);
    EXPECT_EQ(row.ppl, row.ppl_raw);
    EXPECT_EQ(row.ratio_sealed, 1);
    EXPECT_EQ(row.bits_per_value, std::string(device) == "cpu" ? 16 : 32);
  }
}

TEST(Eval, PerplexityIsThatOfThePlainComputation) {
  const auto engine = tiny_engine("reference");
  const auto windows = tiny_windows();
  double nll = 0;
  for (const auto& window : windows) {
    Sequence sequence = make_sequence(*engine);
    const Logits logits = feed_all(*engine, sequence, window);
    for (size_t row = 0; row + 1 < window.size(); ++row) {
      long double sum = 0;
      for (const float logit : logits[row]) sum += std::exp(static_cast<long double>(logit));
      nll += static_cast<double>(std::log(sum)) - logits[row][static_cast<size_t>(window[row + 1])];
    }
  }
  const auto report = measure_quality(*engine, windows, {.kv_caches = {"raw"}});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_NEAR(report->rows.at(0).ppl / std::exp(nll / (2 * (kWindowTokens - 1))), 1, 1e-6);
}

TEST(Eval, LosslessFormatCostsNextToNothingInEveryMeasure) {
  const auto engine = tiny_engine("cpu");
  const auto windows = tiny_windows();
  const EvalOptions options{.kv_caches = {"rotated", "raw"}};
  const auto report = measure_quality(*engine, windows, options);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->rows.size(), 2u);
  EXPECT_EQ(report->rows[0].kv_cache, "rotated");
  EXPECT_LT(report->rows[0].kld_mean, 1e-4);
  EXPECT_GT(report->rows[0].kld_mean, 0) << "sealed rows were read";
  EXPECT_GT(report->rows[0].top1, 0.95);
  EXPECT_EQ(report->rows[1].kld_mean, 0) << "beside another scheme too";
  const double plain =
      (plain_kld(*engine, "rotated", windows[0]) + plain_kld(*engine, "rotated", windows[1])) / 2;
  EXPECT_NEAR(report->rows[0].kld_mean, plain, 0.02 * plain + 2e-8);

  const auto errors = measure_attention_error(*engine, windows, options);
  ASSERT_TRUE(errors) << errors.error().message();
  ASSERT_EQ(errors->rows.at(0).layers.size(), 4u);
  for (size_t layer = 0; layer < 4; ++layer) {
    EXPECT_LT(errors->rows[0].layers[layer], 0.01);
    EXPECT_GT(errors->rows[0].layers[layer], 0);
    EXPECT_EQ(errors->rows[1].layers[layer], 0) << "given the same inputs";
  }
}

TEST(Eval, LayersOfOneWindowThatReadNoSealedRowsHaveNoError) {
  const auto engine = tiny_engine("cpu");
  const std::vector<std::vector<int32_t>> windows = {random_ids(64, 3)};
  const auto errors = measure_attention_error(*engine, windows, {.kv_caches = {"rotated"}});
  ASSERT_TRUE(errors) << errors.error().message();
  for (const double error : errors->rows.at(0).layers) EXPECT_LT(error, 0);
}

TEST(Eval, WindowHoldsForBothSides) {
  const auto engine = tiny_engine("cpu");
  const std::vector<std::vector<int32_t>> windows = {random_ids(900, 4)};  // the model has 512 positions
  EvalOptions options{.kv_caches = {"raw", "rotated"}};
  EXPECT_FALSE(measure_quality(*engine, windows, options));
  options.sequence.kv_window_size = 100;
  const auto report = measure_quality(*engine, windows, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->rows[0].positions, 899);
  EXPECT_EQ(report->rows[0].kld_mean, 0);
  EXPECT_LT(report->rows[1].kld_mean, 1e-4);
}

TEST(Eval, CancelledMeasurementGivesTheChunksThatWereWhole) {
  const auto engine = tiny_engine("cpu");
  std::atomic<bool> cancel = false;
  EvalOptions options{.kv_caches = {"raw", "rotated"}};
  options.control.cancel = &cancel;
  options.control.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, static_cast<int64_t>(2 * 3 * (kWindowTokens - 1)));
    cancel = done > 3 * static_cast<int64_t>(kWindowTokens - 1);
  };
  const auto report = measure_quality(*engine, tiny_windows(), options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->complete);
  for (const SchemeQuality& row : report->rows) {
    EXPECT_EQ(row.positions, static_cast<int64_t>(kWindowTokens - 1)) << "of one window";
  }

  cancel = true;
  options.control.progress = nullptr;
  const auto nothing = measure_quality(*engine, tiny_windows(), options);
  ASSERT_TRUE(nothing) << nothing.error().message();
  EXPECT_FALSE(nothing->complete);
  EXPECT_EQ(nothing->rows[0].positions, 0);
  EXPECT_TRUE(std::isnan(nothing->rows[0].kld_mean));
  EXPECT_FALSE(measure_attention_error(*engine, tiny_windows(), options)->complete);
}

TEST(Eval, UnknownSchemeIsAnErrorThatListsTheOthers) {
  const auto engine = tiny_engine("cpu");
  const auto report = measure_quality(*engine, tiny_windows(), {.kv_caches = {"raw", "nothing4"}});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("raw"));
}

TEST(Eval, NeedlesNeedATokenizer) {
  const auto engine = tiny_engine("cpu");
  const NamedText text{"text", "words"};
  const auto report = probe_needles(*engine, {&text, 1}, {}, {.kv_caches = {"raw"}});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("tokenizer"));
}

TEST(EvalChunk, LogitsOfAChunkTakeABoundedNumberOfBytes) {
  EXPECT_EQ(eval_chunk_rows(256), 256);
  EXPECT_EQ(eval_chunk_rows(49152), 256);
  EXPECT_EQ(eval_chunk_rows(151936), 64);
  EXPECT_EQ(eval_chunk_rows(int64_t{1} << 40), 64) << "a page at least";
}

TEST(Haystack, NeedlesDependOnTheSeedAloneAndDiffer) {
  const std::vector<Needle> needles = make_needles(7, 5, 0.25), again = make_needles(7, 5, 0.25);
  ASSERT_EQ(needles.size(), 5u);
  for (size_t i = 0; i < needles.size(); ++i) {
    EXPECT_EQ(needles[i].key, again[i].key);
    EXPECT_EQ(needles[i].value, again[i].value);
    EXPECT_EQ(needles[i].value.size(), 5u);
    EXPECT_DOUBLE_EQ(needles[i].depth, (static_cast<double>(i) + 0.25) / 5);
    for (size_t other = 0; other < i; ++other) EXPECT_NE(needles[i].key, needles[other].key);
  }
  EXPECT_NE(make_needles(8, 5, 0.25)[0].value, needles[0].value);
}

TEST(Haystack, ValueCountsAsANumberOfItsOwn) {
  EXPECT_TRUE(says_value(" 40713.", "40713"));
  EXPECT_TRUE(says_value("40713", "40713"));
  EXPECT_TRUE(says_value("it is 407139, no, 40713", "40713"));
  EXPECT_FALSE(says_value(" 407130", "40713"));
  EXPECT_FALSE(says_value(" 140713", "40713"));
  EXPECT_FALSE(says_value(" 4071", "40713"));
  EXPECT_FALSE(says_value("", "40713"));
}

}  // namespace
}  // namespace butter
