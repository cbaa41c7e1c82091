// Window arithmetic against an explicit list of what is seen.
#include "kernels/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kv_view.h"

namespace butter {
namespace {

const Window kWindows[] = {{}, {1, 0}, {64, 0}, {65, 4}, {100, 4}, {5, 4}, {300, 100}, {128, 64}, {1000, 3}};

// The definition in words: the first `keep` positions, and the last max_size - keep with the query's own.
std::vector<int64_t> seen_positions(const Window& window, int64_t p) {
  std::vector<int64_t> seen;
  for (int64_t k = 0; k <= p; ++k) {
    if (window.max_size == 0 || k < window.keep || p - k < window.max_size - window.keep) seen.push_back(k);
  }
  return seen;
}

TEST(Window, SeesTheFirstAndTheLastPositions) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 520; p += 7) {
      const std::vector<int64_t> seen = seen_positions(window, p);
      for (int64_t k = -1; k <= p + 70; ++k) {
        EXPECT_EQ(window.sees(p, k), std::binary_search(seen.begin(), seen.end(), k)) << p << " " << k;
      }
      if (!window.none()) {
        EXPECT_LE(seen.size(), static_cast<size_t>(window.max_size));
      }
    }
  }
}

TEST(Window, AQueryAlwaysSeesItself) {
  for (const Window& window : kWindows) {
    for (int64_t p : {0, 1, 63, 64, 1000000}) EXPECT_TRUE(window.sees(p, p));
  }
}

TEST(Window, PinnedPositionsSurviveTenWraps) {
  const Window window{100, 4};
  for (int64_t p = 0; p < 1000; ++p) {
    for (int64_t k = 0; k < std::min<int64_t>(4, p + 1); ++k) EXPECT_TRUE(window.sees(p, k));
  }
  EXPECT_FALSE(window.sees(1000, 4));
}

TEST(Window, VisibleRowsAreTheBitsOfSees) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 520; p += 5) {
      for (int64_t page = 0; page <= page_of(p) + 1; ++page) {
        const uint64_t bits = visible_rows(window, p, page);
        for (int64_t i = 0; i < kPageRows; ++i) {
          ASSERT_EQ((bits >> i & 1) != 0, window.sees(p, page * kPageRows + i))
              << p << " " << page << " " << i;
        }
      }
    }
  }
}

TEST(Window, VisiblePagesAreThoseWithARowInSight) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 520; ++p) {
      std::vector<int64_t> expected, pages;
      for (int64_t page = 0; page < page_of(p); ++page) {
        if (visible_rows(window, p, page) != 0) expected.push_back(page);
      }
      const VisiblePages visible(window, p);
      for (int64_t ordinal = 0; ordinal < visible.count(); ++ordinal) pages.push_back(visible.page(ordinal));
      ASSERT_EQ(pages, expected) << p << " window " << window.max_size << "/" << window.keep;
    }
  }
}

TEST(Window, TheSmallerOfTwoWins) {
  const Window model{512, 0}, user{100, 4}, large{1000, 4};
  EXPECT_EQ(combine_windows({}, {}), Window{});
  EXPECT_EQ(combine_windows(model, {}), model);
  EXPECT_EQ(combine_windows({}, user), user);
  EXPECT_EQ(combine_windows(model, user), user);
  EXPECT_EQ(combine_windows(model, large), model);
  EXPECT_EQ(combine_windows(model, Window{512, 4}), model);
}

}  // namespace
}  // namespace butter
