#include "butter/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace butter {
namespace {

const Tokenizer& byte_tokenizer() {
  static const Tokenizer* const kTokenizer =
      new VocabularyTokenizer(VocabularyTokenizer::create(byte_spec()).value());
  return *kTokenizer;
}

TEST(StreamDetokenizer, HoldsACharacterBackUntilItIsWhole) {
  StreamDetokenizer stream(byte_tokenizer());
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_TRUE(stream.holds_back());
  EXPECT_EQ(stream.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_FALSE(stream.holds_back());
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDetokenizer, WhatCannotBecomeACharacterIsReplaced) {
  StreamDetokenizer stream(byte_tokenizer());
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('x'), "\xEF\xBF\xBDx");
  EXPECT_EQ(stream.push(0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push('y'), "y");
}

TEST(StreamDetokenizer, NulIsACharacterLikeAnyOther) {
  StreamDetokenizer stream(byte_tokenizer());
  EXPECT_EQ(stream.push(0), std::string(1, '\0'));
}

TEST(StreamDetokenizer, IdsOutsideTheVocabularyAddNothing) {
  StreamDetokenizer stream(byte_tokenizer());
  EXPECT_EQ(stream.push(-1), "");
  EXPECT_EQ(stream.push(256), "");
}

TEST(StreamDetokenizer, SpecialTokensMayBeSkipped) {
  const TokenId end = *full_tokenizer().special_id("<|im_end|>");
  StreamDetokenizer all(full_tokenizer()), skipping(full_tokenizer(), {.skip_special = true});
  EXPECT_EQ(all.push(end), "<|im_end|>");
  EXPECT_EQ(skipping.push(end), "");
}

// The pieces joined are the whole with its malformed parts replaced, and each piece is well formed.
TEST(StreamDetokenizer, PiecesJoinedAreTheWhole) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const Tokenizer& tokenizer = round % 2 == 0 ? byte_tokenizer() : full_tokenizer();
    std::vector<TokenId> ids;
    for (int i = 0; i < 60; ++i) {
      // Mostly lead and continuation bytes, so that characters form and break.
      const uint32_t high = 0x80 + random() % 0x80;
      ids.push_back(static_cast<TokenId>(round % 2 == 0 ? (random() % 8 == 0 ? random() % 0x80 : high)
                                                        : random() % 49152));
    }
    StreamDetokenizer stream(tokenizer);
    std::string joined, whole;
    for (const TokenId id : ids) {
      const std::string text = stream.push(id);
      EXPECT_EQ(well_formed_utf8_bytes(text), text.size());
      joined += text;
    }
    joined += stream.finish();
    append_replacing_malformed(tokenizer.decode(ids), &whole);
    EXPECT_EQ(joined, whole);
  }
}

}  // namespace
}  // namespace butter
