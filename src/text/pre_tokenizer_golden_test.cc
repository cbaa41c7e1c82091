// Words equal to those of PyPI `tokenizers`, over every string of tests/data/tokenizer/features.json.zst.
#include <gtest/gtest.h>

#include "text/pre_tokenizer.h"
#include "text/tokenizer_json_internal.h"
#include "text/tokenizer_testing.h"

namespace butter {
namespace {

using nlohmann::json;

void expect_same_words(const PreTokenizer& pre_tokenizer, const json& one) {
  int differing = 0;
  const json& texts = features()["texts"];
  for (size_t i = 0; i < texts.size(); ++i) {
    const Words got = words_of(pre_tokenizer, texts[i].get_ref<const std::string&>());
    if (got == one["words"][i].get<Words>()) continue;
    if (++differing > 3) break;
    ADD_FAILURE() << one["name"] << " of " << texts[i] << "\n  got      " << json(got) << "\n  expected "
                  << one["words"][i];
  }
}

Result<PreTokenizer> from_json(const json& pre_tokenizer) {
  BUTTER_ASSIGN(const PreTokenizerSteps steps, read_pre_tokenizer_steps(pre_tokenizer));
  return PreTokenizer::create("of a file", steps.stages);
}

TEST(PreTokenizerGolden, ThereAreThreeHundredStringsAndMore) {
  EXPECT_GE(features()["texts"].size(), 300u);
}

TEST(PreTokenizerGolden, RowsOfTheTableCutAsTheModelsDo) {
  int rows = 0;
  for (const json& one : features()["pre_tokenizers"]) {
    const PreTokenizerRow* const row = PreTokenizer::find_row(one["name"].get<std::string>());
    if (row == nullptr) continue;
    ++rows;
    expect_same_words(PreTokenizer::create(row->names[0]).value(), one);
  }
  EXPECT_EQ(rows, 10);
}

TEST(PreTokenizerGolden, EveryStepOfATokenizerJsonCutsAsThere) {
  for (const json& one : features()["pre_tokenizers"]) {
    const auto made = from_json(one["json"]);
    ASSERT_TRUE(made) << one["name"] << ": " << made.error().message();
    expect_same_words(*made, one);
  }
}

}  // namespace
}  // namespace butter
