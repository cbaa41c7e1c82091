#include "cache/cache_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/cache_testing.h"
#include "kernels/kv_view.h"

namespace butter {
namespace {

using testing::HasSubstr;

// The mask as its sentence says it: the first keep positions and the last max_size - keep, the query's among
// them.
bool mask(const Window& window, int64_t p, int64_t k) {
  if (k > p) return false;
  return window.max_size == 0 || k < window.keep || p - k < window.max_size - window.keep;
}

const Window kWindows[] = {{0, 0},  {1, 0},   {2, 1},    {16, 0},    {64, 0},   {65, 0},
                           {65, 4}, {100, 4}, {128, 64}, {200, 100}, {300, 130}};

TEST(Window, SeesWhatTheMaskSays) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 400; ++p) {
      for (int64_t k = -1; k < p + 2; ++k)
        ASSERT_EQ(window.sees(p, k), k >= 0 && mask(window, p, k)) << p << " " << k;
    }
  }
}

TEST(Window, BitsOfAPageAreTheMask) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 400; p += 3) {
      for (int64_t page = 0; page <= page_of(p) + 1; ++page) {
        const uint64_t bits = visible_rows(window, p, page);
        for (int i = 0; i < kPageRows; ++i)
          ASSERT_EQ(bits >> i & 1, mask(window, p, page * kPageRows + i)) << p << " " << page;
      }
    }
  }
}

TEST(Window, VisiblePagesAreThoseWithABitBeforeTheQuerysOwn) {
  for (const Window& window : kWindows) {
    for (int64_t p = 0; p < 700; ++p) {
      std::vector<int64_t> expected, found;
      for (int64_t page = 0; page < page_of(p); ++page) {
        if (visible_rows(window, p, page) != 0) expected.push_back(page);
      }
      const VisiblePages pages(window, p);
      for (int64_t i = 0; i < pages.count(); ++i) found.push_back(pages.page(i));
      ASSERT_EQ(found, expected) << window.max_size << "/" << window.keep << " at " << p;
    }
  }
}

TEST(Window, SmallerOfModelsAndUsersHoldsAndKeepGoesWithTheUsers) {
  const Window none{}, model{128, 0}, smaller{100, 4}, equal{128, 4}, larger{200, 4};
  EXPECT_EQ(combine_windows(none, none), none);
  EXPECT_EQ(combine_windows(model, none), model);
  EXPECT_EQ(combine_windows(none, smaller), smaller);
  EXPECT_EQ(combine_windows(model, smaller), smaller);
  EXPECT_EQ(combine_windows(model, equal), model);
  EXPECT_EQ(combine_windows(model, larger), model);
}

TEST(Window, FirstLivePageIsTheOldestThatAnyQuerySinceThePageBeganSees) {
  for (const Window& window : kWindows) {
    for (int64_t position = 0; position < 700; ++position) {
      int64_t oldest = page_of(position);
      for (int64_t p = page_of(position) * kPageRows; p <= position; ++p) {
        for (int64_t k = p; k >= 0 && (window.none() || p - k < window.max_size - window.keep); --k) {
          oldest = std::min(oldest, page_of(k));
        }
      }
      ASSERT_EQ(first_live_page(window, position), oldest)
          << window.max_size << "/" << window.keep << " at " << position;
    }
  }
}

TEST(Window, KeptPagesHoldTheKeptPositionsUnlessThePinnedRowsDo) {
  EXPECT_EQ(kept_pages({0, 0}, false), 0);
  EXPECT_EQ(kept_pages({100, 0}, false), 0);
  EXPECT_EQ(kept_pages({100, 4}, false), 1);
  EXPECT_EQ(kept_pages({100, 4}, true), 0);
  EXPECT_EQ(kept_pages({100, 5}, true), 1);
  EXPECT_EQ(kept_pages({200, 64}, true), 1);
  EXPECT_EQ(kept_pages({200, 65}, true), 2);
}

TEST(CacheLayout, LayersThatShareAWindowShareABlockAndNothingOverlaps) {
  for (TestScheme scheme : {TestScheme::kRaw, TestScheme::kStamps, TestScheme::kStampedKeys}) {
    CacheOptions options;
    options.scheme = test_scheme(scheme);
    options.max_context = 100;
    const auto layout = make_cache_layout(small_model(), options);
    ASSERT_TRUE(layout);
    ASSERT_EQ((*layout)->classes.size(), 2u);
    for (const WindowClass& window_class : (*layout)->classes) {
      ASSERT_EQ(window_class.layers.size(), 2u);
      int64_t end = 0, layers_bytes = 0;
      for (size_t i = 0; i < 2; ++i) {
        const KvLayerShape& shape = window_class.layers[i];
        const LayerLayout& layer = window_class.sealed.layers[i];
        EXPECT_EQ(layer.heads.front().key % Buffer::kAlignment, 0);
        EXPECT_EQ(layer.begin, layer.heads.front().key);
        EXPECT_EQ(layer.begin, window_class.sealed.side_by_side * layers_bytes);
        end = layer.begin;
        for (const RecordOffsets& head : layer.heads) {
          EXPECT_GE(head.key, end);
          EXPECT_EQ(head.value,
                    head.key + options.scheme.key->record_bytes(shape.row_shape(Side::kKey, options.scheme)));
          end =
              head.value + options.scheme.value->record_bytes(shape.row_shape(Side::kValue, options.scheme));
        }
        if (options.scheme.seals()) {
          end = round_up(end, int64_t{sizeof(RecordTail)});
          for (const RecordOffsets& head : layer.heads) {
            EXPECT_EQ(head.tail, end);
            end += int64_t{sizeof(RecordTail)};
          }
        }
        EXPECT_EQ(layer.bytes, round_up(end - layer.begin, Buffer::kAlignment));
        layers_bytes += layer.bytes;
      }
      EXPECT_EQ(window_class.sealed.bytes, layers_bytes);
      EXPECT_EQ(window_class.pinned.bytes > 0, scheme != TestScheme::kRaw);
    }
  }
}

TEST(CacheLayout, OptionsThatCannotBeServedAreRefusedWithBothSides) {
  const auto refusal = [](int64_t max_context, Window window) {
    CacheOptions options;
    options.scheme = test_scheme(TestScheme::kRaw);
    options.max_context = max_context;
    options.window = window;
    const auto layout = make_cache_layout(small_model(), options);
    return layout ? std::string("accepted") : layout.error().message();
  };
  EXPECT_THAT(refusal(0, {}), HasSubstr("--max-context is 0"));
  EXPECT_THAT(refusal(-7, {}), HasSubstr("--max-context is -7"));
  EXPECT_THAT(refusal(100, {-1, 0}), HasSubstr("--kv-window-size is -1"));
  EXPECT_THAT(refusal(100, {10, -1}), HasSubstr("--kv-window-keep -1"));
  EXPECT_THAT(refusal(100, {4, 4}),
              testing::AllOf(HasSubstr("--kv-window-size is 4"), HasSubstr("which is 4")));
  EXPECT_THAT(refusal(100, {3, 4}), HasSubstr("--kv-window-size is 3"));
  EXPECT_THAT(refusal(INT64_MAX, {}), HasSubstr("--max-context is 9223372036854775807"));
  EXPECT_THAT(refusal(100, {INT64_MAX, 0}), HasSubstr("--kv-window-size is 9223372036854775807"));
  EXPECT_EQ(refusal(100, {5, 4}), "accepted");
}

TEST(CacheLayout, HeadWidthThatAFormatCannotTakeIsNamed) {
  RowFormat narrow = stamp_format();
  narrow.name = "narrow";
  narrow.takes_dim = [](int dim) { return dim == 16; };
  CacheOptions options;
  options.scheme = {&narrow, &raw_format(), DType::kF16};
  options.max_context = 100;
  const auto layout = make_cache_layout(small_model(), options);
  ASSERT_FALSE(layout);
  EXPECT_EQ(layout.error().message(),
            "the cache format narrow takes head widths 16, ...; layer 1 of this model has 12");
}

}  // namespace
}  // namespace butter
