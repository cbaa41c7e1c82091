// Texts equal to those of PyPI `tokenizers`, over every string of tests/data/tokenizer/features.json.zst and
// every code point by itself.
#include "text/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer_json_internal.h"
#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace butter {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Kind = NormalizerStep::Kind;

Normalizer make(const std::vector<NormalizerStep>& steps) {
  return Normalizer::create(steps).value();
}

uint64_t hash_of_block(const Normalizer& normalizer, char32_t low) {
  uint64_t value = 0xcbf29ce484222325;
  for (char32_t c = low; c < low + 0x1000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, &text);
    for (const char byte : normalizer.apply(text).value() + "\n")
      value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return value;
}

TEST(NormalizerGolden, EveryStepGivesItsTexts) {
  EXPECT_GE(features()["normalizers"].size(), 15u);
  for (const json& one : features()["normalizers"]) {
    const Normalizer normalizer = make(read_normalizer_steps(one["json"]).value());
    const json& texts = features()["texts"];
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(normalizer.apply(texts[i].get<std::string>()).value(), one["texts"][i].get<std::string>())
          << one["name"] << " of " << texts[i].dump(-1, ' ', true);
    }
  }
}

TEST(NormalizerGolden, EveryCodePointIsAsThere) {
  for (const json& one : features()["normalizers"]) {
    if (!one.contains("hashes")) continue;
    const Normalizer normalizer = make(read_normalizer_steps(one["json"]).value());
    for (char32_t block = 0; block < 0x110; ++block) {
      EXPECT_EQ(hash_of_block(normalizer, block * 0x1000), one["hashes"][block].get<uint64_t>())
          << one["name"] << " from " << std::hex << static_cast<uint32_t>(block * 0x1000);
    }
  }
}

TEST(Normalizer, BytesThatAreNoUtf8StayWhereTheyAre) {
  EXPECT_EQ(make({{Kind::kNfc}})
                .apply("e\u0301\xFF"
                       "e\u0301\xE2\x82")
                .value(),
            "\u00E9\xFF\u00E9\xE2\x82");
  EXPECT_EQ(make({{Kind::kStrip, "", "", true, true}}).apply(" \xFF\x80 ").value(), "\xFF\x80");
}

// utf8proc's own order of marks would need hours here.
TEST(Normalizer, ARunOfMarksIsDoneInTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0316";
  const std::string normalized = make({{Kind::kNfd}}).apply(text).value();
  EXPECT_EQ(normalized.size(), text.size());
  EXPECT_EQ(normalized.substr(0, 5), "a\u0316\u0316");
}

TEST(Normalizer, ATextThatGrowsWithoutBoundIsAnError) {
  const std::vector<NormalizerStep> steps(8, {Kind::kReplaceText, "a", std::string(256, 'a')});
  const auto grown = make(steps).apply("aaaa");
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code(), StatusCode::kLimit);
  EXPECT_THAT(grown.error().message(), HasSubstr("more than 1048832 bytes"));
}

TEST(Normalizer, StepsAreCounted) {
  const auto made = Normalizer::create(std::vector<NormalizerStep>(33, {Kind::kNfc}));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("33 steps; at most 32"));
}

}  // namespace
}  // namespace butter
