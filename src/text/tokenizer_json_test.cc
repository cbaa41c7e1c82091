#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace butter {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

json small_json() {
  return json::parse(small_tokenizer_json());
}

std::string error_of(const std::string& tokenizer, const std::string& config = {},
                     const std::string& generation = {}) {
  const auto made = VocabularyTokenizer::from_tokenizer_json(
      tokenizer, {.tokenizer_config = config, .generation_config = generation});
  return made ? "no error" : made.error().message();
}

std::string error_after(const std::function<void(json&)>& change) {
  json changed = small_json();
  change(changed);
  return error_of(changed.dump());
}

TEST(TokenizerJson, ConfigNamesTheSpecialTokens) {
  const auto made = VocabularyTokenizer::from_tokenizer_json(
      small_tokenizer_json(),
      {.tokenizer_config =
           R"({"eos_token": {"content": "</s>"}, "pad_token": "<|user|>", "unk_token": null})",
       .generation_config = R"({"eos_token_id": [2, 1]})"});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->bos_id(), 0);
  EXPECT_EQ(made->eos_id(), 1);
  EXPECT_EQ(made->pad_id(), 2);
  EXPECT_EQ(made->unk_id(), std::nullopt);
  EXPECT_EQ(made->end_ids(), (Ids{1, 2}));
  EXPECT_EQ(made->encode("<tool>").value(), (Ids{0, 600}));
}

TEST(TokenizerJson, ConfigMayTakeBosAway) {
  const auto made = VocabularyTokenizer::from_tokenizer_json(
      small_tokenizer_json(), {.tokenizer_config = R"({"add_bos_token": false})"});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->encode("<tool>").value(), (Ids{600}));
}

TEST(TokenizerJson, GenerationConfigMayHoldOneId) {
  const auto made = VocabularyTokenizer::from_tokenizer_json(small_tokenizer_json(),
                                                             {.generation_config = R"({"eos_token_id": 1})"});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->eos_id(), 1);
  EXPECT_TRUE(made->is_end(1));
}

TEST(TokenizerJson, ASplitWithTheSamePatternIsTheSamePreTokenizer) {
  json changed = small_json();
  changed["pre_tokenizer"] = {{"type", "Sequence"},
                              {"pretokenizers",
                               {{{"type", "Split"},
                                 {"pattern", {{"Regex", byte_level_stage().text}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}},
                                {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto made = VocabularyTokenizer::from_tokenizer_json(changed.dump());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->pre_tokenizer(), "gpt2");
}

TEST(TokenizerJson, AnEosInTheTemplateIsAdded) {
  json changed = small_json();
  changed["post_processor"]["single"].push_back({{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}});
  changed["post_processor"]["special_tokens"]["</s>"] = {{"id", "</s>"}, {"ids", {1}}, {"tokens", {"</s>"}}};
  const auto made = VocabularyTokenizer::from_tokenizer_json(changed.dump());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->encode("<tool>").value(), (Ids{0, 600, 1}));
}

// What people wrote makes no control token, not even one that is looked for in normalized text, where nobody
// knows what came from whom.
TEST(TokenizerJson, ContentStaysTextInNormalizedText) {
  json changed = json::parse(small_tokenizer_json());
  changed["normalizer"] = {{"type", "Lowercase"}};
  changed["post_processor"] = nullptr;
  changed["added_tokens"][1]["normalized"] = true;
  const auto made = VocabularyTokenizer::from_tokenizer_json(changed.dump());
  ASSERT_TRUE(made) << made.error().message();
  const std::string text = "A</S>B</S>C";
  const Ids all = made->encode(text, {.parse_special = true}).value();
  EXPECT_EQ(std::ranges::count(all, 1), 2);
  const std::vector<TextSpan> content = {{0, 3}, {6, 11}};
  EXPECT_EQ(made->encode(text, {.parse_special = true, .content = content}).value(),
            made->encode(text, {.parse_special = false}).value());
  const std::vector<TextSpan> first = {{0, 5}};
  const Ids some = made->encode(text, {.parse_special = true, .content = first}).value();
  EXPECT_EQ(std::ranges::count(some, 1), 1);
  EXPECT_EQ(made->decode(some), "a</s>b</s>c");
}

TEST(BadTokenizerJson, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(error_after([](json& j) { j["model"]["type"] = "WordPiece"; }), HasSubstr("\"WordPiece\""));
  EXPECT_THAT(error_after([](json& j) {
                j["normalizer"] = {{"type", "BertNormalizer"}};
              }),
              HasSubstr("normalizer \"BertNormalizer\""));
  EXPECT_THAT(error_after([](json& j) {
                j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "[</>]|s"}}}, {"content", ""}};
                j["added_tokens"][1]["normalized"] = true;
              }),
              HasSubstr("\"</s>\" is looked for in normalized text, where nothing is left of it"));
  EXPECT_THAT(error_after([](json& j) {
                j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "/"}}}, {"content", ""}};
                j["added_tokens"][0]["normalized"] = j["added_tokens"][1]["normalized"] = true;
              }),
              HasSubstr("added tokens 0 and 1 are both \"<s>\" in normalized text"));
  EXPECT_THAT(error_after([](json& j) {
                j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}};
              }),
              HasSubstr("normalizer \"Replace\" is not supported"));
  EXPECT_THAT(error_after([](json& j) {
                j["decoder"] = {{"type", "Metaspace"}};
              }),
              HasSubstr("a replacement of one character"));
  EXPECT_THAT(error_after([](json& j) { j["decoder"] = nullptr; }), HasSubstr("decoder is missing"));
  EXPECT_THAT(error_after([](json& j) {
                j["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("ByteLevel is not in the pre_tokenizer"));
  EXPECT_THAT(error_after([](json& j) { j["pre_tokenizer"] = nullptr; }), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(error_after([](json& j) {
                j["post_processor"] = {{"type", "BertProcessing"}};
              }),
              HasSubstr("\"BertProcessing\""));
  EXPECT_THAT(error_after([](json& j) {
                j["model"]["byte_fallback"] = true;
                j["model"]["vocab"]["<0xC4>"] = 601;
              }),
              HasSubstr("byte_fallback with ByteLevel and a token \"<0xC4>\""));
  EXPECT_THAT(error_after([](json& j) { j["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }), HasSubstr("</w>"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["unk_token"] = "<none>"; }), HasSubstr("<none>"));
}

std::string error_of_step(const json& step) {
  return error_after([&](json& j) { j["pre_tokenizer"] = step; });
}

TEST(BadTokenizerJson, PreTokenizerStepsThatAreWrongAreNamed) {
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const json split = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}};
  json changed = split;
  changed["behavior"] = "Kept";
  EXPECT_THAT(error_of_step(changed), HasSubstr("behavior of pre_tokenizer step \"Split\" is \"\"Kept\"\""));
  changed = split;
  changed["pattern"] = json::object();
  EXPECT_THAT(error_of_step(changed), HasSubstr("a Regex or a String is expected"));
  changed["pattern"] = {{"Regex", "(a"}};
  EXPECT_THAT(error_of_step({{"type", "Sequence"}, {"pretokenizers", {changed, byte_level}}}),
              HasSubstr("\"(a\" does not compile"));
  EXPECT_THAT(error_of_step({{"type", "Sequence"}, {"pretokenizers", {byte_level, split}}}),
              HasSubstr("behind ByteLevel"));
  EXPECT_THAT(error_of_step({{"type", "Sequence"}, {"pretokenizers", json(std::vector<json>(33, split))}}),
              HasSubstr("ByteLevel"));
  EXPECT_THAT(error_of_step({{"type", "Metaspace"}, {"replacement", "__"}}), HasSubstr("one character"));
  EXPECT_THAT(error_of_step({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}}),
              HasSubstr("\"first\" or \"never\""));
  const json first = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  EXPECT_THAT(error_of_step({{"type", "Sequence"}, {"pretokenizers", {split, first}}}),
              HasSubstr("behind another pre_tokenizer step"));
}

TEST(BadTokenizerJson, IdsWithAHoleOrTwice) {
  EXPECT_THAT(error_after([](json& j) { j["model"]["vocab"].erase("!"); }), HasSubstr("no token has id 3"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["vocab"]["!"] = 4; }), HasSubstr("id 4 is both"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["vocab"]["!"] = -1; }),
              HasSubstr("the id of token \"!\""));
  EXPECT_THAT(error_after([](json& j) { j["model"]["vocab"]["!"] = 1ull << 63; }),
              HasSubstr("the id of token \"!\""));
  EXPECT_THAT(error_after([](json& j) { j["model"]["vocab"]["!"] = "3"; }),
              HasSubstr("the id of token \"!\""));
  EXPECT_THAT(error_after([](json& j) { j["added_tokens"][3]["id"] = 4'000'000; }),
              HasSubstr("no token has id 600"));
  EXPECT_THAT(error_after([](json& j) {
                j["model"]["vocab"] = json::object();
                j["added_tokens"] = json::array();
              }),
              HasSubstr("0 tokens"));
}

TEST(BadTokenizerJson, MergesThatAreNone) {
  EXPECT_THAT(error_after([](json& j) { j["model"]["merges"] = "a b"; }), HasSubstr("merges"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["merges"][5] = 7; }), HasSubstr("merge 5 is \"7\""));
  EXPECT_THAT(error_after([](json& j) { j["model"]["merges"][5] = {"a", "b", "c"}; }), HasSubstr("merge 5"));
  EXPECT_THAT(error_after([](json& j) { j["model"]["merges"][5] = {"qqq", "www"}; }), HasSubstr("\"qqq\""));
  EXPECT_THAT(error_after([](json& j) { j["model"]["merges"][5] = "a b"; }),
              HasSubstr("for all of them alike"));
  EXPECT_THAT(error_after([](json& j) { j["model"].erase("merges"); }), HasSubstr("merges is missing"));
}

TEST(BadTokenizerJson, TextsThatAreNoJson) {
  EXPECT_THAT(error_of(""), HasSubstr("tokenizer.json is not a JSON object"));
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("tokenizer.json is not a JSON object"));
  EXPECT_THAT(error_of(small_tokenizer_json().substr(0, 5000)),
              HasSubstr("tokenizer.json is not a JSON object"));
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("32 levels"));
  EXPECT_THAT(error_of(small_tokenizer_json(), "{"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(error_of(small_tokenizer_json(), R"({"eos_token": "<none>"})"),
              HasSubstr("eos_token is \"\"<none>\"\""));
  EXPECT_THAT(error_of(small_tokenizer_json(), "", R"({"eos_token_id": [1, "x"]})"),
              HasSubstr("generation_config.json"));
  EXPECT_THAT(error_of(small_tokenizer_json(), "", R"({"eos_token_id": 9999})"), HasSubstr("9999"));
}

// Whatever a member is replaced with, there is an answer, and no crash.
TEST(BadTokenizerJson, AnyMemberOfAnyKindIsSurvived) {
  const json original = small_json();
  const std::vector<json> kinds = {nullptr,        true,           -1, 1e300, "x", json::array(),
                                   json::object(), {{{"type", 3}}}};
  std::set<std::string> members;  // and all that they lie in
  const json flat = original.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.starts_with("/model/vocab/") || pointer.starts_with("/model/merges/")) continue;
    for (json::json_pointer at(pointer); !at.empty(); at.pop_back()) members.insert(at.to_string());
  }
  for (const std::string& member : members) {
    for (const json& kind : kinds) {
      json changed = original;
      changed[json::json_pointer(member)] = kind;
      (void)VocabularyTokenizer::from_tokenizer_json(changed.dump());
    }
  }
}

}  // namespace
}  // namespace butter
