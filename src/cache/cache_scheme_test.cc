#include "cache/cache_scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/row_format.h"

namespace butter {
namespace {

using testing::HasSubstr;

TEST(CacheScheme, NamesAreReadAndPrintedBack) {
  for (const char* text : {"raw", "k=raw,v=raw"}) {
    const auto scheme = parse_scheme(text, DType::kBF16);
    ASSERT_TRUE(scheme) << scheme.error().message();
    EXPECT_EQ(scheme->key, &raw_format());
    EXPECT_EQ(scheme->value, &raw_format());
    EXPECT_EQ(scheme->raw, DType::kBF16);
    EXPECT_EQ(scheme_name(*scheme), "raw");
  }
}

TEST(CacheScheme, EveryFormatAndPairIsReadAndPrintedBack) {
  for (const RowFormat* key : row_formats()) {
    for (const RowFormat* value : row_formats()) {
      const KvScheme scheme{key, value, DType::kF16};
      const auto back = parse_scheme(scheme_name(scheme), DType::kF16);
      ASSERT_TRUE(back) << back.error().message();
      EXPECT_EQ(*back, scheme) << scheme_name(scheme);
      if (!scheme.seals()) continue;
      const auto plain = parse_scheme(scheme_name(scheme) + ":plain", DType::kF16);
      ASSERT_TRUE(plain) << plain.error().message();
      EXPECT_TRUE(plain->plain && plain->key == key && plain->value == value);
      EXPECT_EQ(scheme_name(*plain), scheme_name(scheme) + ":plain");
    }
  }
}

TEST(CacheScheme, ShortNamesMeanTheRecommendedFormats) {
  const struct {
    const char* text;
    const char* name;
  } cases[] = {{"aura", "aura4v4"},
               {"affine", "affine8"},
               {"aura3v2", "aura3v2"},
               {"affine4g32", "affine4"},
               {"k=affine,v=aura", "k=affine8,v=aura4"},
               {"affine4g128", "affine4g128"},
               {"k=aura3,v=aura2", "aura3v2"},
               {"aura:plain", "aura4v4:plain"},
               {"aura:span64", "aura4v4"},
               {"affine4:plain:span256", "affine4:plain:span256"},
               {"k=raw,v=aura2:span128", "k=raw,v=aura2:span128"}};
  for (const auto& test : cases) {
    const auto scheme = parse_scheme(test.text, DType::kF16);
    ASSERT_TRUE(scheme) << scheme.error().message();
    EXPECT_EQ(scheme_name(*scheme), test.name);
  }
}

TEST(CacheScheme, EveryChoiceIsAScheme) {
  for (const std::string& choice : scheme_choices()) {
    const auto scheme = parse_scheme(choice, DType::kF16);
    ASSERT_TRUE(scheme) << scheme.error().message();
    EXPECT_EQ(scheme_name(*scheme), choice);
  }
}

TEST(CacheScheme, WhatIsNoSchemeIsNamedWithThoseThereAre) {
  for (const char* text : {"",
                           "Raw",
                           "aura9v9",
                           "aura5",
                           "affine4g8",
                           "aura3v",
                           "raw:plain",
                           "aura:span",
                           "aura:span63",
                           "aura:span-64",
                           "aura:span64x",
                           "raw:span128",
                           "affine4:",
                           ":plain",
                           "k=raw",
                           "v=raw",
                           "k=raw,v=",
                           "k=,v=raw",
                           "v=raw,k=raw",
                           "=",
                           ",",
                           "raw,raw",
                           "k=raw,v=raw,",
                           "k=raw,v=raw,v=raw",
                           " raw"}) {
    const auto scheme = parse_scheme(text, DType::kF16);
    ASSERT_FALSE(scheme) << text;
    EXPECT_EQ(scheme.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(scheme.error().message(), HasSubstr(std::string("\"") + text + "\""));
    const std::string_view scheme_text = text;
    if (scheme_text != "raw:plain" && scheme_text.find(":span") == std::string_view::npos) {
      EXPECT_THAT(scheme.error().message(), HasSubstr("there is raw, affine8"));
    }
  }
}

}  // namespace
}  // namespace butter
