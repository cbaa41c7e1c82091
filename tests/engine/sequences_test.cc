// Sequences: what one gives does not depend on the others, on how it was cut into steps, or on where it came
// from.
//
// Every promise is tried on both devices, with raw rows, with the test-only format that seals, and with some
// of the compressed ones; tests/matrix has them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/rotated_testing.h"
#include "support/fixture.h"
#include "support/run_engine.h"
#include "support/sanitized.h"

namespace butter {
namespace {

struct Case {
  const char* device;
  const char* kv_cache;
  int64_t window = 0;
  int64_t keep = 0;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.device << " " << c.kv_cache << " window " << c.window << "/" << c.keep;
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases = {{"reference", "rotated", 80, 4},
                             {"cpu", "raw", 80, 4},
                             {"cpu", "rotated"},
                             {"reference", "raw"},
                             {"cpu", "k=rotated,v=raw"},
                             {"cpu", "raw"},
                             {"reference", "rotated"},
                             {"reference", "raw", 80, 4},
                             {"cpu", "rotated", 80, 4},
                             {"cpu", "k=raw,v=rotated", 100, 70},
                             {"reference", "aura3v2", 80, 4},
                             {"cpu", "aura3v2", 80, 4},
                             {"cpu", "k=affine8,v=aura4:plain"},
                             {"cpu", "affine4", 100, 70}};
  if (kSanitized) cases.resize(3);
  return cases;
}

class SequencesTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { rotated_format(); }

  SequencesTest() {
    sequence_.kv_cache = GetParam().kv_cache;
    sequence_.kv_window_size = GetParam().window;
    sequence_.kv_window_keep = GetParam().keep;
    engine_ = load_engine(tiny_options(test_data("fixtures/llama"), GetParam().device));
  }

  bool on_reference() const { return std::string(GetParam().device) == "reference"; }
  // Between decode and prefill kernels a row may fall to another code that fits it as well: how far that
  // moves an answer depends on the model. tests/matrix holds each layer's attention to a bound instead.
  bool lossy() const {
    const std::string kv_cache = GetParam().kv_cache;
    return kv_cache.find("aura") != std::string::npos || kv_cache.find("affine") != std::string::npos;
  }
  Sequence sequence() { return make_sequence(*engine_, sequence_); }
  std::vector<float> feed(Sequence& sequence, std::span<const int32_t> ids) {
    return feed_last(*engine_, sequence, ids);
  }

  // A sequence that was fed `ids` in steps of these sizes.
  Sequence fed(const std::vector<int32_t>& ids, std::initializer_list<size_t> steps) {
    Sequence made = sequence();
    size_t at = 0;
    for (size_t step : steps) {
      feed(made, std::span(ids).subspan(at, step));
      at += step;
    }
    return made;
  }

  SequenceOptions sequence_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Cases, SequencesTest, testing::ValuesIn(all_cases()));

TEST_P(SequencesTest, InterleavedStepsGiveWhatEachGivesAlone) {
  struct Stream {
    std::vector<int32_t> ids;
    std::vector<size_t> steps;
    Logits alone, interleaved;
    size_t at = 0;
  };
  std::vector<Stream> streams = {{random_ids(150, 1), {50, 1, 1, 13, 64, 1, 20}, {}, {}},
                                 {random_ids(97, 2), {1, 1, 1, 60, 1, 1, 32}, {}, {}},
                                 {random_ids(140, 3), {128, 1, 1, 1, 1, 7, 1}, {}, {}}};
  for (Stream& stream : streams) {
    Sequence alone = sequence();
    size_t at = 0;
    for (size_t step : stream.steps) {
      stream.alone.push_back(feed(alone, std::span(stream.ids).subspan(at, step)));
      at += step;
    }
  }
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < streams.size(); ++i) sequences.push_back(sequence());
  for (size_t round = 0; round < streams[0].steps.size(); ++round) {
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream& stream = streams[i];
      stream.interleaved.push_back(
          feed(sequences[i], std::span(stream.ids).subspan(stream.at, stream.steps[round])));
      stream.at += stream.steps[round];
    }
  }
  for (const Stream& stream : streams) EXPECT_EQ(stream.interleaved, stream.alone);
}

TEST_P(SequencesTest, BatchGivesWhatEachGivesAlone) {
  const size_t lengths[] = {61, 126, 5};
  std::vector<Sequence> alone, batched;
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> prompt = random_ids(lengths[i], static_cast<uint32_t>(i));
    alone.push_back(sequence());
    batched.push_back(sequence());
    feed(alone.back(), prompt);
    feed(batched.back(), prompt);
  }
  // Rows of each sequence, round by round: they cross page boundaries at different times.
  const size_t rows[][3] = {{1, 1, 1}, {3, 1, 2}, {5, 7, 3}, {1, 13, 1}, {1, 1, 1}};
  uint32_t seed = 100;
  for (const auto& round : rows) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<BatchItem> items;
    for (size_t i = 0; i < 3; ++i) ids.push_back(random_ids(round[i], ++seed));
    for (size_t i = 0; i < 3; ++i) items.push_back({&batched[i], ids[i]});
    const auto logits = engine_->forward_batch(items);
    ASSERT_TRUE(logits) << logits.error().message();
    const std::vector<float> together(logits->begin(), logits->end());
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<float> row(together.begin() + static_cast<std::ptrdiff_t>(256 * i),
                                   together.begin() + static_cast<std::ptrdiff_t>(256 * (i + 1)));
      EXPECT_EQ(row, feed(alone[i], ids[i])) << "sequence " << i;
    }
  }
}

TEST_P(SequencesTest, BatchOfMixedSchemesAndWindowsGivesWhatEachGivesAlone) {
  const SequenceOptions kinds[] = {{"raw", 0, 4, 0},
                                   {"rotated", 0, 4, 0},
                                   {"k=rotated,v=raw", 70, 4, 0},
                                   {"raw", 90, 10, 0},
                                   {"aura3v2", 80, 4, 0}};
  std::vector<Sequence> alone, batched;
  for (const SequenceOptions& kind : kinds) {
    alone.push_back(make_sequence(*engine_, kind));
    batched.push_back(make_sequence(*engine_, kind));
    feed(alone.back(), random_ids(120, 9));
    feed(batched.back(), random_ids(120, 9));
  }
  for (uint32_t round = 0; round < 6; ++round) {
    const std::vector<int32_t> ids = random_ids(3, round);
    std::vector<BatchItem> items;
    for (Sequence& each : batched) items.push_back({&each, ids});
    const auto logits = engine_->forward_batch(items);
    ASSERT_TRUE(logits) << logits.error().message();
    const std::vector<float> together(logits->begin(), logits->end());
    for (size_t i = 0; i < std::size(kinds); ++i) {
      const std::vector<float> own = feed(alone[i], ids);
      EXPECT_EQ(max_difference(std::span(together).subspan(256 * i, 256), own), 0) << kinds[i].kv_cache;
    }
  }
}

TEST_P(SequencesTest, ForksDivergeWithoutDisturbingAnyone) {
  for (size_t at : {1, 64, 100}) {
    const std::vector<int32_t> past = random_ids(at, 4), left = random_ids(70, 5), right = random_ids(70, 6);
    const auto fresh = [&](const std::vector<int32_t>& future) {
      Sequence made = fed(past, {at});
      return std::vector{feed(made, future), feed(made, random_ids(1, 8))};
    };
    Sequence parent = fed(past, {at});
    auto child = parent.fork();
    ASSERT_TRUE(child) << child.error().message();
    EXPECT_EQ(child->position(), parent.position());
    std::vector<std::vector<float>> of_parent, of_child;
    of_child.push_back(feed(*child, right));
    of_parent.push_back(feed(parent, left));
    of_parent.push_back(feed(parent, random_ids(1, 8)));
    of_child.push_back(feed(*child, random_ids(1, 8)));
    EXPECT_EQ(of_parent, fresh(left)) << "forked at " << at;
    EXPECT_EQ(of_child, fresh(right)) << "forked at " << at;
  }
}

TEST_P(SequencesTest, TruncatedAndFedAgainIsAFreshRun) {
  const std::vector<int32_t> first = random_ids(200, 10);
  for (int64_t n : {199, 192, 130, 64, 5}) {
    Sequence again = fed(first, {200});
    const auto reached = again.truncate(n);
    ASSERT_TRUE(reached) << reached.error().message();
    ASSERT_LE(*reached, n);
    EXPECT_EQ(again.position(), *reached);
    if (n >= 192) {
      EXPECT_EQ(*reached, n);
    }
    std::vector<int32_t> second(first.begin(), first.begin() + *reached);
    const std::vector<int32_t> rest = random_ids(static_cast<size_t>(230 - *reached), 11);
    second.insert(second.end(), rest.begin(), rest.end());
    const std::vector<float> logits = feed(again, rest);
    if (on_reference()) {
      Sequence fresh = fed(second, {});
      EXPECT_EQ(logits, feed(fresh, second)) << "truncated to " << n;
    } else if (!lossy()) {
      // The same kernels: the steps that the first run and the second had.
      Sequence fresh = fed(second, {});
      if (*reached > 0) feed(fresh, std::span(second).first(static_cast<size_t>(*reached)));
      EXPECT_LE(max_difference(logits, feed(fresh, rest)), 2e-1f) << "truncated to " << n;
    }
  }
}

TEST_P(SequencesTest, TruncateRefusesWhatIsAheadAndChangesNothing) {
  Sequence sequence = fed(random_ids(100, 1), {100});
  EXPECT_FALSE(sequence.truncate(101));
  EXPECT_FALSE(sequence.truncate(-1));
  EXPECT_EQ(sequence.position(), 100);
  Sequence fresh = fed(random_ids(100, 1), {100});
  EXPECT_EQ(feed(sequence, random_ids(1, 2)), feed(fresh, random_ids(1, 2)));
}

TEST_P(SequencesTest, RotatedRowsAreRawRowsWithinRounding) {
  if (std::string(GetParam().kv_cache) == "raw" || lossy()) return;
  SequenceOptions raw_options = sequence_;
  raw_options.kv_cache = "raw";
  Sequence sealed = sequence(), raw = make_sequence(*engine_, raw_options);
  // Rows are the same; products are summed in another basis. bf16 activations may turn that into a step.
  const float bound = on_reference() ? 1e-3f : 1e-1f;
  std::mt19937 random(21);
  for (uint32_t round = 0; round < 24; ++round) {
    const std::vector<int32_t> ids = random_ids(1 + random() % 90, round);
    if (raw.position() + 100 > 500) break;
    EXPECT_LE(max_difference(feed(sealed, ids), feed(raw, ids)), bound) << "position " << raw.position();
    if (round % 5 == 3) {
      const int64_t n = raw.position() - static_cast<int64_t>(random() % 80) % raw.position();
      const int64_t reached = *sealed.truncate(n);
      ASSERT_EQ(*raw.truncate(reached), reached) << "from " << raw.position() << " to " << n;
    }
    if (round % 7 == 4) {
      sealed = std::move(*sealed.fork());
      raw = std::move(*raw.fork());
    }
  }
}

TEST_P(SequencesTest, ThreadsDoNotChangeABit) {
  if (on_reference()) return;
  const auto three = load_engine(tiny_options(test_data("fixtures/llama"), "cpu", 3));
  Sequence one = sequence(), other = make_sequence(*three, sequence_);
  for (size_t step : {130, 1, 1, 7, 64, 15, 16, 1}) {
    const std::vector<int32_t> ids = random_ids(step, static_cast<uint32_t>(step));
    EXPECT_EQ(feed(one, ids), feed_last(*three, other, ids)) << "step of " << step;
  }
}

TEST_P(SequencesTest, PromptCutsDoNotChangeWhatIsSeen) {
  const std::vector<int32_t> ids = random_ids(208, 77);
  Sequence whole = sequence();
  const Logits expected = feed_all(*engine_, whole, ids);
  for (size_t chunk : {5, 63, 64, 65, 200}) {
    Sequence cut = sequence();
    const Logits logits = feed_all(*engine_, cut, ids, chunk);
    if (on_reference()) {
      EXPECT_EQ(logits, expected) << "chunks of " << chunk;
    } else if (!lossy()) {
      EXPECT_LE(max_difference(logits, expected), 2e-1f) << "chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace butter
