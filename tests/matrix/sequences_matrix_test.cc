// Sequences of every scheme, window, prompt and chunk through the engine: finite answers, memory as planned,
// and what must be the same bit for bit: a sequence alone and interleaved, forked, cut back, and saved and
// loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "matrix/matrix.h"
#include "support/fixture.h"
#include "support/run_engine.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr size_t kDecoded = 6;
constexpr size_t kCutStep = 52;
constexpr int64_t kMaxContext = 4096;

// Between decode and prefill kernels logits move by up to kBf16Bound (golden_test.cc). That may let a row
// fall to another code that fits it as well, so that answers move by about what codes cost at all: by how far
// they are from the raw cache's.
constexpr float kBf16Bound = 2e-1f;
constexpr float kOfCodeError = 2.0f;

class SequenceMatrix : public testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  SequenceMatrix() : device_(matrix_devices()[std::get<1>(GetParam())]) {
    const ScopedIsa forced(isa_name(device_.isa));
    EngineOptions options = tiny_options(test_data("fixtures/" + std::get<0>(GetParam())),
                                         device_.reference() ? "reference" : "cpu");
    options.max_context = kMaxContext;
    engine_ = load_engine(options);
  }

  // Calls `check` with every scheme and window; the reference device, which is slow, with the kinds of
  // schemes: it has the others in attention_on_codes_test.cc.
  template <typename Check>
  void for_each_cache(const Check& check) {
    for (const std::string& scheme : device_.reference() ? scheme_kinds() : matrix_schemes()) {
      for (const Window& window : matrix_windows()) {
        options_ = {};
        options_.kv_cache = scheme;
        options_.kv_window_size = window.max_size;
        options_.kv_window_keep = window.keep;
        SCOPED_TRACE(testing::Message() << scheme << " window " << window.max_size << "/" << window.keep);
        check();
        if (HasFailure()) return;
      }
    }
  }

  // Prompts shorter than the window, as long, and three times as long.
  std::vector<size_t> prompts() const {
    const auto window = static_cast<size_t>(options_.kv_window_size > 0 ? options_.kv_window_size : 70);
    return {window / 2, window, 3 * window};
  }

  Sequence sequence() { return make_sequence(*engine_, options_); }
  std::vector<float> feed(Sequence& sequence, std::span<const int32_t> ids) {
    return feed_last(*engine_, sequence, ids);
  }
  // A prompt in chunks, then single tokens: the logits of each of those.
  Logits run(Sequence& sequence, std::span<const int32_t> ids, size_t chunk) {
    Logits logits;
    const size_t prompt = ids.size() - kDecoded;
    for (size_t at = 0; at < prompt; at += chunk)
      feed(sequence, ids.subspan(at, std::min(chunk, prompt - at)));
    for (size_t at = prompt; at < ids.size(); ++at) logits.push_back(feed(sequence, ids.subspan(at, 1)));
    return logits;
  }

  float bound_between_kernels(const Logits& logits, std::span<const int32_t> ids, size_t chunk) {
    SequenceOptions raw_options = options_;
    raw_options.kv_cache = "raw";
    Sequence raw = make_sequence(*engine_, raw_options);
    return kBf16Bound + kOfCodeError * max_difference(run(raw, ids, chunk), logits);
  }

  void expect_planned_memory(const Sequence& sequence) {
    SequenceOptions exact = options_;
    exact.max_context = sequence.position();
    const auto plan = engine_->plan_caches(exact);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(sequence.held_bytes(), plan->total_bytes) << "at " << sequence.position();
  }

  const MatrixDevice device_;
  const bool has_experts_ = has_experts(std::get<0>(GetParam()));
  std::unique_ptr<Engine> engine_;
  SequenceOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Models, SequenceMatrix,
                         testing::Combine(testing::ValuesIn(matrix_models()),
                                          testing::Range<size_t>(0, matrix_devices().size())),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  matrix_devices()[std::get<1>(instance.param)].label;
                         });

bool all_finite(const Logits& logits) {
  for (const auto& row : logits) {
    for (float value : row) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

TEST_P(SequenceMatrix, AnswersAreFiniteMemoryIsPlannedAndChunksAgree) {
  for_each_cache([&] {
    for (size_t prompt : prompts()) {
      const std::vector<int32_t> ids = random_ids(prompt + kDecoded, 5);
      Logits first;
      float bound = 0;
      for (size_t chunk : matrix_chunks()) {
        SCOPED_TRACE(testing::Message() << "prompt of " << prompt << " in chunks of " << chunk);
        Sequence fed = sequence();
        const Logits logits = run(fed, ids, chunk);
        ASSERT_TRUE(all_finite(logits));
        expect_planned_memory(fed);
        if (first.empty()) {
          first = logits;
          bound = device_.reference() ? 0 : bound_between_kernels(logits, ids, chunk);
        }
        if (has_experts_ && !device_.reference()) continue;  // golden_test.cc imposes the choices
        ASSERT_LE(max_difference(logits, first), bound);
      }
    }
  });
}

TEST_P(SequenceMatrix, MemoryIsPlannedAtEveryContext) {
  const std::vector<int32_t> ids = random_ids(kMaxContext, 11);
  for_each_cache([&] {
    std::vector<int64_t> contexts = {1, 63, 64, 65};
    // The pages of a far context are the same whoever fills them: by what is fast.
    const bool is_kind = testing::Matches(testing::Contains(options_.kv_cache))(scheme_kinds());
    const bool is_fast = !device_.reference() && (kWholeMatrix || device_.isa == available_isas().back());
    if (is_fast && is_kind && !kSanitized) contexts.push_back(kMaxContext);
    for (const int64_t context : contexts) {
      options_.max_context = context;
      Sequence filled = sequence();
      feed(filled, std::span(ids).first(static_cast<size_t>(context)));
      expect_planned_memory(filled);
    }
  });
}

TEST_P(SequenceMatrix, InterleavedAndForkedSequencesAreAsAlone) {
  for_each_cache([&] {
    const std::vector<int32_t> left = random_ids(150, 1), right = random_ids(170, 2);
    const size_t steps[] = {60, 7, 1, 1, 66, 15};
    Sequence a_alone = sequence(), b_alone = sequence();
    Logits a, b;
    size_t at = 0;
    for (size_t step : steps) {
      a.push_back(feed(a_alone, std::span(left).subspan(at, step)));
      b.push_back(feed(b_alone, std::span(right).subspan(at, step)));
      at += step;
    }
    Sequence one = sequence(), other = sequence();
    at = 0;
    for (size_t i = 0; i < std::size(steps); ++i) {
      ASSERT_EQ(feed(other, std::span(right).subspan(at, steps[i])), b[i]) << "step " << i;
      ASSERT_EQ(feed(one, std::span(left).subspan(at, steps[i])), a[i]) << "step " << i;
      at += steps[i];
      auto child = one.fork();  // goes on in its parent's place; the parent goes away
      ASSERT_TRUE(child) << child.error().message();
      one = std::move(*child);
    }
    EXPECT_EQ(one.held_bytes(), a_alone.held_bytes());
  });
}

TEST_P(SequenceMatrix, CutBackAndFedTheSameAgainGoesOnEqual) {
  const std::vector<int32_t> ids = random_ids(208, 7), rest = random_ids(70, 8);
  const auto feed_past = [&](Sequence& sequence, size_t count) {
    for (size_t at = 0; at < count; at += kCutStep)
      feed(sequence, std::span(ids).subspan(at, std::min(kCutStep, count - at)));
  };
  const std::vector<int64_t> cuts =
      kWholeMatrix ? std::vector<int64_t>{207, 193, 192, 130, 64, 63, 3, 0} : std::vector<int64_t>{195, 130};
  for_each_cache([&] {
    Sequence whole = sequence();
    feed_past(whole, ids.size());
    for (int64_t n : cuts) {
      Sequence cut = std::move(*whole.fork()), fresh = sequence();
      const auto reached = cut.truncate(n);
      ASSERT_TRUE(reached) << reached.error().message();
      ASSERT_LE(*reached, n);
      const auto back = static_cast<size_t>(*reached);
      feed_past(fresh, back);
      // Steps of few rows run on other kernels on the CPU: then only what is held is the same.
      const bool same_kernels = device_.reference() || back % kCutStep == 0 || back % kCutStep >= 16;
      for (size_t step : {1, 66, 1}) {
        const std::vector<float> again = feed(cut, std::span(rest).first(step));
        const std::vector<float> expected = feed(fresh, std::span(rest).first(step));
        ASSERT_TRUE(all_finite({again}));
        if (same_kernels) {
          ASSERT_EQ(again, expected) << "to " << n << ", reached " << back;
        }
      }
      EXPECT_EQ(cut.held_bytes(), fresh.held_bytes());
    }
  });
}

TEST_P(SequenceMatrix, SavedAndLoadedGoesOnBitForBit) {
  TempDir folder;
  const std::vector<int32_t> ids = random_ids(208, 9), rest = random_ids(70, 10);
  const std::vector<size_t> lengths =
      kWholeMatrix ? std::vector<size_t>{1, 63, 64, 65, 208} : std::vector<size_t>{150};
  for_each_cache([&] {
    for (size_t length : lengths) {
      Sequence saved = sequence();
      feed(saved, std::span(ids).first(length));
      const std::string path = folder.file("cache");
      const Status status = saved.save(path);
      ASSERT_TRUE(status) << status.error().message();
      auto loaded = engine_->load_sequence(path, options_);
      ASSERT_TRUE(loaded) << loaded.error().message();
      ASSERT_EQ(loaded->position(), saved.position());
      EXPECT_EQ(loaded->held_bytes(), saved.held_bytes());
      for (size_t step : {1, 68, 1}) {
        ASSERT_EQ(feed(*loaded, std::span(rest).first(step)), feed(saved, std::span(rest).first(step)))
            << "saved at " << length;
      }
    }
  });
}

}  // namespace
}  // namespace butter
