#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "text/tokenizer_testing.h"

namespace butter {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

// 256 bytes, then <s> = 256, </s> = 257, <tool> = 258 (user-defined), and the merges "a b", "ab c".
TokenizerSpec small_spec() {
  TokenizerSpec spec = byte_spec();
  for (const std::string_view token : {"<s>", "</s>", "<tool>", "ab", "abc"}) spec.tokens.push_back(token);
  spec.types.insert(spec.types.end(), {TokenType::kControl, TokenType::kControl, TokenType::kUserDefined,
                                       TokenType::kNormal, TokenType::kNormal});
  spec.merges = {"a b", "ab c"};
  spec.bos_id = 256;
  spec.eos_id = 257;
  return spec;
}

VocabularyTokenizer make(const TokenizerSpec& spec) {
  auto made = VocabularyTokenizer::create(spec);
  EXPECT_TRUE(made) << made.error().message();
  return std::move(made).value();
}

std::string error_of(const TokenizerSpec& spec) {
  const auto made = VocabularyTokenizer::create(spec);
  return made ? "no error" : made.error().message();
}

Ids bytes_as_ids(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string random_bytes(std::mt19937& random, size_t most) {
  std::string bytes(random() % most, '\0');
  for (char& c : bytes)
    c = static_cast<char>(random() % 4 == 0 ? random() % 256 : " ab<s>1'\n"[random() % 9]);
  return bytes;
}

TEST(Tokenizer, AnyBytesComeBack) {
  const VocabularyTokenizer tokenizer = make(small_spec());
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_bytes(random, 60);
    for (const bool parse_special : {false, true}) {
      EncodeOptions options;
      options.parse_special = parse_special;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, options).value()), text);
    }
  }
}

TEST(Tokenizer, TheDefaultModelGivesBackWhatItHasBytesFor) {
  std::mt19937 random(10);
  for (int round = 0; round < 1000; ++round) {
    std::string text = random_bytes(random, 60);
    std::erase_if(text, [](char c) { return !full_tokenizer().has_byte(static_cast<uint8_t>(c)); });
    EXPECT_EQ(full_tokenizer().decode(full_tokenizer().encode(text).value()), text);
  }
}

TEST(Tokenizer, NulIsAByteLikeAnyOther) {
  const std::string text("a\0b\0", 4);
  EXPECT_EQ(make(small_spec()).encode(text).value(), (Ids{'a', 0, 'b', 0}));
  EXPECT_TRUE(full_tokenizer().has_byte(0));
  EXPECT_EQ(full_tokenizer().decode(full_tokenizer().encode(text).value()), text);
}

TEST(Tokenizer, AMalformedByteIsAWordOfItsOwn) {
  const VocabularyTokenizer tokenizer = make(small_spec());
  EXPECT_EQ(tokenizer
                .encode("ab\xFF"
                        "abc")
                .value(),
            (Ids{259, 0xFF, 260}));
  EXPECT_EQ(tokenizer.encode("ab\xE2\x82").value(), (Ids{259, 0xE2, 0x82}));
  EXPECT_EQ(tokenizer
                .encode("a\xFF"
                        "b")
                .value(),
            (Ids{'a', 0xFF, 'b'}));
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  const VocabularyTokenizer tokenizer = make(small_spec());
  EXPECT_EQ(tokenizer.encode("<s>").value(), bytes_as_ids("<s>"));
  EXPECT_EQ(tokenizer.encode("<s>", {.parse_special = true}).value(), (Ids{256}));
  EXPECT_EQ(tokenizer.encode("<tool>").value(), (Ids{258}));
}

TEST(Tokenizer, ContentInsideATemplateKeepsItsSpecialTokensAsText) {
  const VocabularyTokenizer tokenizer = make(small_spec());
  const std::vector<TextSpan> content = {{3, 6}};
  EXPECT_EQ(tokenizer.encode("<s><s></s>", {.parse_special = true, .content = content}).value(),
            (Ids{256, '<', 's', '>', 257}));
}

TEST(Tokenizer, WordsRunAcrossTheEdgeOfContent) {
  const VocabularyTokenizer tokenizer = make(small_spec());
  const std::vector<TextSpan> content = {{1, 3}};
  EXPECT_EQ(tokenizer.encode("abc", {.parse_special = true, .content = content}).value(), (Ids{260}));
}

TEST(Tokenizer, BosAndEosAsTheFileSaysAndNeverTwice) {
  TokenizerSpec spec = small_spec();
  EXPECT_EQ(make(spec).encode("ab").value(), (Ids{259}));
  spec.add_bos = spec.add_eos = true;
  const VocabularyTokenizer tokenizer = make(spec);
  EXPECT_EQ(tokenizer.encode("ab").value(), (Ids{256, 259, 257}));
  EXPECT_EQ(tokenizer.encode("").value(), (Ids{256, 257}));
  EXPECT_EQ(tokenizer.encode("<s>ab</s>", {.parse_special = true}).value(), (Ids{256, 259, 257}));
  EXPECT_EQ(tokenizer.encode("ab", {.add_bos = false, .add_eos = false}).value(), (Ids{259}));
  EXPECT_EQ(tokenizer.encode("ab", {.add_eos = false}).value(), (Ids{256, 259}));
}

TEST(Tokenizer, EveryEndOfTurnIdEndsATurn) {
  TokenizerSpec spec = small_spec();
  spec.end_ids = {258, 257};
  const VocabularyTokenizer tokenizer = make(spec);
  EXPECT_TRUE(tokenizer.is_end(257));
  EXPECT_TRUE(tokenizer.is_end(258));
  EXPECT_FALSE(tokenizer.is_end(256));
  EXPECT_FALSE(tokenizer.is_end(-1));
  EXPECT_EQ(tokenizer.end_ids(), (Ids{257, 258}));
}

TEST(Tokenizer, QwenComposesCharactersFirst) {
  TokenizerSpec spec = byte_spec();
  EXPECT_EQ(make(spec).encode("e\u0301").value(), (Ids{'e', 0xCC, 0x81}));
  spec.pre_tokenizer = "qwen2";
  EXPECT_EQ(make(spec).encode("e\u0301").value(), (Ids{0xC3, 0xA9}));
}

TEST(Tokenizer, PrefixSpaceIsAddedWhereThereIsNone) {
  TokenizerSpec spec = small_spec();
  spec.add_prefix_space = true;
  const VocabularyTokenizer tokenizer = make(spec);
  EXPECT_EQ(tokenizer.encode("a").value(), (Ids{' ', 'a'}));
  EXPECT_EQ(tokenizer.encode(" a").value(), (Ids{' ', 'a'}));
  EXPECT_EQ(tokenizer.encode("").value(), (Ids{}));
  EXPECT_EQ(tokenizer.encode("x<tool>y x").value(), (Ids{' ', 'x', 258, ' ', 'y', ' ', 'x'}));
  spec.pre_tokenizer = "smollm";
  EXPECT_EQ(make(spec).encode("1a").value(), (Ids{' ', '1', 'a'}));
}

TEST(Tokenizer, ABytesWithoutATokenVanishesOrIsUnknown) {
  TokenizerSpec spec = small_spec();
  spec.tokens['z'] = "zz";
  EXPECT_EQ(make(spec).encode("azb").value(), (Ids{259}));
  EXPECT_FALSE(make(spec).has_byte('z'));
  spec.unk_id = 258;
  spec.unknown_for_missing = true;
  EXPECT_EQ(make(spec).encode("azb").value(), (Ids{'a', 258, 'b'}));
}

TEST(Tokenizer, PiecesAreBytesAndSpecialTokensTheirText) {
  const VocabularyTokenizer& tokenizer = full_tokenizer();
  EXPECT_EQ(tokenizer.piece(*tokenizer.special_id("<|im_start|>")), "<|im_start|>");
  EXPECT_EQ(tokenizer.type(1), TokenType::kControl);
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.piece(49152), "");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{-5, 1, 1 << 30}), "<|im_start|>");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" the").value(), {.skip_special = true}), " the");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1}, {.skip_special = true}), "");
}

TEST(Tokenizer, AMegabyteWithoutWhiteSpaceIsDoneInTime) {
  std::string word(1'000'000, 'a');
  for (size_t i = 0; i < word.size(); ++i) word[i] = static_cast<char>('a' + i * i % 23);
  EXPECT_EQ(full_tokenizer().decode(full_tokenizer().encode(word).value()), word);
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  const auto text = golden()["full"].back()["text"].get<std::string>();
  const Ids wanted = full_tokenizer().encode(text).value();
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) equal[t] += full_tokenizer().encode(text).value() == wanted;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 5));
}

TEST(Tokenizer, OwnsWhatItNeedsOfTheSpec) {
  std::string storage = "<s>";
  TokenizerSpec spec = small_spec();
  spec.tokens[256] = storage;
  const VocabularyTokenizer made = make(spec);
  storage = "xyz";
  VocabularyTokenizer moved = make(small_spec());
  moved = VocabularyTokenizer::create(spec).value();  // with the changed text
  EXPECT_EQ(made.piece(256), "<s>");
  EXPECT_EQ(moved.piece(256), "xyz");
  EXPECT_EQ(moved.encode("ab", {.parse_special = true}).value(), (Ids{259}));
}

TEST(BadTokenizer, AHoleInTheIds) {
  TokenizerSpec spec = small_spec();
  spec.tokens[77] = {};
  EXPECT_THAT(error_of(spec), HasSubstr("token 77 is missing"));
  spec.types[77] = TokenType::kUnused;  // said to be one
  EXPECT_EQ(error_of(spec), "no error");
}

TEST(BadTokenizer, ATokenTwice) {
  TokenizerSpec spec = small_spec();
  spec.tokens[258] = "<s>";
  EXPECT_THAT(error_of(spec), HasSubstr("tokens 256 and 258 are both \"<s>\""));
}

TEST(BadTokenizer, MergesThatNeedWhatIsNotThere) {
  TokenizerSpec spec = small_spec();
  spec.merges = {"a b", "ab qq"};
  EXPECT_THAT(error_of(spec), HasSubstr("merge 1 (\"ab qq\") needs \"qq\""));
  spec.merges = {"qq a"};
  EXPECT_THAT(error_of(spec), HasSubstr("needs \"qq\""));
  spec.merges = {"b a"};
  EXPECT_THAT(error_of(spec), HasSubstr("needs \"ba\""));
  for (const std::string_view merge : {"ab", "a b c", "", "a  b", " ab"}) {
    spec.merges = {merge};
    EXPECT_THAT(error_of(spec), HasSubstr("merge 0")) << merge;
  }
}

TEST(BadTokenizer, IdsOutOfRange) {
  for (const int64_t id :
       {int64_t{-1}, int64_t{261}, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
    TokenizerSpec spec = small_spec();
    spec.bos_id = id;
    EXPECT_THAT(error_of(spec), HasSubstr("BOS id"));
    spec = small_spec();
    spec.eos_id = id;
    EXPECT_THAT(error_of(spec), HasSubstr("EOS id"));
    spec = small_spec();
    spec.end_ids = {id};
    EXPECT_THAT(error_of(spec), HasSubstr("end-of-turn id"));
  }
}

TEST(BadTokenizer, CountsThatContradict) {
  TokenizerSpec spec = small_spec();
  spec.types.pop_back();
  EXPECT_THAT(error_of(spec), HasSubstr("261 tokens and 260 token types"));
  EXPECT_THAT(error_of(TokenizerSpec{}), HasSubstr("0 tokens"));
  spec.tokens.assign(VocabularyTokenizer::kMaxTokens + 1, "x");
  EXPECT_THAT(error_of(spec), HasSubstr("4194305 tokens"));
}

TEST(BadTokenizer, UnknownNamesAreNamed) {
  TokenizerSpec spec = small_spec();
  spec.pre_tokenizer = "quux";
  EXPECT_THAT(error_of(spec), testing::AllOf(HasSubstr("quux"), HasSubstr("gpt2, mpt, smollm")));
}

TEST(BadTokenizer, TypesThatDoNotFit) {
  TokenizerSpec spec = small_spec();
  spec.types[3] = static_cast<TokenType>(9);
  EXPECT_THAT(error_of(spec), HasSubstr("token 3 has type 9"));
  spec.types[3] = TokenType::kByte;
  EXPECT_THAT(error_of(spec), HasSubstr("type 6 (byte)"));
  EXPECT_EQ(token_type_of(0), std::nullopt);
  EXPECT_EQ(token_type_of(257), std::nullopt);
  EXPECT_EQ(token_type_of(3), TokenType::kControl);
}

TEST(BadTokenizer, BosAskedForAndNotNamed) {
  TokenizerSpec spec = small_spec();
  spec.add_bos = true;
  spec.bos_id.reset();
  EXPECT_THAT(error_of(spec), HasSubstr("BOS"));
}

TEST(BadTokenizer, MessagesHoldNoControlCharacters) {
  TokenizerSpec spec = small_spec();
  const std::string merge = std::string("x\n\x1b[31m\xFF") + std::string(1000, 'y');
  spec.merges = {merge};
  const std::string message = error_of(spec);
  EXPECT_THAT(message, HasSubstr("x\\x0a\\x1b[31m\xEF\xBF\xBD"));
  EXPECT_LT(message.size(), 200u);
}

}  // namespace
}  // namespace butter
