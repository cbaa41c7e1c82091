// Vocabularies of pieces: ids and texts equal to those of PyPI `sentencepiece` and, for Unigram models of
// tokenizer.json, `tokenizers`, over every string of tests/data/tokenizer/pieces.json.zst.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "text/normalizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace butter {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

const json& pieces() {
  static const json* const kPieces = new json(read_compressed_json("pieces.json.zst"));
  return *kPieces;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string model_bytes(const std::string& name) {
  for (const json& one : pieces()["sentencepiece_models"]) {
    if (one["name"] == name) return from_hex(one["model"].get_ref<const std::string&>());
  }
  ADD_FAILURE() << name;
  return {};
}

VocabularyTokenizer read(const std::string& bytes, const TokenizerFiles& files = {}) {
  auto made = VocabularyTokenizer::from_sentencepiece(bytes, files);
  EXPECT_TRUE(made) << made.error().message();
  return std::move(made).value();
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDetokenizer stream(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

void expect_equal(const Tokenizer& tokenizer, const json& one, const EncodeOptions& options) {
  int differing = 0;
  const json& texts = pieces()["texts"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto wanted = one["ids"][i].get<Ids>();
    const Ids got = tokenizer.encode(texts[i].get_ref<const std::string&>(), options).value();
    std::string back = tokenizer.decode(wanted);
    bool same =
        got == wanted && (one["decoded"][i].is_null() || back == one["decoded"][i].get<std::string>());
    std::string clean;
    append_replacing_malformed(back, &clean);
    same &= streamed(tokenizer, wanted) == clean;
    if (same || ++differing > 3) continue;
    ADD_FAILURE() << one["name"] << " of " << texts[i] << "\n  got      " << shown_ids(got) << "\n  expected "
                  << shown_ids(wanted) << "\n  decoded  " << json(clean) << "\n  streamed "
                  << json(streamed(tokenizer, wanted)) << "\n  expected " << one["decoded"][i];
  }
  EXPECT_EQ(differing, 0) << one["name"];
}

TEST(SentencePiece, EveryModelGivesItsIdsAndTheirText) {
  EXPECT_GE(pieces()["sentencepiece_models"].size(), 16u);
  for (const json& one : pieces()["sentencepiece_models"])
    expect_equal(read(from_hex(one["model"].get_ref<const std::string&>())), one, {.add_bos = false});
}

TEST(SentencePiece, UnigramFilesGiveTheIdsOfTokenizers) {
  EXPECT_GE(pieces()["tokenizer_files"].size(), 7u);
  for (const json& one : pieces()["tokenizer_files"]) {
    const auto tokenizer = VocabularyTokenizer::from_tokenizer_json(one["json"].dump());
    ASSERT_TRUE(tokenizer) << one["name"] << ": " << tokenizer.error().message();
    expect_equal(*tokenizer, one, {.parse_special = true});
  }
}

TEST(SentencePiece, CharactersAreMappedAsInTokenizers) {
  const NormalizerStep step{NormalizerStep::Kind::kCharsMap, "", from_hex(pieces()["charsmap"])};
  const Normalizer normalizer = Normalizer::create({&step, 1}).value();
  for (size_t i = 0; i < pieces()["texts"].size(); ++i) {
    EXPECT_EQ(normalizer.apply(pieces()["texts"][i].get<std::string>()).value(),
              pieces()["mapped"][i].get<std::string>());
  }
}

Ids joined(const std::vector<Ids>& parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(SentencePiece, WhatLiesBetweenSpecialTokensIsATextOfItsOwn) {
  const std::string model = model_bytes("bpe as Llama 2");
  const VocabularyTokenizer tokenizer = read(model);
  const EncodeOptions special = {.parse_special = true};
  const Ids hi = tokenizer.encode("hi", {.add_bos = false}).value();
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.encode("hi").value(), joined({{1}, hi}));
  EXPECT_EQ(tokenizer.encode("<s>hi</s>hi", special).value(), joined({{1}, hi, {2}, hi}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<s>hi", {.add_bos = false}).value()), "<s>hi");
  // From where this is off, only a text that begins with no special token begins with a space.
  const VocabularyTokenizer once = read(model, {.tokenizer_config = R"({"legacy": false})"});
  EXPECT_EQ(once.encode("hi").value(), joined({{1}, hi}));
  const Ids later = once.encode("hi</s>hi", special).value();
  EXPECT_EQ(once.decode(later, {.skip_special = true}), "hihi");
}

TEST(SentencePiece, FilesBesideTheModelAddTokensAndIds) {
  const VocabularyTokenizer plain = read(model_bytes("bpe as Llama 2"));
  const std::string next = std::to_string(plain.vocab_size()), last = std::to_string(plain.vocab_size() + 1);
  const std::string config = R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "<|end|>",
      "added_tokens_decoder": {")" +
                             next + R"(": {"content": "<|end|>", "special": true, "rstrip": true}}})";
  const std::string added = R"({"<|user|>": )" + last + R"(, "<s>": 1})";
  const VocabularyTokenizer tokenizer = read(
      model_bytes("bpe as Llama 2"),
      {.tokenizer_config = config, .added_tokens = added, .generation_config = R"({"eos_token_id": 2})"});
  const TokenId end = *tokenizer.special_id("<|end|>"), user = *tokenizer.special_id("<|user|>");
  EXPECT_EQ(end, plain.vocab_size());
  EXPECT_EQ(tokenizer.end_ids(), (Ids{2, end}));
  const Ids hi = plain.encode("hi", {.add_bos = false}).value();
  EXPECT_EQ(tokenizer.encode("<|user|>hi<|end|> \n hi", {.parse_special = true}).value(),
            joined({{user}, hi, {end}, hi, {end}}));
}

TEST(SentencePiece, UserDefinedPiecesAreThoseTokensWhateverIsAsked) {
  const VocabularyTokenizer tokenizer = read(model_bytes("bpe as Gemma"));
  const TokenId call = *tokenizer.special_id("<tool_call>");
  EXPECT_EQ(tokenizer.type(call), TokenType::kUserDefined);
  EXPECT_EQ(tokenizer.encode("<tool_call>", {.add_bos = false}).value(), (Ids{call}));
}

TEST(SentencePiece, BytesThatAreNoUtf8BecomeByteTokensOrTheUnknownOne) {
  const VocabularyTokenizer bytes = read(model_bytes("bpe as Llama 2"));
  const std::string text =
      "a\xFF\xE2\x82"
      "b\xC3";
  EXPECT_EQ(bytes.decode(bytes.encode(text, {.add_bos = false}).value()), text);
  const VocabularyTokenizer none = read(model_bytes("unigram as T5"));
  EXPECT_EQ(none.decode(none.encode("a\xFFz", {.add_bos = false}).value()), "a \u2047 z");
}

// Quadratic ways would need minutes here.
TEST(SentencePiece, EveryModelReadsAHundredThousandEqualCharacters) {
  for (const json& one : pieces()["sentencepiece_models"]) {
    const VocabularyTokenizer tokenizer = read(from_hex(one["model"].get_ref<const std::string&>()));
    for (const std::string character : {"a", " ", "\u2581", "\u5b57", "\u0301", "\xFF"}) {
      std::string text;
      for (int i = 0; i < 100'000; ++i) text += character;
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids) << one["name"];
      EXPECT_EQ(streamed(tokenizer, *ids).empty(), tokenizer.decode(*ids).empty());
    }
  }
}

std::string error_of(const std::string& bytes, const TokenizerFiles& files = {}) {
  const auto made = VocabularyTokenizer::from_sentencepiece(bytes, files);
  return made ? "no error" : made.error().message();
}

// A field of protobuf's wire format: a text, or a message that is bytes already.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string number_field(int number, char value) {
  return std::string{static_cast<char>(number << 3), value};
}
std::string piece(const std::string& text, char type, float score = 0) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bits + number_field(3, type));
}

TEST(BadSentencePiece, IsRefusedWithASentence) {
  const std::string unknown = piece("<unk>", 2), bpe = field(2, number_field(3, 2));
  EXPECT_EQ(error_of(unknown + piece("a", 1) + bpe), "no error");
  EXPECT_THAT(error_of(""), HasSubstr("neither an unknown piece nor byte_fallback"));
  EXPECT_THAT(error_of("hello"), HasSubstr("SentencePiece model: "));
  EXPECT_THAT(error_of(piece("a", 1) + bpe), HasSubstr("neither an unknown piece nor byte_fallback"));
  EXPECT_THAT(error_of(unknown + field(2, number_field(3, 3))), HasSubstr("model_type is WORD"));
  EXPECT_THAT(error_of(unknown + field(2, number_field(3, 4))), HasSubstr("model_type is CHAR"));
  EXPECT_THAT(error_of(unknown + field(2, number_field(3, 9))), HasSubstr("model_type is 9"));
  EXPECT_THAT(error_of(unknown + piece("a", 7) + bpe), HasSubstr("piece 1 has type 7"));
  EXPECT_THAT(error_of(unknown + piece("", 1) + bpe), HasSubstr("token 1 is missing"));
  EXPECT_THAT(error_of(unknown + piece("a", 1) + piece("a", 1) + bpe), HasSubstr("tokens 1 and 2 are both"));
  EXPECT_THAT(error_of(unknown + piece("a", 1, NAN) + bpe), HasSubstr("token 1 has the score nan"));
  EXPECT_THAT(error_of(unknown + field(5, field(2, "x"))), HasSubstr("denormalizer"));
  EXPECT_THAT(error_of(unknown + field(3, field(2, "x"))), HasSubstr("precompiled charsmap has 1 bytes"));
  EXPECT_THAT(error_of(unknown.substr(0, unknown.size() - 1)), HasSubstr("bytes left"));
  EXPECT_THAT(error_of("\x0b"), HasSubstr("wire type 3"));
  EXPECT_THAT(error_of(std::string(11, '\xFF')), HasSubstr("a number does not end"));
  EXPECT_THAT(error_of(unknown + bpe, {.tokenizer_config = R"({"eos_token": "<end>"})"}), HasSubstr("<end>"));
  EXPECT_THAT(error_of(unknown + bpe, {.added_tokens = R"({"<x>": "y"})"}), HasSubstr("<x>"));
  EXPECT_THAT(
      error_of(unknown + bpe, {.tokenizer_config = R"({"added_tokens_decoder": {"a": {"content": "b"}}})"}),
      HasSubstr("the id of token \"b\""));
}

TEST(BadSentencePiece, CutAnywhereItIsReadOrRefused) {
  const std::string whole = model_bytes("unigram, symbols");
  size_t refused = 0;
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7)
    refused += !VocabularyTokenizer::from_sentencepiece(whole.substr(0, bytes));
  EXPECT_GT(refused, 500u);
}

}  // namespace
}  // namespace butter
