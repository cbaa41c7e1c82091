#include "text/special_tokens.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

// "begin-end:id" of the first match, or "none".
std::string first_match(const SpecialTokens& tokens, std::string_view text, size_t from = 0,
                        const SpecialTokens::Rules& rules = {}) {
  const auto match = tokens.find(text, from, rules);
  if (!match) return "none";
  return std::to_string(match->begin) + "-" + std::to_string(match->end) + ":" + std::to_string(match->id);
}

SpecialTokens tokens() {
  return SpecialTokens(
      {{"<|a|>", 1, false}, {"<|a|>b", 2, false}, {"<|", 3, true}, {"\xFFz", 4, false}, {"end", 5, true}});
}

TEST(SpecialTokens, LeftmostThenLongest) {
  EXPECT_EQ(first_match(tokens(), "x<|a|>bc"), "1-7:2");
  EXPECT_EQ(first_match(tokens(), "x<|a|>c"), "1-6:1");
  EXPECT_EQ(first_match(tokens(), "x<|a|"), "1-3:3");
  EXPECT_EQ(first_match(tokens(), "end<|a|>"), "0-3:5");
  EXPECT_EQ(first_match(tokens(), "end<|a|>", 1), "3-8:1");
  EXPECT_EQ(first_match(tokens(), "<<en\xFF\xFFz"), "5-7:4");
  EXPECT_EQ(first_match(tokens(), "<en"), "none");
  EXPECT_EQ(first_match(tokens(), ""), "none");
  EXPECT_EQ(first_match(SpecialTokens(), "<|a|>"), "none");
}

TEST(SpecialTokens, OnlyUserDefinedOnesAreMatchedUnasked) {
  const SpecialTokens::Rules rules = {true, nullptr, nullptr};
  EXPECT_EQ(first_match(tokens(), "<|a|>", 0, rules), "0-2:3");
  EXPECT_EQ(first_match(tokens(), "\xFFz end", 0, rules), "3-6:5");
}

TEST(SpecialTokens, ATokenThatTouchesContentIsText) {
  const std::string_view text = "<|a|> <|a|>b";
  const auto rules = [](const std::vector<TextSpan>& spans) {
    return SpecialTokens::Rules{false, spans.data(), spans.data() + spans.size()};
  };
  const std::vector<TextSpan> first = {{0, 5}}, edge = {{4, 6}}, beside = {{5, 6}}, last_byte = {{11, 12}};
  EXPECT_EQ(first_match(tokens(), text, 0, rules(first)), "0-2:3");
  EXPECT_EQ(first_match(tokens(), text, 2, rules(first)), "6-12:2");
  EXPECT_EQ(first_match(tokens(), text, 0, rules(edge)), "0-2:3");
  EXPECT_EQ(first_match(tokens(), text, 0, rules(beside)), "0-5:1");
  EXPECT_EQ(first_match(tokens(), text, 6, rules(last_byte)), "6-11:1");
}

TEST(SpecialTokens, FoundByText) {
  EXPECT_EQ(tokens().id_of("<|a|>"), 1);
  EXPECT_EQ(tokens().id_of("<|a"), std::nullopt);
  EXPECT_EQ(tokens().id_of(""), std::nullopt);
}

}  // namespace
}  // namespace butter
