#include "checkpoint/printable.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

TEST(Printable, ShowsTextThatNobodyVouchesFor) {
  EXPECT_EQ(printable("blk.0 é ☃"), "blk.0 é ☃");
  EXPECT_EQ(printable(std::string_view("a\0\n\x1b[\x7f", 6)), "a\\x00\\x0a\\x1b[\\x7f");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Printable, KnowsUtf8) {
  EXPECT_TRUE(valid_utf8("a\xc3\xa9\xe2\x98\x83\xf0\x9f\xa7\x88"));
  for (const char* wrong : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                            "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x98"}) {
    EXPECT_FALSE(valid_utf8(wrong)) << printable(wrong);
  }
}

}  // namespace
}  // namespace butter
