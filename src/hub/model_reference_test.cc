#include "hub/model_reference.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

TEST(ModelReference, Forms) {
  const auto whole = parse_model_reference("org/name-1.5B:q4/tiny-Q4_K_M.gguf@refs/pr/1");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->repository, "org/name-1.5B");
  EXPECT_EQ(whole->file, "q4/tiny-Q4_K_M.gguf");
  EXPECT_EQ(whole->revision, "refs/pr/1");
  EXPECT_EQ(whole->text(), "org/name-1.5B:q4/tiny-Q4_K_M.gguf@refs/pr/1");
  const auto plain = parse_model_reference("org/name");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->file, "");
  EXPECT_EQ(plain->revision, "main");
  EXPECT_EQ(plain->text(), "org/name");
}

TEST(ModelReference, WhatIsNone) {
  for (const char* text : {"",
                           "name",
                           "/org/name",
                           "org/name/more",
                           "org//name",
                           "../name",
                           "org/..",
                           "./name",
                           "org/na me",
                           "org/",
                           "/",
                           "org/name:",
                           "org/name@",
                           "org/name:../x",
                           "org/name:/x",
                           "org/name@../x",
                           "org/name@a b",
                           "org/name@-x",
                           "-org/name",
                           "org/a--b",
                           "org/name:a\nb",
                           "models\\x/name",
                           "org/n\xff"}) {
    EXPECT_FALSE(parse_model_reference(text)) << text;
  }
}

TEST(ModelReference, FileNamesOfServers) {
  for (const char* name : {"a", "a/b.gguf", "a.b/..c", "\xc3\xa9.gguf", "a b"})
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  for (const char* name :
       {"", "/a", "a/", "a//b", "..", "a/../b", ".", "a/.", "a\\b", "a\x01", "\x7f", "\xff"})
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  EXPECT_FALSE(is_safe_file_name(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_file_name(std::string(201, 'a')));
  EXPECT_FALSE(is_safe_file_name("a/a/a/a/a/a/a/a/a"));
}

}  // namespace
}  // namespace butter
