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

TEST(CacheScheme, WhatIsNoSchemeIsNamedWithThoseThereAre) {
  for (const char* text : {"", "Raw", "aura9v9", "k=raw", "v=raw", "k=raw,v=", "k=,v=raw", "v=raw,k=raw", "=",
                           ",", "raw,raw", "k=raw,v=raw,", "k=raw,v=raw,v=raw", " raw"}) {
    const auto scheme = parse_scheme(text, DType::kF16);
    ASSERT_FALSE(scheme) << text;
    EXPECT_EQ(scheme.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(scheme.error().message(), HasSubstr(std::string("\"") + text + "\""));
    EXPECT_THAT(scheme.error().message(), HasSubstr("there is raw"));
  }
}

}  // namespace
}  // namespace butter
