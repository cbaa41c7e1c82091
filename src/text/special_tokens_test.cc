#include "text/special_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace butter {
namespace {

using Rules = SpecialTokenFinder::Rules;

// "begin-end:id begin-end:id" of all matches, or "none".
std::string matches(const SpecialTokens& tokens, std::string_view text, const Rules& rules = {}) {
  SpecialTokenFinder finder(tokens, text, rules);
  std::string found;
  while (const auto match = finder.next()) {
    found += fmt::format("{}{}-{}:{}", found.empty() ? "" : " ", match->begin, match->end, match->id);
  }
  return found.empty() ? "none" : found;
}

SpecialTokens tokens() {
  return SpecialTokens(
      {{"<|a|>", 1, false}, {"<|a|>b", 2, false}, {"<|", 3, true}, {"\xFFz", 4, false}, {"end", 5, true}});
}

TEST(SpecialTokens, LeftmostThenLongest) {
  EXPECT_EQ(matches(tokens(), "x<|a|>bc"), "1-7:2");
  EXPECT_EQ(matches(tokens(), "x<|a|>c"), "1-6:1");
  EXPECT_EQ(matches(tokens(), "x<|a|"), "1-3:3");
  EXPECT_EQ(matches(tokens(), "end<|a|>"), "0-3:5 3-8:1");
  EXPECT_EQ(matches(tokens(), "<<en\xFF\xFFz"), "5-7:4");
  EXPECT_EQ(matches(tokens(), "<en"), "none");
  EXPECT_EQ(matches(tokens(), ""), "none");
  EXPECT_EQ(matches(SpecialTokens(), "<|a|>"), "none");
}

TEST(SpecialTokens, UnaskedAControlTokenIsTextAsAWhole) {
  const Rules rules = {.only_always = true};
  EXPECT_EQ(matches(tokens(), "<|a|>", rules), "none");
  EXPECT_EQ(matches(tokens(), "<|a|<|a|>b<|", rules), "0-2:3 10-12:3");
  EXPECT_EQ(matches(tokens(), "\xFFz end", rules), "3-6:5");
}

TEST(SpecialTokens, ATokenThatTouchesContentIsNotThere) {
  const std::string_view text = "<|a|> <|a|>b";
  const auto rules = [](const std::vector<TextSpan>& spans) { return Rules{.content = spans}; };
  const std::vector<TextSpan> first = {{0, 5}}, edge = {{4, 6}}, beside = {{5, 6}}, last_byte = {{11, 12}};
  EXPECT_EQ(matches(tokens(), text, rules(first)), "0-2:3 6-12:2");
  EXPECT_EQ(matches(tokens(), text, rules(edge)), "0-2:3 6-12:2");
  EXPECT_EQ(matches(tokens(), text, rules(beside)), "0-5:1 6-12:2");
  EXPECT_EQ(matches(tokens(), text, rules(last_byte)), "0-5:1 6-11:1");
  EXPECT_EQ(matches(tokens(), text.substr(6), Rules{.content = last_byte, .origin = 6}), "0-5:1");
}

TEST(SpecialTokens, TakeTheWhiteSpaceBesideThem) {
  const SpecialTokens left({{.text = "<l>", .id = 1, .takes_space_before = true}});
  const SpecialTokens right({{.text = "<r>", .id = 2, .takes_space_behind = true}});
  const SpecialTokens both({{.text = "<l>", .id = 1, .takes_space_before = true},
                            {.text = "<r>", .id = 2, .takes_space_behind = true}});
  EXPECT_EQ(matches(left, "a \u3000\n<l> b"), "1-9:1");
  EXPECT_EQ(matches(right, "a <r>\t\u0085 b"), "2-9:2");
  EXPECT_EQ(matches(both, " <r>  <l> "), "1-6:2 6-9:1");
  EXPECT_EQ(matches(left, "\xC2\xE3\x80<l>"), "3-6:1") << "what is no character is no space";
}

TEST(SpecialTokens, AWholeWordHasNoLetterBesideIt) {
  const SpecialTokens word({{.text = "ok", .id = 1, .whole_word = true}, {.text = "okay", .id = 2}});
  EXPECT_EQ(matches(word, "ok"), "0-2:1");
  EXPECT_EQ(matches(word, "xok ok_ ok\u0301 (ok)\xFFok"), "14-16:1 18-20:1");
  EXPECT_EQ(matches(word, "xokay"), "1-5:2");
}

// Each of these looked at again and again would take minutes.
TEST(SpecialTokens, WhiteSpaceIsReadOnce) {
  const SpecialTokens spaces(
      {{.text = " ", .id = 1, .takes_space_before = true, .takes_space_behind = true}});
  const std::string text(200'000, ' ');
  SpecialTokenFinder finder(spaces, text, {});
  size_t found = 0;
  while (finder.next()) ++found;
  EXPECT_EQ(found, text.size());
}

}  // namespace
}  // namespace butter
