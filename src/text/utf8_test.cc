#include "text/utf8.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

std::string replaced(std::string_view bytes) {
  std::string out;
  append_replacing_malformed(bytes, &out);
  return out;
}

TEST(Utf8, DecodesWhatItAppends) {
  for (const char32_t c : {0x0u, 0x41u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string bytes;
    append_utf8(c, &bytes);
    EXPECT_EQ(decode_utf8(bytes), c);
  }
}

TEST(Utf8, EveryScalarValueIsOneCharacter) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    append_utf8(c, &bytes);
    const Utf8Unit unit = first_utf8_unit(bytes);
    ASSERT_EQ(unit.state, Utf8State::kWellFormed) << static_cast<uint32_t>(c);
    ASSERT_EQ(unit.bytes, bytes.size());
    // Cut short anywhere, it may still become one.
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Unit part = first_utf8_unit(std::string_view(bytes).substr(0, cut));
      ASSERT_EQ(part.state, Utf8State::kIncomplete);
      ASSERT_EQ(part.bytes, cut);
    }
  }
}

TEST(Utf8, WhatNoCharacterBeginsWithIsMalformed) {
  for (const std::string_view bytes : {"\x80", "\xBF", "\xC0", "\xC1\x80", "\xF5", "\xFF", "\xE0\x9F",
                                       "\xED\xA0\x80", "\xF0\x8F", "\xF4\x90", "\xC3(", "\xE2\x82("}) {
    EXPECT_EQ(first_utf8_unit(bytes).state, Utf8State::kMalformed)
        << static_cast<int>(static_cast<uint8_t>(bytes[0]));
  }
}

// Each line as Python gives it: bytes.decode("utf-8", "replace").
TEST(Utf8, MalformedPartsAreReplacedAsPythonDoes) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replaced("abc"), "abc");
  EXPECT_EQ(replaced("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replaced("\xE2\x82z"), r + "z");
  EXPECT_EQ(replaced("\xE2\x82"), r);
  EXPECT_EQ(replaced("\xF0\x9F\x98"), r);
  EXPECT_EQ(replaced("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replaced("\xC0\xAF"), r + r);
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replaced("\xF0\x9F\xF0\x9F\x98\x80"), r + "\xF0\x9F\x98\x80");
}

TEST(Utf8, WellFormedPrefixEndsBeforeTheFirstBadByte) {
  EXPECT_EQ(well_formed_utf8_bytes(""), 0u);
  EXPECT_EQ(well_formed_utf8_bytes("0123456789abcdef"), 16u);
  EXPECT_EQ(well_formed_utf8_bytes("0123456789abcd\xC3"), 14u);
  EXPECT_EQ(well_formed_utf8_bytes("0123456\xC3\xA9\xFF"), 9u);
}

}  // namespace
}  // namespace butter
