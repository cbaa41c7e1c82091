// Vocabularies of byte strings with ranks: ids equal to those of PyPI `tiktoken`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace butter {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

const json& golden_of_ranks() {
  static const json* const kGolden = new json(read_compressed_json("pieces.json.zst"));
  return *kGolden;
}

std::string base64_of(std::string_view bytes) {
  constexpr const char* kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kAlphabet[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

// The 256 bytes, then `texts`, then what nobody asks for, until there are so many as Qwen's vocabulary has.
std::string qwen_sized_file(const std::vector<std::string>& texts) {
  std::string file;
  for (size_t rank = 0; rank < 151'643; ++rank) {
    const std::string bytes = rank < 256                  ? std::string(1, static_cast<char>(rank))
                              : rank < 256 + texts.size() ? texts[rank - 256]
                                                          : fmt::format("\x01{}", rank);
    file += fmt::format("{} {}\n", base64_of(bytes), rank);
  }
  return file;
}

TEST(Tiktoken, ATekkenFileGivesItsIds) {
  const json& one = golden_of_ranks()["tekken"];
  const auto made = VocabularyTokenizer::from_tekken(one["json"].dump());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->pre_tokenizer(), "tekken");
  EXPECT_EQ(made->special_id("[INST]"), 3);
  EXPECT_EQ(made->special_id("<SPECIAL_29>"), 29);
  EXPECT_EQ(made->encode("a").value().front(), made->bos_id());
  const json& texts = golden_of_ranks()["texts"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& text = texts[i].get_ref<const std::string&>();
    const Ids ids = made->encode(text, {.add_bos = false}).value();
    EXPECT_EQ(shown_ids(ids), shown_ids(one["ids"][i].get<Ids>())) << texts[i];
    EXPECT_EQ(made->decode(ids), text);
  }
}

TEST(Tiktoken, AFileOfAKnownModelHasItsSpecialTokens) {
  const std::string file = qwen_sized_file({"ab", "bc", "abc", "<|im_end|>"});
  const auto made = VocabularyTokenizer::from_model_file(file);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->vocab_size(), 151'851);
  EXPECT_FALSE(made->adds_bos());
  EXPECT_EQ(made->end_ids(), (Ids{151'643, 151'645}));
  EXPECT_EQ(made->special_id("<|extra_204|>"), 151'850);
  EXPECT_EQ(made->encode("abc").value(), (Ids{258})) << "a word that is a token is that token";
  EXPECT_EQ(made->encode("xabc").value(), (Ids{'x', 258})) << "a b first, then ab c";
  EXPECT_EQ(made->encode("abcb").value(), (Ids{258, 'b'}));
  EXPECT_EQ(made->encode("<|im_end|>", {.parse_special = true}).value(), (Ids{151'645}));
  EXPECT_NE(made->encode("<|im_end|>").value(), (Ids{151'645}));
  const std::string bytes = "\xFF\xC3 e\u0301";
  EXPECT_EQ(made->decode(made->encode(bytes).value()), "\xFF\xC3 \u00e9") << "characters are composed";
}

TEST(Tiktoken, FilesBesideItMayNameSpecialTokensOtherwise) {
  const auto made = VocabularyTokenizer::from_tiktoken(
      qwen_sized_file({}), {.tokenizer_config = R"({"eos_token": "<|stop|>", "added_tokens_decoder": {
          "151643": {"content": "<|stop|>", "special": true}, "151900": {"content": "<|tool|>", "special": true}}})"});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->eos_id(), 151'643);
  EXPECT_EQ(made->special_id("<|tool|>"), 151'900);
  EXPECT_EQ(made->special_id("<|im_end|>"), 151'645);
  EXPECT_EQ(made->type(151'899), TokenType::kUnused);
}

std::string error_of(const std::string& file) {
  const auto made = VocabularyTokenizer::from_tiktoken(file);
  return made ? "no error" : made.error().message();
}

TEST(BadTiktoken, IsRefusedWithASentence) {
  EXPECT_THAT(error_of(""),
              HasSubstr("it has 0 byte strings; those that Butter knows how to use are Llama 3 (128000)"));
  EXPECT_THAT(error_of("YQ== 0\nYg== 1\n"), HasSubstr("it has 2 byte strings"));
  EXPECT_THAT(error_of("YQ== 0\n????\n"), HasSubstr("line 2 is \"????\""));
  EXPECT_THAT(error_of("YQ== 0\nYg== -1\n"), HasSubstr("the id of token \"b\""));
  EXPECT_THAT(error_of("YQ== 0\nYg== 0\n"), HasSubstr("id 0 is both \"a\" and \"b\""));
  EXPECT_THAT(error_of("YQ== 0 1\n"), HasSubstr("line 1"));
  std::string file = qwen_sized_file({"ab"});
  file.replace(0, 4, base64_of("x"));
  EXPECT_THAT(error_of(file), HasSubstr("tokens 0 and 120 are both \"x\""));
  file.replace(0, 4, base64_of(std::string("\x02\x02")));
  EXPECT_THAT(error_of(file), HasSubstr("no token for the byte 0x00"));
}

std::string tekken_error_after(const std::function<void(json&)>& change) {
  json file = golden_of_ranks()["tekken"]["json"];
  change(file);
  const auto made = VocabularyTokenizer::from_tekken(file.dump());
  return made ? "no error" : made.error().message();
}

TEST(BadTekken, IsRefusedWithASentence) {
  EXPECT_EQ(tekken_error_after([](json&) {}), "no error");
  EXPECT_THAT(tekken_error_after([](json& j) { j["vocab"] = 3; }), HasSubstr("vocab is \"3\""));
  EXPECT_THAT(tekken_error_after([](json& j) { j["vocab"][5]["token_bytes"] = "?"; }),
              HasSubstr("no entry of vocab"));
  EXPECT_THAT(tekken_error_after([](json& j) { j["vocab"][5]["rank"] = 6; }), HasSubstr("id 36 is both"));
  EXPECT_THAT(tekken_error_after([](json& j) { j["config"]["pattern"] = "("; }),
              HasSubstr("does not compile"));
  EXPECT_THAT(tekken_error_after([](json& j) { j["config"].erase("pattern"); }),
              HasSubstr("config.pattern is missing"));
  EXPECT_THAT(tekken_error_after([](json& j) { j["config"]["default_vocab_size"] = -1; }),
              HasSubstr("config.default_vocab_size is \"-1\""));
  EXPECT_THAT(tekken_error_after([](json& j) { j["config"]["default_vocab_size"] = 29; }),
              HasSubstr("30 of 29 tokens are special"));
  EXPECT_THAT(tekken_error_after([](json& j) {
                j["special_tokens"] = {{{"rank", 30}, {"token_str", "<x>"}}};
              }),
              HasSubstr("special token \"<x>\" has no rank from 0 to 29"));
}

TEST(Tekken, MayListItsSpecialTokens) {
  json file = golden_of_ranks()["tekken"]["json"];
  file["special_tokens"] = {{{"rank", 0}, {"token_str", "<unk>"}, {"is_control", true}},
                            {{"rank", 1}, {"token_str", "<s>"}, {"is_control", true}},
                            {{"rank", 2}, {"token_str", "</s>"}, {"is_control", true}},
                            {{"rank", 3}, {"token_str", "[THINK]"}, {"is_control", false}}};
  const auto made = VocabularyTokenizer::from_tekken(file.dump());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->special_id("[THINK]"), 3);
  EXPECT_EQ(made->special_id("<SPECIAL_4>"), 4);
  EXPECT_EQ(made->end_ids(), (Ids{2}));
}

}  // namespace
}  // namespace butter
