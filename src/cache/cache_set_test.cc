#include "cache/cache_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "cache/cache_testing.h"

namespace butter {
namespace {

using testing::HasSubstr;

struct Case {
  TestScheme scheme;
  Window window;
  const char* name;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

const Case kCases[] = {
    {TestScheme::kRaw, {0, 0}, "Raw"},
    {TestScheme::kRaw, {64, 0}, "RawWindow64"},
    {TestScheme::kRaw, {65, 4}, "RawWindow65Keep4"},
    {TestScheme::kRaw, {200, 100}, "RawWindow200Keep100"},
    {TestScheme::kRaw, {1, 0}, "RawWindow1"},
    {TestScheme::kStamps, {0, 0}, "Sealed"},
    {TestScheme::kStamps, {65, 4}, "SealedWindow65Keep4"},
    {TestScheme::kStamps, {200, 100}, "SealedWindow200Keep100"},
    {TestScheme::kStamps, {100, 0}, "SealedWindow100Keep0"},
    {TestScheme::kStampedKeys, {100, 4}, "SealedKeysWindow100Keep4"},
};

class CacheSetTest : public testing::TestWithParam<Case> {
 protected:
  TestSequence sequence() const { return make_sequence(small_model(), options(), pool_); }
  CacheOptions options() const {
    CacheOptions options;
    options.scheme = test_scheme(GetParam().scheme);
    options.window = GetParam().window;
    options.max_context = 100000;
    options.prefill_rows = 128;
    return options;
  }
  bool seals() const { return GetParam().scheme != TestScheme::kRaw; }

  // Sealed pages that a class holds at `position`, counted from the promise: full pages with a kept position
  // (but for those that pinned rows stand in for), and those that a query of the open page's positions may
  // see.
  std::set<int64_t> pages_to_hold(const Window& window, int64_t position) const {
    std::set<int64_t> pages;
    const int64_t page_start = position / kPageRows * kPageRows;
    for (int64_t k = 0; k < page_start; ++k) {
      bool live = window.none() || (k < window.keep && !(seals() && window.keep <= kPinnedRows));
      live = live || page_start - k < window.max_size - window.keep;
      if (live) pages.insert(page_of(k));
    }
    return pages;
  }

  int64_t bytes_to_hold(const CacheLayout& layout, int64_t position) const {
    int64_t bytes = 0;
    if (position == 0) return 0;
    for (const WindowClass& window_class : layout.classes) {
      bytes += static_cast<int64_t>(pages_to_hold(window_class.window, position).size()) *
               window_class.sealed.bytes;
      if (seals()) {
        bytes += window_class.raw.bytes + window_class.pinned.bytes;
      } else if (position % kPageRows != 0) {
        bytes += window_class.sealed.bytes;
      }
    }
    return bytes;
  }

  // Where truncate(n) must lead from `position`, from the rule in the header.
  int64_t place_to_reach(const CacheLayout& layout, int64_t position, int64_t n) const {
    if (n == position || page_of(n) == page_of(position)) return n;
    for (int64_t target = n / kPageRows * kPageRows; target > 0; target -= kPageRows) {
      bool reachable = true;
      for (const WindowClass& window_class : layout.classes) {
        const std::set<int64_t> held = pages_to_hold(window_class.window, position);
        for (int64_t k = 0; k < target; ++k) {
          const bool pinned = seals() && k < kPinnedRows;
          reachable &= pinned || !window_class.window.sees(target, k) || held.count(page_of(k)) == 1;
        }
      }
      if (reachable) return target;
    }
    return 0;
  }

  TestPool pool_;
};

INSTANTIATE_TEST_SUITE_P(Cases, CacheSetTest, testing::ValuesIn(kCases),
                         [](const auto& instance) { return std::string(instance.param.name); });

class WindowedCacheSetTest : public CacheSetTest {};

std::vector<Case> windowed_cases() {
  std::vector<Case> cases;
  for (const Case& c : kCases) {
    if (!c.window.none()) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, WindowedCacheSetTest, testing::ValuesIn(windowed_cases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(CacheSetTest, EveryVisibleRowIsReadWhateverTheSteps) {
  for (int64_t step_rows : {1, 5, 64, 128}) {
    TestSequence sequence = this->sequence();
    feed_many(sequence, 453, step_rows);
    EXPECT_EQ(sequence.caches.position(), 453);
    expect_intact(sequence);
    EXPECT_EQ(sequence.caches.held_bytes(), bytes_to_hold(sequence.caches.layout(), 453));
  }
}

TEST_P(CacheSetTest, StepsMayBeginAndEndAnywhere) {
  std::mt19937 random(7);
  TestSequence sequence = this->sequence();
  while (sequence.caches.position() < 2000) {
    std::vector<uint32_t> tokens(1 + random() % 200);
    std::iota(tokens.begin(), tokens.end(), static_cast<uint32_t>(random()));
    feed(sequence, tokens);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_EQ(sequence.caches.held_bytes(),
              bytes_to_hold(sequence.caches.layout(), sequence.caches.position()));
    ASSERT_EQ(pool_.pool->leased_bytes(), sequence.caches.held_bytes());
  }
}

TEST_P(CacheSetTest, AbortedStepLeavesThePast) {
  TestSequence sequence = this->sequence();
  std::mt19937 random(3);
  for (int64_t position : {0, 1, 63, 64, 65, 128, 200, 450}) {
    feed_many(sequence, position - sequence.caches.position(), 128);
    const int64_t held = sequence.caches.held_bytes();
    for (size_t rows : {1, 63, 64, 65, 200}) {
      ASSERT_TRUE(begin_and_write(sequence, std::vector<uint32_t>(rows, static_cast<uint32_t>(random()))));
      sequence.caches.abort_step(0);
      ASSERT_EQ(sequence.caches.position(), position);
      ASSERT_EQ(sequence.caches.held_bytes(), held);
      ASSERT_EQ(pool_.pool->leased_bytes(), held);
      expect_intact(sequence);
    }
  }
}

TEST_P(CacheSetTest, StepThatThePoolRefusesLeavesAllAsItWas) {
  // A budget of few slabs, with all but a few blocks taken away, so that a step fails at every one of its
  // leases.
  for (int64_t position : {0, 30, 64, 130}) {
    TestPool pool(16 * PagePool::kSlabBytes);
    TestSequence sequence = make_sequence(small_model(), options(), pool);
    feed_many(sequence, position, 128);
    std::set<int64_t> sizes;
    for (const WindowClass& c : sequence.caches.layout().classes) {
      sizes.insert({c.sealed.bytes, c.raw.bytes});
      if (c.pinned.bytes > 0) sizes.insert(c.pinned.bytes);
    }
    int refused = 0;
    for (int64_t scarce : sizes) {
      for (int left = 0; left < 4; ++left) {
        std::vector<PageHandle> taken;
        for (auto page = pool.pool->lease(scarce); page; page = pool.pool->lease(scarce))
          taken.push_back(*page);
        for (int i = 0; i < left; ++i, taken.pop_back()) ASSERT_TRUE(pool.pool->release(taken.back(), 0));
        const int64_t held = sequence.caches.held_bytes(), leased = pool.pool->leased_bytes();
        const Status status = sequence.caches.begin_step(200);
        if (status) {
          sequence.caches.abort_step(0);
        } else {
          ++refused;
          EXPECT_EQ(status.error().code(), StatusCode::kOutOfMemory);
        }
        EXPECT_EQ(sequence.caches.position(), position);
        EXPECT_EQ(sequence.caches.held_bytes(), held);
        EXPECT_EQ(pool.pool->leased_bytes(), leased);
        for (const PageHandle& page : taken) ASSERT_TRUE(pool.pool->release(page, 0));
        expect_intact(sequence);
      }
    }
    EXPECT_GT(refused, 0);
    feed_many(sequence, 300, 128);
    expect_intact(sequence);
  }
}

TEST_P(CacheSetTest, TruncatesToEveryPositionAndGoesOn) {
  for (int64_t position : {330, 384}) {
    TestSequence sequence = this->sequence();
    feed_many(sequence, position, 128);
    for (int64_t n = 0; n <= position; ++n) {
      TestSequence twin = fork(sequence);
      const int64_t reached = truncate(twin, n);
      ASSERT_EQ(reached, place_to_reach(twin.caches.layout(), position, n)) << n;
      expect_intact(twin);
      ASSERT_FALSE(HasFailure()) << "truncated to " << n;
      if (n % 7 != 0) continue;
      feed_many(twin, 150, 64, 99);
      expect_intact(twin);
      ASSERT_FALSE(HasFailure()) << "fed again after " << n;
    }
    expect_intact(sequence);
  }
}

TEST_P(CacheSetTest, TruncatingTwiceInTheOpenPageReachesBoth) {
  TestSequence sequence = this->sequence();
  feed_many(sequence, 250, 64);
  for (int64_t n : {249, 230, 200, 193, 192}) EXPECT_EQ(truncate(sequence, n), n);
  feed_many(sequence, 100, 7, 5);
  expect_intact(sequence);
}

TEST_P(CacheSetTest, TruncateOutOfRangeIsRefusedAndChangesNothing) {
  TestSequence sequence = this->sequence();
  feed_many(sequence, 100, 64);
  for (int64_t n : {int64_t{-1}, int64_t{101}, INT64_MIN, INT64_MAX}) {
    const auto reached = sequence.caches.truncate(n, 0);
    ASSERT_FALSE(reached);
    EXPECT_THAT(reached.error().message(), HasSubstr("the sequence has 100"));
  }
  EXPECT_EQ(sequence.caches.position(), 100);
  expect_intact(sequence);
}

TEST_P(CacheSetTest, TruncateToTheStartIsAnEmptySequence) {
  TestSequence sequence = this->sequence();
  feed_many(sequence, 300, 128);
  EXPECT_EQ(truncate(sequence, 0), 0);
  const int64_t blocks = seals() ? 1 : 0;  // pinned and open blocks stay for the next rows
  for (const WindowClass& c : sequence.caches.layout().classes) {
    EXPECT_LE(sequence.caches.held_bytes(), 2 * blocks * (c.raw.bytes + c.pinned.bytes) * 2);
  }
  feed_many(sequence, 300, 128, 2);
  expect_intact(sequence);
}

TEST_P(CacheSetTest, ForkSharesSealedPagesAndDisturbsNobody) {
  for (int64_t position : {0, 1, 63, 64, 100, 192, 333}) {
    TestSequence parent = this->sequence();
    feed_many(parent, position, 64);
    const int64_t before = pool_.pool->leased_bytes();
    TestSequence child = fork(parent);
    EXPECT_EQ(child.caches.held_bytes(), parent.caches.held_bytes());
    int64_t open_bytes = 0;
    for (const WindowClass& c : parent.caches.layout().classes) {
      if (seals() && position > 0) open_bytes += c.raw.bytes + c.pinned.bytes;
      if (!seals() && position % kPageRows != 0) open_bytes += c.sealed.bytes;
    }
    EXPECT_EQ(pool_.pool->leased_bytes() - before, open_bytes) << "only open rows are copied";
    feed_many(child, 170, 64, 2);
    expect_intact(parent);
    feed_many(parent, 90, 5, 3);
    expect_intact(child);
    expect_intact(parent);
    TestSequence grandchild = fork(child);
    truncate(grandchild, position / 2);
    feed_many(grandchild, 100, 64, 4);
    for (TestSequence* each : {&parent, &child, &grandchild}) expect_intact(*each);
    ASSERT_FALSE(HasFailure()) << "forked at " << position;
  }
  EXPECT_EQ(pool_.pool->leased_bytes(), 0) << "the sequences are gone";
}

TEST_P(CacheSetTest, ForkOutlivesItsParent) {
  std::optional<TestSequence> parent = sequence();
  feed_many(*parent, 200, 64);
  TestSequence child = fork(*parent);
  parent.reset();
  expect_intact(child);
  feed_many(child, 100, 64);
  expect_intact(child);
}

TEST_P(CacheSetTest, ForkThatThePoolRefusesLeavesNothingBehind) {
  TestPool pool(8 * PagePool::kSlabBytes);
  TestSequence parent = make_sequence(small_model(), options(), pool);
  feed_many(parent, 100, 64);
  std::vector<PageHandle> taken;
  for (const WindowClass& c : parent.caches.layout().classes) {
    for (int64_t bytes : {c.sealed.bytes, c.raw.bytes}) {
      for (auto page = pool.pool->lease(bytes); page; page = pool.pool->lease(bytes)) taken.push_back(*page);
    }
  }
  const int64_t leased = pool.pool->leased_bytes();
  EXPECT_FALSE(parent.caches.fork());
  EXPECT_EQ(pool.pool->leased_bytes(), leased);
  expect_intact(parent);
}

TEST_P(WindowedCacheSetTest, MemoryIsFlatOverAHundredWindows) {
  CacheModel model = small_model();
  model.window_classes[0] = Window{300, 0};
  TestSequence sequence = make_sequence(model, options(), pool_);
  const int64_t window = GetParam().window.max_size;
  feed_many(sequence, 2 * window + 600, 128);
  pool_.pool->reset_peak();
  feed_many(sequence, 256, 128);
  const int64_t held = sequence.caches.held_bytes(), peak = pool_.pool->peak_leased_bytes();
  while (sequence.caches.position() < 100 * std::min<int64_t>(window, 100)) feed_many(sequence, 256, 128);
  EXPECT_EQ(sequence.caches.held_bytes(), held);
  EXPECT_EQ(pool_.pool->peak_leased_bytes(), peak);
  expect_intact(sequence);
}

TEST_P(CacheSetTest, PagesThatGoStayUnusedUntilTheirStepIsDone) {
  *pool_.completed = 0;
  TestSequence sequence = this->sequence();
  uint64_t submission = 0;
  while (sequence.caches.position() < 700) {
    std::vector<uint32_t> tokens(50);
    std::iota(tokens.begin(), tokens.end(), static_cast<uint32_t>(submission));
    feed(sequence, tokens, ++submission);
  }
  const bool retires = true;  // the model's own window does
  const int64_t waiting = pool_.pool->pending_bytes();
  EXPECT_EQ(waiting > 0, retires);
  truncate(sequence, 130, submission);
  EXPECT_GT(pool_.pool->pending_bytes(), waiting);
  *pool_.completed = submission;
  ASSERT_TRUE(sequence.caches.begin_step(1));  // collects
  sequence.caches.abort_step(0);
  feed_many(sequence, 100, 64);
  EXPECT_EQ(pool_.pool->pending_bytes(), 0);
}

TEST_P(CacheSetTest, SequenceThatGoesAwayLeavesItsPagesToItsLastStep) {
  *pool_.completed = 4;
  {
    TestSequence sequence = this->sequence();
    feed(sequence, std::vector<uint32_t>(100, 1), 5);
  }
  EXPECT_EQ(pool_.pool->leased_bytes(), 0);
  EXPECT_GT(pool_.pool->pending_bytes(), 0) << "submission 5 may still read them";
}

TEST_P(CacheSetTest, InterleavedSequencesKeepTheirOwnRows) {
  std::mt19937 random(11);
  std::vector<TestSequence> sequences;
  for (int i = 0; i < 4; ++i) sequences.push_back(sequence());
  for (uint32_t round = 0; round < 120; ++round) {
    const size_t which = random() % sequences.size();
    TestSequence& chosen = sequences[which];
    switch (random() % 8) {
      case 0:
        truncate(chosen, chosen.caches.position() -
                             static_cast<int64_t>(random() % (chosen.caches.position() + 1)) / 2);
        break;
      case 1:
        sequences[random() % sequences.size()] = fork(chosen);
        break;
      default:
        feed_many(chosen, 1 + random() % 90, 1 + random() % 64, round);
    }
    expect_intact(sequences[random() % sequences.size()]);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  for (TestSequence& each : sequences) expect_intact(each);
  sequences.clear();
  EXPECT_EQ(pool_.pool->leased_bytes(), 0);
}

TEST_P(CacheSetTest, MovedSequenceGoesOnAndAssignmentReturnsPages) {
  TestSequence a = sequence();
  feed_many(a, 100, 64);
  const int64_t held = a.caches.held_bytes();
  TestSequence b = std::move(a);
  expect_intact(b);
  TestSequence c = sequence();
  feed_many(c, 200, 64);
  c = std::move(b);
  expect_intact(c);
  EXPECT_EQ(pool_.pool->leased_bytes(), held);
}

TEST_P(CacheSetTest, LayersAddUpToHeldBytes) {
  TestSequence sequence = this->sequence();
  for (int64_t position : {1, 64, 100, 333}) {
    feed_many(sequence, position - sequence.caches.position(), 128);
    const std::vector<LayerMemory> layers = sequence.caches.layer_caches();
    ASSERT_EQ(layers.size(), 5u);
    int64_t bytes = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(layers[i].layer, static_cast<int>(i));
      bytes += layers[i].bytes;
    }
    EXPECT_EQ(bytes, sequence.caches.held_bytes());
    EXPECT_EQ(layers[2].kv_heads, 0);
    EXPECT_EQ(layers[4].kv_heads, 3);
  }
}

TEST_P(CacheSetTest, RepeatedPagesOwnTheirBytes) {
  TestSequence sequence = this->sequence();
  feed_many(sequence, 192, 64);
  const Status filled = sequence.caches.repeat_pages_to(1024, 0);
  ASSERT_TRUE(filled) << filled.error().message();
  EXPECT_EQ(sequence.caches.position(), 1024);
  EXPECT_EQ(sequence.caches.held_bytes(), bytes_to_hold(sequence.caches.layout(), 1024));
  EXPECT_EQ(pool_.pool->leased_bytes(), sequence.caches.held_bytes());
  ASSERT_TRUE(sequence.caches.begin_step(70));
  sequence.caches.commit_step(0);
  EXPECT_EQ(sequence.caches.held_bytes(), bytes_to_hold(sequence.caches.layout(), 1094));
}

TEST_P(CacheSetTest, RepeatingIsRefusedOffPageBoundaries) {
  TestSequence sequence = this->sequence();
  EXPECT_FALSE(sequence.caches.repeat_pages_to(128, 0)) << "there is nothing to repeat";
  feed_many(sequence, 100, 64);
  EXPECT_FALSE(sequence.caches.repeat_pages_to(256, 0));
  feed_many(sequence, 28, 64);
  EXPECT_FALSE(sequence.caches.repeat_pages_to(200, 0));
  EXPECT_FALSE(sequence.caches.repeat_pages_to(64, 0));
  EXPECT_TRUE(sequence.caches.repeat_pages_to(128, 0));
  expect_intact(sequence);
}

TEST_P(CacheSetTest, RepeatingThatThePoolRefusesLeavesAUsableSequence) {
  TestPool pool(16 * PagePool::kSlabBytes);
  TestSequence sequence = make_sequence(small_model(), options(), pool);
  feed_many(sequence, 128, 64);
  std::vector<PageHandle> taken;
  const int64_t scarce = sequence.caches.layout().classes[1].sealed.bytes;
  for (auto page = pool.pool->lease(scarce); page; page = pool.pool->lease(scarce)) taken.push_back(*page);
  const Status filled = sequence.caches.repeat_pages_to(64 * 100, 0);
  if (filled) return;  // the window gave pages of its own back in time
  EXPECT_EQ(filled.error().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(sequence.caches.position() % kPageRows, 0);
  EXPECT_EQ(sequence.caches.held_bytes(),
            bytes_to_hold(sequence.caches.layout(), sequence.caches.position()));
  for (const PageHandle& page : taken) ASSERT_TRUE(pool.pool->release(page, 0));
  sequence.tokens.resize(static_cast<size_t>(sequence.caches.position()));
  ASSERT_TRUE(sequence.caches.begin_step(3));
  sequence.caches.commit_step(0);
}

}  // namespace
}  // namespace butter
