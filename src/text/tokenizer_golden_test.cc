// Ids equal to those of PyPI `tokenizers`, over every string of tests/data/tokenizer/golden.json.zst.
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace butter {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  EncodeOptions options;
  options.parse_special = parse_special;
  return tokenizer.encode(text, options).value();
}

// How many strings differ; the first few are told.
int count_differences(const Tokenizer& tokenizer, const json& cases, bool parse_special) {
  int differing = 0;
  for (const json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const bool as_special = parse_special && one.contains("special");
    const auto wanted = one[as_special ? "special" : "ids"].get<Ids>();
    const Ids got = encode(tokenizer, text, parse_special);
    if (got == wanted) continue;
    if (++differing <= 5) {
      ADD_FAILURE() << json(text).dump() << "\n  got      " << shown_ids(got) << "\n  expected "
                    << shown_ids(wanted);
    }
  }
  return differing;
}

TEST(TokenizerGolden, ThereAreAThousandStringsAndMore) {
  EXPECT_GE(golden()["full"].size(), 1000u);
}

TEST(TokenizerGolden, SpecialTokensAreTextUnlessAskedFor) {
  EXPECT_EQ(count_differences(full_tokenizer(), golden()["full"], false), 0);
}

TEST(TokenizerGolden, SpecialTokensAreParsedWhereAsked) {
  EXPECT_EQ(count_differences(full_tokenizer(), golden()["full"], true), 0);
}

TEST(TokenizerGolden, TokenizerJsonGivesTheIdsOfTheGgufMetadata) {
  for (const bool merge_pairs : {false, true}) {
    const auto tokenizer = VocabularyTokenizer::from_tokenizer_json(full_tokenizer_json(merge_pairs).dump());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    EXPECT_EQ(tokenizer->vocab_size(), full_tokenizer().vocab_size());
    EXPECT_EQ(tokenizer->pre_tokenizer(), "smollm");
    EXPECT_EQ(count_differences(*tokenizer, golden()["full"], false), 0);
    EXPECT_EQ(count_differences(*tokenizer, golden()["full"], true), 0);
  }
}

TEST(TokenizerGolden, ATrainedTokenizerJsonGivesItsIdsAndItsBos) {
  const auto tokenizer = VocabularyTokenizer::from_tokenizer_json(small_tokenizer_json());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(count_differences(*tokenizer, golden()["small"]["plain"], true), 0);
}

TEST(TokenizerGolden, AWholeWordIsItsTokenWhereMergesAreIgnored) {
  json changed = json::parse(small_tokenizer_json());
  json& model = changed["model"];
  model["ignore_merges"] = true;
  model["merges"].erase(model["merges"].begin() + 20, model["merges"].end());
  const auto tokenizer = VocabularyTokenizer::from_tokenizer_json(changed.dump());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(count_differences(*tokenizer, golden()["small"]["ignore_merges"], true), 0);
}

TEST(TokenizerGolden, EveryStringComesBackUnlessAByteHasNoToken) {
  for (const json& one : golden()["full"]) {
    const auto text = one["text"].get<std::string>();
    std::string kept;
    for (const char c : text) {
      if (full_tokenizer().has_byte(static_cast<uint8_t>(c))) kept += c;
    }
    for (const bool parse_special : {false, true}) {
      EXPECT_EQ(full_tokenizer().decode(encode(full_tokenizer(), text, parse_special)), kept);
    }
  }
}

}  // namespace
}  // namespace butter
