// What goes wrong in a step, before it or between two: a sentence, and sequences that are as they were.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "kernels/rotated_testing.h"
#include "support/fixture_gguf.h"
#include "support/run_engine.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string& llama_folder() {
  static const std::string folder = test_data("fixtures/llama");
  return folder;
}

class FailuresTest : public testing::TestWithParam<const char*> {
 protected:
  EngineOptions options(const std::string& model = llama_folder()) const {
    return tiny_options(model, GetParam());
  }
  // The llama fixture as GGUF with one tensor changed.
  std::string spoiled_gguf(const std::string& tensor,
                           const std::function<void(std::vector<float>&)>& spoil) const {
    FixtureGgufOptions gguf;
    gguf.linear = DType::kF16;
    gguf.edit = [&](const std::string& name, std::vector<float>& values) {
      if (name == tensor) spoil(values);
    };
    const std::string path = folder_.file("spoiled.gguf");
    write_fixture_gguf(load_fixture("llama"), path, gguf);
    return path;
  }

  TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Devices, FailuresTest, testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(FailuresTest, NanInAKeyWeightNamesLayerHeadAndPosition) {
  // Rows 64 to 127 of k are KV head 1's.
  const std::string model = spoiled_gguf("blk.2.attn_k.weight", [](std::vector<float>& values) {
    values[(64 + 10) * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  });
  const auto engine = load_engine(options(model));
  Sequence sequence = make_sequence(*engine);
  const auto logits = engine->forward(sequence, random_ids(100, 1));
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code(), StatusCode::kNumeric);
  EXPECT_THAT(logits.error().message(),
              AllOf(HasSubstr("layer 2"), HasSubstr("KV head 1"), HasSubstr("position 0")));
  EXPECT_EQ(sequence.position(), 0);
  EXPECT_EQ(sequence.held_bytes(), 0);
  EXPECT_EQ(engine->cache_bytes(), 0);
}

TEST_P(FailuresTest, StepThatFailsLeavesTheSequenceAsItWas) {
  rotated_format();
  const std::string model = spoiled_gguf("token_embd.weight", [](std::vector<float>& values) {
    values[7 * 64] = std::numeric_limits<float>::infinity();
  });
  const auto engine = load_engine(options(model));
  std::vector<int32_t> good = random_ids(400, 3);
  std::replace(good.begin(), good.end(), 7, 8);
  const std::span<const int32_t> ids(good);
  for (const char* kv_cache :
       {"raw", "rotated", "aura3v2", "affine4", "k=affine8,v=aura4:plain", "k=raw,v=aura2"}) {
    for (size_t past : {0, 63, 100, 128}) {
      SequenceOptions sequence_options;
      sequence_options.kv_cache = kv_cache;
      Sequence sequence = make_sequence(*engine, sequence_options),
               fresh = make_sequence(*engine, sequence_options);
      if (past > 0) {
        feed_last(*engine, sequence, ids.first(past));
        feed_last(*engine, fresh, ids.first(past));
      }
      const int64_t held = sequence.held_bytes();
      for (size_t at : {0, 1, 90}) {
        std::vector<int32_t> bad = random_ids(91, 5);
        std::replace(bad.begin(), bad.end(), 7, 8);
        bad[at] = 7;
        const auto logits = engine->forward(sequence, bad);
        ASSERT_FALSE(logits);
        EXPECT_THAT(logits.error().message(), HasSubstr("layer 0"));
        EXPECT_THAT(logits.error().message(), HasSubstr("position " + std::to_string(past + at)));
        EXPECT_EQ(sequence.position(), static_cast<int64_t>(past));
        EXPECT_EQ(sequence.held_bytes(), held);
      }
      EXPECT_EQ(feed_last(*engine, sequence, ids.subspan(past, 90)),
                feed_last(*engine, fresh, ids.subspan(past, 90)))
          << kv_cache << " at " << past;
    }
  }
}

TEST_P(FailuresTest, OneFailingSequenceOfABatchLeavesAllAsTheyWere) {
  const std::string model = spoiled_gguf("token_embd.weight", [](std::vector<float>& values) {
    values[7 * 64] = std::numeric_limits<float>::quiet_NaN();
  });
  const auto engine = load_engine(options(model));
  const std::vector<int32_t> past(62, 9), good = {1, 2, 3}, bad = {1, 7, 3};
  Sequence a = make_sequence(*engine), b = make_sequence(*engine), fresh = make_sequence(*engine);
  for (Sequence* each : {&a, &b, &fresh}) feed_last(*engine, *each, past);
  const BatchItem items[] = {{&a, good}, {&b, bad}};
  const auto logits = engine->forward_batch(items);
  ASSERT_FALSE(logits);
  EXPECT_THAT(logits.error().message(), HasSubstr("position 63"));
  EXPECT_EQ(a.position(), 62);
  EXPECT_EQ(b.position(), 62);
  const std::vector<float> expected = feed_last(*engine, fresh, good);
  EXPECT_EQ(feed_last(*engine, a, good), expected);
  EXPECT_EQ(feed_last(*engine, b, good), expected);
}

TEST_P(FailuresTest, WhatCannotBeFedIsRefusedBeforeAnythingIsComputed) {
  EngineOptions small = options();
  small.max_context = 100;
  const auto engine = load_engine(small);
  Sequence sequence = make_sequence(*engine), fresh = make_sequence(*engine), twin = make_sequence(*engine);
  feed_last(*engine, sequence, random_ids(90, 1));
  feed_last(*engine, fresh, random_ids(90, 1));
  const auto refusal = [&](const std::vector<int32_t>& ids) {
    const auto logits = engine->forward(sequence, ids);
    EXPECT_EQ(sequence.position(), 90);
    return logits ? std::string("accepted") : logits.error().message();
  };
  EXPECT_THAT(refusal({1, 2, 256}), AllOf(HasSubstr("256"), HasSubstr("0 to 255"), HasSubstr("number 2")));
  EXPECT_THAT(refusal({-1}), HasSubstr("-1"));
  EXPECT_THAT(refusal({std::numeric_limits<int32_t>::min()}), HasSubstr("-2147483648"));
  EXPECT_THAT(refusal({}), HasSubstr("at least one"));
  EXPECT_THAT(refusal(random_ids(11, 2)), AllOf(HasSubstr("11 tokens"), HasSubstr("90"), HasSubstr("100")));

  const std::vector<int32_t> one = {1}, many = random_ids(15, 1), out = {300};
  const auto batch_refusal = [&](std::vector<BatchItem> items) {
    const auto logits = engine->forward_batch(items);
    EXPECT_EQ(sequence.position(), 90);
    EXPECT_EQ(twin.position(), 0);
    return logits ? std::string("accepted") : logits.error().message();
  };
  EXPECT_THAT(batch_refusal({}), HasSubstr("1 to 15"));
  EXPECT_THAT(batch_refusal({{&twin, one}, {&twin, one}}), HasSubstr("twice"));
  EXPECT_THAT(batch_refusal({{&twin, many}, {&sequence, one}}), HasSubstr("16 tokens"));
  EXPECT_THAT(batch_refusal({{&twin, one}, {&sequence, out}}), HasSubstr("300"));
  EXPECT_THAT(batch_refusal({{&twin, one}, {&sequence, {}}}), HasSubstr("at least one"));
  EXPECT_EQ(feed_last(*engine, sequence, random_ids(10, 4)), feed_last(*engine, fresh, random_ids(10, 4)));
}

TEST_P(FailuresTest, CancelledPrefillStopsAtAStepAndGoesOn) {
  EngineOptions steps_of_64 = options();
  steps_of_64.prefill_rows = 64;
  steps_of_64.logit_rows = 1;
  const auto engine = load_engine(steps_of_64);
  const std::vector<int32_t> ids = random_ids(300, 1);
  Sequence sequence = make_sequence(*engine), fresh = make_sequence(*engine);
  std::vector<int64_t> seen;
  sequence.set_prefill_progress([&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 300);
    seen.push_back(done);
    return done < 128;
  });
  const auto cancelled = engine->forward(sequence, ids);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 64, 128}));
  EXPECT_EQ(sequence.position(), 128);
  sequence.set_prefill_progress(nullptr);
  const std::vector<float> rest = feed_last(*engine, sequence, std::span(ids).subspan(128));
  EXPECT_EQ(rest, feed_last(*engine, fresh, ids));
}

TEST_P(FailuresTest, AllLogitsComeWhateverTheStepHolds) {
  const std::vector<int32_t> ids = random_ids(150, 1);
  const auto wide = load_engine(options());
  Sequence whole = make_sequence(*wide);
  const Logits expected = feed_all(*wide, whole, ids);
  for (int logit_rows : {1, 20, 64, 100, 128}) {
    EngineOptions narrow = options();
    narrow.logit_rows = logit_rows;
    const auto engine = load_engine(narrow);
    Sequence sequence = make_sequence(*engine);
    std::vector<int64_t> order;
    Logits logits;
    feed_last(*engine, sequence, std::span(ids).first(10));
    const Status status =
        engine->forward_all(sequence, std::span(ids).subspan(10), [&](int64_t i, std::span<const float> row) {
          order.push_back(i);
          logits.emplace_back(row.begin(), row.end());
        });
    ASSERT_TRUE(status) << status.error().message();
    ASSERT_EQ(logits.size(), 140u);
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int64_t>(i));
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_LE(max_difference(logits[i], expected[i + 10]), 2e-1f);
  }
}

TEST_P(FailuresTest, BudgetThatCannotHoldThePlanIsRefusedWithBothFigures) {
  EngineOptions small = options();
  const auto roomy = load_engine(small);
  const CachePlan plan = *roomy->plan_caches();
  small.cache_budget_bytes = plan.total_bytes + plan.prefill_bytes - 1;
  const auto engine = load_engine(small);
  const auto refused = engine->make_layer_caches();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr(std::to_string(plan.total_bytes + plan.prefill_bytes)),
                    HasSubstr(std::to_string(small.cache_budget_bytes))));
}

TEST_P(FailuresTest, BudgetOfExactlyThePlanServesTheWholeContext) {
  EngineOptions exact = options();
  const auto roomy = load_engine(exact);
  const CachePlan plan = *roomy->plan_caches();
  exact.cache_budget_bytes = plan.total_bytes + plan.prefill_bytes;
  const auto engine = load_engine(exact);
  Sequence sequence = make_sequence(*engine);
  feed_last(*engine, sequence, random_ids(512, 1));
  EXPECT_EQ(sequence.held_bytes(), plan.total_bytes);
  // A second one finds nothing left; the first is not disturbed.
  const auto second = engine->make_layer_caches();
  if (second) {
    Sequence late = std::move(const_cast<Sequence&>(*second));
    const auto logits = engine->forward(late, random_ids(1, 1));
    ASSERT_FALSE(logits);
    EXPECT_EQ(logits.error().code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(late.position(), 0);
  }
}

TEST_P(FailuresTest, OptionsThatMakeNoSenseAreNamed) {
  const auto engine = load_engine(options());
  const auto refusal = [&](SequenceOptions sequence) {
    const auto made = engine->make_layer_caches(sequence);
    const auto plan = engine->plan_caches(sequence);
    EXPECT_EQ(made.has_value(), plan.has_value());
    return made ? std::string("accepted") : made.error().message();
  };
  EXPECT_THAT(refusal({"butter", 0, 4, 0}), HasSubstr("\"butter\""));
  EXPECT_THAT(refusal({"raw", -5, 4, 0}), HasSubstr("--kv-window-size is -5"));
  EXPECT_THAT(refusal({"raw", 4, 4, 0}), HasSubstr("--kv-window-size is 4"));
  EXPECT_THAT(refusal({"raw", 10, -1, 0}), HasSubstr("-1"));
  EXPECT_THAT(refusal({"raw", 0, 4, -1}), HasSubstr("--max-context is -1"));
  EXPECT_THAT(refusal({"raw", 0, 4, 513}), AllOf(HasSubstr("513"), HasSubstr("512")));
  EXPECT_THAT(refusal({"raw", 1000, 4, 0}), AllOf(HasSubstr("1000"), HasSubstr("512")));
  EXPECT_THAT(refusal({"raw", 0, 4, std::numeric_limits<int64_t>::max()}), HasSubstr("512"));

  const auto load_refusal = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions changed = options();
    change(changed);
    const auto loaded = Engine::load(changed);
    return loaded ? std::string("accepted") : loaded.error().message();
  };
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.device = "gpu"; }), HasSubstr("\"gpu\""));
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.threads = -1; }), HasSubstr("-1"));
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.prefill_rows = 100; }), HasSubstr("100"));
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.max_context = -3; }), HasSubstr("-3"));
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.max_context = int64_t{1} << 40; }),
              HasSubstr("1099511627776"));
  EXPECT_THAT(load_refusal([](EngineOptions& o) { o.logit_rows = 0; }), HasSubstr("0 rows"));
}

TEST_P(FailuresTest, FileTruncatedWhileMappedIsAnErrorNotACrash) {
  const std::string model = spoiled_gguf("", [](std::vector<float>&) {});
  const auto engine = load_engine(options(model));
  Sequence sequence = make_sequence(*engine);
  feed_last(*engine, sequence, random_ids(10, 1));
  ASSERT_EQ(::truncate(model.c_str(), 4096), 0);
  const auto logits = engine->forward(sequence, random_ids(10, 2));
  ASSERT_FALSE(logits) << "float weights are read where they are mapped";
  EXPECT_THAT(logits.error().message(), HasSubstr("spoiled.gguf"));
  EXPECT_EQ(sequence.position(), 10);
}

TEST_P(FailuresTest, FileTruncatedBeforeItIsLoadedIsAnError) {
  const std::string model = spoiled_gguf("", [](std::vector<float>&) {});
  const auto size = std::filesystem::file_size(model);
  for (const double share : {0.0, 0.001, 0.01, 0.3, 0.99}) {
    ASSERT_EQ(::truncate(model.c_str(), static_cast<off_t>(share * static_cast<double>(size))), 0);
    const auto loaded = Engine::load(options(model));
    ASSERT_FALSE(loaded);
    EXPECT_FALSE(loaded.error().message().empty());
    spoiled_gguf("", [](std::vector<float>&) {});
  }
}

TEST_P(FailuresTest, HostileTensorsAreErrorsNotChecks) {
  const auto refusal = [&](const std::function<void(GgufWriter&)>& finish, const char* name = "llama") {
    FixtureGgufOptions gguf;
    gguf.finish = finish;
    const std::string path = folder_.file("hostile.gguf");
    write_fixture_gguf(load_fixture(name), path, gguf);
    const auto loaded = Engine::load(options(path));
    return loaded ? std::string("accepted") : loaded.error().message();
  };
  // A quantised bias whose rows would have to be put in order.
  EXPECT_THAT(refusal([](GgufWriter& writer) {
                const std::vector<float> zeros(256);
                writer.floats("blk.0.attn_q.bias", DType::kQ8_0, {256}, zeros);
              }),
              HasSubstr("blk.0.attn_q.bias"));
  for (const float wrong : {0.0f, 1e-7f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_THAT(refusal([&](GgufWriter& writer) {
                  const std::vector<float> divisors(32, wrong);
                  writer.floats("rope_freqs.weight", DType::kF32, {32}, divisors);
                }),
                HasSubstr(fmt::format("rope_freqs.weight[0] is {}; a finite number from 1e-06 on", wrong)));
  }
  EXPECT_THAT(refusal([](GgufWriter& writer) {
                const std::vector<float> divisors(31, 1.0f);
                writer.floats("rope_freqs.weight", DType::kF32, {31}, divisors);
              }),
              AllOf(HasSubstr("rope_freqs.weight"), HasSubstr("[31]"), HasSubstr("[32]")));
}

TEST_P(FailuresTest, OddHeadWidthThatWouldBePermutedIsRefused) {
  // One layer of the smallest kind, with heads of 3 values of which 2 turn.
  GgufWriter writer;
  writer.string("general.architecture", "llama").value<uint32_t>("llama.block_count", 1);
  writer.value<uint32_t>("llama.embedding_length", 32).value<uint32_t>("llama.feed_forward_length", 32);
  writer.value<uint32_t>("llama.attention.head_count", 2).value<uint32_t>("llama.attention.key_length", 3);
  writer.value<uint32_t>("llama.rope.dimension_count", 2).value<uint32_t>("llama.context_length", 128);
  const auto add = [&](const std::string& name, const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(shape.elements()), 0.5f);
    writer.floats(name, DType::kF32, shape, values);
  };
  add("token_embd.weight", {40, 32});
  add("output_norm.weight", {32});
  for (const char* name : {"attn_norm", "ffn_norm"}) add(std::string("blk.0.") + name + ".weight", {32});
  for (const char* name : {"attn_q", "attn_k", "attn_v"})
    add(std::string("blk.0.") + name + ".weight", {6, 32});
  add("blk.0.attn_output.weight", {32, 6});
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
    add(std::string("blk.0.") + name + ".weight", {32, 32});
  writer.write(folder_.file("odd.gguf"));
  const auto loaded = Engine::load(options(folder_.file("odd.gguf")));
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), HasSubstr("3"));
}

TEST_P(FailuresTest, PlannedBytesAreThePeakOfALongPrompt) {
  rotated_format();
  const auto engine = load_engine(options());
  const CachePlan plan = *engine->plan_caches();
  Sequence sequence = make_sequence(*engine);
  feed_last(*engine, sequence, random_ids(512, 1));
  EXPECT_EQ(engine->peak_cache_bytes(), plan.total_bytes);
  EXPECT_EQ(engine->cache_bytes(), plan.total_bytes);
  EXPECT_EQ(*sequence.raw_bytes(), plan.raw_bytes);
}

}  // namespace
}  // namespace butter
