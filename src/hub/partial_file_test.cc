#include "hub/partial_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temp_dir.h"

namespace butter {
namespace {

namespace fs = std::filesystem;

TEST(PartialFile, GoesOnInAnotherProcessAndEndsAsTheContentAlone) {
  TempDir folder;
  const std::string path = folder.file("partial");
  {
    auto file = PartialFile::open(path, 10, 4);
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->is_resumed());
    EXPECT_EQ(file->ranges(), 3u);
    ASSERT_TRUE(file->append(1, "ef"));
    ASSERT_TRUE(file->append(2, "ij"));
  }
  auto file = PartialFile::open(path, 10, 4);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->is_resumed());
  EXPECT_EQ(file->done_bytes(), 4);
  EXPECT_EQ(file->range(1).done, 2);
  EXPECT_TRUE(file->range(2).is_whole());
  ASSERT_TRUE(file->append(0, "abcd"));
  ASSERT_TRUE(file->append(1, "gh"));
  ASSERT_TRUE(file->complete());
  EXPECT_EQ(PartialFile::open(path, 10, 4)->done_bytes(), 10);  // killed before the rename
  ASSERT_TRUE(file->rename_to(folder.file("whole")));
  std::ostringstream text;
  text << std::ifstream(folder.file("whole")).rdbuf();
  EXPECT_EQ(text.str(), "abcdefghij");
  EXPECT_FALSE(fs::exists(path));
}

TEST(PartialFile, WhatDoesNotFitBeginsAnew) {
  TempDir folder;
  const std::string path = folder.file("partial");
  const auto begins_anew = [&](int64_t total, int64_t range) {
    const auto file = PartialFile::open(path, total, range);
    return file && !file->is_resumed() && file->done_bytes() == 0;
  };
  ASSERT_TRUE(PartialFile::open(path, 10, 4)->append(0, "ab"));
  EXPECT_TRUE(begins_anew(11, 4));
  ASSERT_TRUE(PartialFile::open(path, 10, 4)->append(0, "ab"));
  EXPECT_TRUE(begins_anew(10, 5));
  ASSERT_TRUE(PartialFile::open(path, 10, 4)->append(0, "ab"));
  std::fstream(path, std::ios::in | std::ios::out).seekp(10 + 24) << "\x7f\x7f\x7f\x7f";  // more than a range
  EXPECT_TRUE(begins_anew(10, 4));
  std::ofstream(path, std::ios::trunc) << "other";
  EXPECT_TRUE(begins_anew(10, 4));
}

TEST(PartialFile, ALinkIsNotFollowed) {
  TempDir folder;
  std::ofstream(folder.file("victim")) << "text";
  fs::create_symlink("victim", folder.file("partial"));
  EXPECT_FALSE(PartialFile::open(folder.file("partial"), 10, 4));
  EXPECT_EQ(fs::file_size(folder.file("victim")), 4u);
}

}  // namespace
}  // namespace butter
