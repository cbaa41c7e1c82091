#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/regex_pattern.h"
#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace butter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Words words_of(std::string_view name, std::string_view text) {
  return words_of(PreTokenizer::create(name).value(), text);
}

std::string utf8_of(char32_t code_point) {
  std::string bytes;
  append_utf8(code_point, &bytes);
  return bytes;
}

TEST(PreTokenizer, Gpt2CutsWordsWithTheSpaceBefore) {
  EXPECT_THAT(words_of("gpt2", "Don't stop  123!?\n\n x"),
              ElementsAre("Don", "'t", " stop", " ", " 123", "!?", "\n\n", " x"));
}

TEST(PreTokenizer, SmollmCutsDigitsOneByOne) {
  EXPECT_THAT(words_of("smollm", "a 123 b"), ElementsAre("a", " ", "1", "2", "3", " b"));
  // A digit ends the piece before it: the spaces stay together.
  EXPECT_THAT(words_of("smollm", "a   1"), ElementsAre("a", "   ", "1"));
  EXPECT_THAT(words_of("gpt2", "a   1"), ElementsAre("a", "  ", " 1"));
}

TEST(PreTokenizer, EmptyTextHasNoWords) {
  EXPECT_THAT(words_of("smollm", ""), ElementsAre());
}

TEST(PreTokenizer, ReaderStartsAnewAfterHalfAText) {
  const PreTokenizer pre_tokenizer = PreTokenizer::create("smollm").value();
  WordReader reader(pre_tokenizer);
  std::string_view word;
  reader.start("one 2 three");
  ASSERT_TRUE(reader.next(&word));
  reader.start("4x");
  ASSERT_TRUE(reader.next(&word));
  EXPECT_EQ(word, "4");
  ASSERT_TRUE(reader.next(&word));
  EXPECT_EQ(word, "x");
  EXPECT_FALSE(reader.next(&word));
  EXPECT_FALSE(reader.next(&word));
}

// The runs are what `tokenizers` says of all code points; a class changes only where a run begins, so its
// first and last members and some between stand for it.
TEST(PreTokenizer, CharacterClassesAreThoseOfTokenizers) {
  const PreTokenizer gpt2 = PreTokenizer::create("gpt2").value();
  const auto joins = [&](const char* left, char32_t c) {
    return words_of(gpt2, left + utf8_of(c)).size() == 1;
  };
  const auto class_of = [&](char32_t c) {
    return joins("a", c) ? "L" : joins("1", c) ? "N" : joins("!", c) ? "O" : "S";
  };
  const auto& runs = golden()["classes"];
  std::mt19937 random(1);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto first = runs[i][0].get<uint32_t>();
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1][0].get<uint32_t>() : 0x110000;
    for (const uint32_t c : {first, end - 1, first + static_cast<uint32_t>(random() % (end - first))}) {
      if (c >= 0xD800 && c < 0xE000) continue;
      ASSERT_EQ(class_of(c), runs[i][1].get<std::string>()) << std::hex << c;
    }
  }
}

TEST(PreTokenizer, WordsTogetherAreTheText) {
  std::mt19937 random(2);
  for (const auto& row : pre_tokenizer_rows()) {
    const PreTokenizer pre_tokenizer = PreTokenizer::create(row.names[0]).value();
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (int i = 0; i < 40; ++i) {
        char32_t c = random() % 3 == 0 ? random() % 0x11000 : random() % 0x80;
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        append_utf8(c, &text);
      }
      std::string joined;
      for (const std::string& word : words_of(pre_tokenizer, text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizer, WordsOfAMegabyteAreRead) {
  for (const char fill : {'a', ' ', '.', '\n'}) {
    const std::string text(1'000'000, fill);
    EXPECT_EQ(words_of("smollm", text).size(), 1u);
    EXPECT_EQ(words_of("smollm", "(" + text + "b").back(), fill == 'a'   ? text + "b"
                                                           : fill == ' ' ? " b"
                                                                         : "b");
  }
  EXPECT_EQ(words_of("smollm", std::string(1'000'000, '7')).size(), 1'000'000u);
}

PreTokenizerStage pattern(std::string text) {
  return {PreTokenizerStage::Kind::kPattern, std::move(text)};
}

std::string error_of_pattern(std::string text) {
  const std::vector<PreTokenizerStage> stages = {pattern(std::move(text))};
  const auto made = PreTokenizer::create("mine", stages);
  return made ? "no error" : made.error().message();
}

// A hundred thousand equal characters are one match, not one attempt for each of them.
TEST(PreTokenizer, EveryRowReadsLongRunsOfOneCharacter) {
  const std::vector<std::string> characters = {"a",  "A",      " ",      ".", "7", "\n",
                                               "\t", "\u5b57", "\u0301", "/", "'"};
  for (const auto& row : pre_tokenizer_rows()) {
    const PreTokenizer pre_tokenizer = PreTokenizer::create(row.names[0]).value();
    for (const std::string& character : characters) {
      std::string text = "(";
      for (int i = 0; i < 100'000; ++i) text += character;
      text += "b";
      std::string joined;
      for (const std::string& word : words_of(pre_tokenizer, text)) joined += word;
      EXPECT_EQ(joined, text) << row.names[0] << " of " << character;
    }
  }
}

TEST(PreTokenizer, BacktrackingWithoutEndIsAnError) {
  const std::vector<PreTokenizerStage> stages = {pattern("(?:a|a?)+[bc]")};
  const PreTokenizer pre_tokenizer = PreTokenizer::create("mine", stages).value();
  WordReader reader(pre_tokenizer);
  const std::string text(200, 'a');
  reader.start(text);
  std::string_view word;
  EXPECT_FALSE(reader.next(&word));
  ASSERT_FALSE(reader.status());
  EXPECT_EQ(reader.status().error().code(), StatusCode::kLimit);
  EXPECT_THAT(reader.status().error().message(), HasSubstr("'mine' gives up on a text of 200 bytes"));
}

TEST(PreTokenizer, WhatTwoLanguagesReadDifferentlyIsRefusedByName) {
  EXPECT_THAT(error_of_pattern(R"(a\bc)"), HasSubstr(R"("\b" at byte 1)"));
  EXPECT_THAT(error_of_pattern(R"(\w+)"), HasSubstr(R"("\w" at byte 0)"));
  EXPECT_THAT(error_of_pattern(R"(\p{Klingon})"), HasSubstr("Klingon"));
  EXPECT_THAT(error_of_pattern("[a[b]]"), HasSubstr("[ inside a class"));
  EXPECT_THAT(error_of_pattern("[a&&b]"), HasSubstr("&&"));
  EXPECT_THAT(error_of_pattern(R"([\S])"), HasSubstr("negated class"));
  EXPECT_THAT(error_of_pattern("a{2}+"), HasSubstr("{2}+"));
  EXPECT_THAT(error_of_pattern("a{,2}"), HasSubstr("{,2}"));
  EXPECT_THAT(error_of_pattern("(?m:a)"), HasSubstr("(?m:"));
  EXPECT_THAT(error_of_pattern("a(?i)b"), HasSubstr("(?i)"));
  EXPECT_THAT(error_of_pattern("(?<x>a)"), HasSubstr("(?<x"));
  EXPECT_THAT(error_of_pattern(R"(\1)"), HasSubstr(R"("\1")"));
  EXPECT_THAT(error_of_pattern("a\\"), HasSubstr("at the end"));
  EXPECT_THAT(error_of_pattern(R"(\x{110000})"), HasSubstr("does not compile"));
  EXPECT_THAT(error_of_pattern(R"(\x{)"), HasSubstr("at byte 0"));
  EXPECT_THAT(error_of_pattern(R"(\u12)"), HasSubstr("at byte 0"));
  EXPECT_THAT(error_of_pattern(""), HasSubstr("0 bytes"));
  EXPECT_THAT(error_of_pattern(std::string(kMaxPatternBytes + 1, 'a')), HasSubstr("16385 bytes"));
  EXPECT_THAT(error_of_pattern("[z-a]"), HasSubstr("does not compile"));
}

TEST(PreTokenizer, UnknownNameListsThoseThatExist) {
  const auto made = PreTokenizer::create("llama9");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(made.error().message(), HasSubstr("llama9"));
  EXPECT_THAT(made.error().message(), HasSubstr("gpt2, mpt, smollm, command-r, llama-bpe"));
}

TEST(PreTokenizer, APatternThatDoesNotCompileIsAnError) {
  EXPECT_THAT(error_of_pattern("(a"), HasSubstr("'mine': pattern \"(a\" does not compile"));
}

}  // namespace
}  // namespace butter
