#include "cache/page_table.h"

#include <gtest/gtest.h>

#include <set>

namespace butter {
namespace {

HeldPage page_number(uint64_t number) {
  return {{static_cast<uint32_t>(number), number + 1}, nullptr};
}

PageTable table_of(int64_t pages, int64_t kept) {
  PageTable table(kept);
  for (int64_t page = 0; page < pages; ++page) table.append(page_number(static_cast<uint64_t>(page)));
  return table;
}

// The pages that stand in the two runs, by what was appended under each number.
std::set<int64_t> pages_of(const PageTable& table) {
  std::set<int64_t> pages;
  for (size_t i = 0; i < table.kept().size(); ++i) {
    EXPECT_EQ(table.kept()[i].handle.index, i);
    pages.insert(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < table.recent().size(); ++i) {
    const int64_t number = table.recent_begin() + static_cast<int64_t>(i);
    EXPECT_EQ(table.recent()[i].handle.index, number);
    pages.insert(number);
  }
  for (int64_t page = -1; page <= table.end(); ++page) EXPECT_EQ(table.holds(page), pages.count(page) == 1);
  EXPECT_EQ(table.pages_held(), static_cast<int64_t>(pages.size()));
  return pages;
}

TEST(PageTable, KeptPagesStayWhateverTheWindowDoes) {
  PageTable table = table_of(6, 2);
  HeldPage retired;
  std::vector<uint32_t> order;
  while (table.retire_below(5, &retired)) order.push_back(retired.handle.index);
  EXPECT_EQ(order, (std::vector<uint32_t>{2, 3, 4}));
  EXPECT_EQ(pages_of(table), (std::set<int64_t>{0, 1, 5}));
  EXPECT_EQ(table.end(), 6);
  EXPECT_EQ(table.recent_begin(), 5);
}

TEST(PageTable, AllRecentPagesMayGo) {
  PageTable table = table_of(4, 1);
  HeldPage retired;
  while (table.retire_below(100, &retired)) {
  }
  EXPECT_EQ(pages_of(table), (std::set<int64_t>{0}));
  EXPECT_EQ(table.end(), 4);
  table.append(page_number(4));
  EXPECT_EQ(pages_of(table), (std::set<int64_t>{0, 4}));
}

TEST(PageTable, CutsFromTheNewestAndAcrossTheGap) {
  for (int64_t kept = 0; kept <= 3; ++kept) {
    for (int64_t first_live = 0; first_live <= 7; ++first_live) {
      for (int64_t cut_at = 0; cut_at <= 8; ++cut_at) {
        PageTable table = table_of(7, kept);
        HeldPage page;
        while (table.retire_below(first_live, &page)) {
        }
        std::set<int64_t> expected = pages_of(table);
        while (table.cut_from(cut_at, &page)) {
          ASSERT_EQ(page.handle.index, *expected.rbegin());
          expected.erase(std::prev(expected.end()));
        }
        EXPECT_EQ(pages_of(table), expected);
        EXPECT_TRUE(expected.empty() || *expected.rbegin() < cut_at);
        if (cut_at >= 7) {
          EXPECT_EQ(table.end(), 7);
        }
        // What is cut below the gap can be written again.
        if (cut_at <= kept) {
          EXPECT_EQ(table.end(), cut_at);
        }
      }
    }
  }
}

TEST(PageTable, PagesCutBelowTheKeptOnesAreKeptWhenTheyComeAgain) {
  PageTable table = table_of(5, 2);
  HeldPage page;
  while (table.cut_from(1, &page)) {
  }
  EXPECT_EQ(table.end(), 1);
  for (uint64_t number = 1; number < 4; ++number) table.append(page_number(number));
  EXPECT_EQ(table.kept_end(), 2);
  EXPECT_EQ(pages_of(table), (std::set<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace butter
