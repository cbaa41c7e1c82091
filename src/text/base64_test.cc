#include "text/base64.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

TEST(Base64, GivesTheBytes) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("/+8A"), std::string("\xFF\xEF\0", 3));
}

TEST(Base64, WhatIsNoneIsNothing) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z*==", "====", "Zm 8", "=Zg="})
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace butter
