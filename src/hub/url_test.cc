#include "hub/url.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

TEST(Url, Parts) {
  const auto url = parse_url("https://example.org/a/b?c=d%2F&e=f#g");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->origin(), "https://example.org:443");
  EXPECT_EQ(url->path, "/a/b?c=d%2F&e=f");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080")->origin(), "http://127.0.0.1:8080");
  EXPECT_EQ(parse_url("http://[::1]:81/x")->host, "[::1]");
  EXPECT_EQ(parse_url("http://h?q")->path, "/?q");
}

TEST(Url, WhatIsNone) {
  for (const char* text :
       {"", "example.org", "ftp://h/", "https://", "https:///x", "http://h:0/", "http://h:99999/",
        "http://h:x/", "http://user@h/", "http://h/a b", "http://h/\r\nX: y", "http://h\xff/"}) {
    EXPECT_FALSE(parse_url(text)) << text;
  }
}

TEST(Url, Locations) {
  const Url base = *parse_url("https://h/a/b");
  EXPECT_EQ(resolve_location(base, "/c?d")->path, "/c?d");
  EXPECT_EQ(resolve_location(base, "/c?d")->origin(), base.origin());
  EXPECT_EQ(resolve_location(base, "https://other/x")->origin(), "https://other:443");
  EXPECT_EQ(resolve_location(base, "//other/x")->origin(), "https://other:443");
  EXPECT_FALSE(resolve_location(base, "http://other/x"));
  EXPECT_FALSE(resolve_location(base, "c"));
}

TEST(Url, PercentEncoding) {
  EXPECT_EQ(percent_encoded("a b/\xc3\xa9+?.~"), "a%20b%2F%C3%A9%2B%3F.~");
  EXPECT_EQ(percent_encoded("a/b", "/"), "a/b");
}

}  // namespace
}  // namespace butter
