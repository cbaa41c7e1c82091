// Whole tokenizer.json files, one for each of their parts: ids and texts equal to those of PyPI `tokenizers`,
// over every string of tests/data/tokenizer/features.json.zst.
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace butter {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

// `tokenizers` gives text; a token that is no UTF-8 in itself is not compared.
bool is_text(const std::string& bytes) {
  return well_formed_utf8_bytes(bytes) == bytes.size();
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDetokenizer stream(tokenizer);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_text(part));
    text += part;
  }
  return text + stream.finish();
}

// How many strings differ; the first few are told.
int count_differences(const Tokenizer& tokenizer, const json& one) {
  int differing = 0;
  const json& texts = one.contains("own_texts") ? one["own_texts"] : features()["texts"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& text = texts[i].get_ref<const std::string&>();
    const auto wanted = one["ids"][i].get<Ids>();
    const Ids got = tokenizer.encode(text, {.parse_special = true}).value();
    if (one.contains("plain")) {
      EXPECT_EQ(shown_ids(tokenizer.encode(text).value()), shown_ids(one["plain"][i].get<Ids>()))
          << one["name"] << " of " << texts[i] << " with special tokens as text";
    }
    const std::string back = tokenizer.decode(wanted);
    const bool same_text = one["decoded"][i].is_null() || back == one["decoded"][i].get<std::string>();
    if (is_text(back)) {
      EXPECT_EQ(streamed(tokenizer, wanted), back);
    }
    if (got == wanted && same_text) continue;
    if (++differing > 3) continue;
    ADD_FAILURE() << one["name"] << " of " << texts[i] << "\n  got      " << shown_ids(got) << "\n  expected "
                  << shown_ids(wanted) << "\n  decoded  "
                  << json(back).dump(-1, ' ', true, json::error_handler_t::replace) << "\n  expected "
                  << one["decoded"][i].dump(-1, ' ', true);
  }
  return differing;
}

TEST(TokenizerFeatures, EveryFileGivesItsIdsAndTheirText) {
  EXPECT_GE(features()["models"].size(), 11u);
  for (const json& one : features()["models"]) {
    const auto tokenizer = VocabularyTokenizer::from_tokenizer_json(one["json"].dump());
    ASSERT_TRUE(tokenizer) << one["name"] << ": " << tokenizer.error().message();
    EXPECT_EQ(count_differences(*tokenizer, one), 0) << one["name"];
  }
}

// Quadratic ways would need minutes here.
TEST(TokenizerFeatures, EveryFileReadsAHundredThousandEqualCharacters) {
  for (const json& one : features()["models"]) {
    if (one.contains("own_texts")) continue;  // those differ in their added tokens alone
    const VocabularyTokenizer tokenizer =
        VocabularyTokenizer::from_tokenizer_json(one["json"].dump()).value();
    for (const std::string character : {"a", " ", "\u5b57", "\u0301", "\xFF"}) {
      std::string text;
      for (int i = 0; i < 100'000; ++i) text += character;
      EXPECT_TRUE(tokenizer.encode(text)) << one["name"];
    }
  }
}

}  // namespace
}  // namespace butter
