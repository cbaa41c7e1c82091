#include "checkpoint/gguf_split.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "checkpoint/checkpoint.h"
#include "support/gguf_writer.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;

// The tensor of part `part` is part.N.
GgufWriter part_writer(int part, int parts, int tensors) {
  GgufWriter writer;
  if (part == 1) writer.string("general.architecture", "llama").value<uint32_t>("llama.block_count", 2);
  writer.value<uint16_t>("split.no", static_cast<uint16_t>(part - 1));
  writer.value<uint16_t>("split.count", static_cast<uint16_t>(parts));
  writer.value<int32_t>("split.tensors.count", tensors);
  writer.tensor(fmt::format("part.{}", part), DType::kF32, {2}, std::string(8, static_cast<char>(part)));
  return writer;
}

// A folder with a model in three parts.
struct SplitFolder {
  TempDir dir;

  SplitFolder() {
    for (int part = 1; part <= 3; ++part) part_writer(part, 3, 3).write(path(part));
  }
  std::string path(int part) const { return dir.file(fmt::format("x-{:05}-of-00003.gguf", part)); }
  std::string error() const {
    const auto checkpoint = Checkpoint::open(path(1));
    return checkpoint ? "opened" : checkpoint.error().message();
  }
};

TEST(GgufSplit, NamesAreReadAndWritten) {
  const auto name = parse_split_name("/a/model-q4-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "/a/model-q4");
  EXPECT_EQ(name->part, 2);
  EXPECT_EQ(name->parts, 10);
  EXPECT_EQ(split_name(*name), "/a/model-q4-00002-of-00010.gguf");
  for (const char* wrong : {"", "model.gguf", "-00001-of-00002.gguf", "m-0001-of-00002.gguf",
                            "m-00001-of-00002.bin", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf",
                            "m-0000x-of-00002.gguf", "m-00001_of_00002.gguf", "m_00001-of-00002.gguf"}) {
    EXPECT_FALSE(parse_split_name(wrong)) << wrong;
  }
}

TEST(GgufSplit, AModelIsTheTensorsOfAllItsParts) {
  const SplitFolder folder;
  for (const std::string& path : {folder.path(1), folder.dir.path()}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->weights_path(), folder.path(1));
    EXPECT_EQ(checkpoint->config().get_int("llama.block_count").value(), 2);
    ASSERT_EQ(checkpoint->tensors().size(), 3u);
    uint64_t bytes = 0;
    for (int part = 1; part <= 3; ++part) {
      const auto view = checkpoint->require_tensor(fmt::format("part.{}", part), {2});
      ASSERT_TRUE(view) << view.error().message();
      checkpoint->prefetch(*view);
      checkpoint->release_pages(*view);
      EXPECT_EQ(view->data[7], static_cast<std::byte>(part));
      bytes += std::filesystem::file_size(folder.path(part));
    }
    EXPECT_EQ(checkpoint->file_bytes(), bytes);
  }
}

TEST(GgufSplit, ACountOfOneOrZeroIsAWholeModel) {
  const TempDir dir;
  for (uint16_t count : {uint16_t{0}, uint16_t{1}}) {
    GgufWriter().value<uint16_t>("split.count", count).write(dir.file("x.gguf"));
    EXPECT_TRUE(Checkpoint::open(dir.file("x.gguf")));
  }
  GgufWriter().value<int32_t>("split.count", -1).write(dir.file("x.gguf"));
  EXPECT_THAT(Checkpoint::open(dir.file("x.gguf")).error().message(), HasSubstr("split.count is -1"));
  GgufWriter().value<uint64_t>("split.count", UINT64_MAX).write(dir.file("x.gguf"));
  EXPECT_THAT(Checkpoint::open(dir.file("x.gguf")).error().message(), HasSubstr("split.count is 1844674"));
}

TEST(GgufSplit, AModelIsOpenedByItsFirstPart) {
  const SplitFolder folder;
  EXPECT_EQ(Checkpoint::open(folder.path(2)).error().message(),
            folder.path(2) +
                ": the file is number 1 of 3 parts, counted from 0 (split.no); a split model is opened by "
                "number 0");
  std::filesystem::rename(folder.path(1), folder.dir.file("renamed.gguf"));
  EXPECT_THAT(
      Checkpoint::open(folder.dir.file("renamed.gguf")).error().message(),
      HasSubstr("renamed.gguf: split.count is 3; a file name that ends in -00001-of-00003.gguf is expected"));
}

TEST(GgufSplit, AMissingPartIsNamed) {
  const SplitFolder folder;
  std::filesystem::remove(folder.path(3));
  EXPECT_EQ(folder.error(), folder.path(1) + ": part 3 of the 3 that split.count promises: " +
                                folder.path(3) + " cannot be opened: No such file or directory");
  EXPECT_THAT(Checkpoint::open(folder.dir.path()).error().message(), HasSubstr("part 3 of the 3"));
  write_test_file(folder.path(3), "Once upon a time");
  EXPECT_THAT(folder.error(),
              HasSubstr(folder.path(3) + ": the file begins with \"Once\"; \"GGUF\" is expected"));
}

TEST(GgufSplit, APartInAnothersPlaceIsNamed) {
  const SplitFolder folder;
  part_writer(2, 3, 3).write(folder.path(3));
  EXPECT_EQ(folder.error(),
            folder.path(1) + ": " + folder.path(3) + ": split.no is 1; 2 is expected in part 3 of 3");
}

TEST(GgufSplit, PartsOfAnotherModelAreNamed) {
  const SplitFolder folder;
  part_writer(3, 4, 3).write(folder.path(3));
  EXPECT_THAT(folder.error(), HasSubstr("split.count is 4; 3 is expected in part 3 of 3"));
  part_writer(3, 3, 7).write(folder.path(3));
  EXPECT_THAT(folder.error(), HasSubstr("split.tensors.count is 7; 3 is expected in part 3 of 3"));
  part_writer(3, 3, 3).string("general.architecture", "qwen3").write(folder.path(3));
  EXPECT_THAT(folder.error(),
              HasSubstr("general.architecture is \"qwen3\"; \"llama\", as in the first part, is expected"));
  GgufWriter().tensor("part.3", DType::kF32, {1}, "abcd").write(folder.path(3));
  EXPECT_THAT(folder.error(), HasSubstr("split.count is missing from the GGUF metadata"));
}

TEST(GgufSplit, TheTensorsOfAllPartsAreCountedAndDiffer) {
  const SplitFolder folder;
  part_writer(3, 3, 3).tensor("more", DType::kF32, {1}, "abcd").write(folder.path(3));
  EXPECT_EQ(folder.error(), folder.path(1) + ": the 3 parts hold 4 tensors; split.tensors.count is 3");
  GgufWriter twice;
  twice.value<uint16_t>("split.no", 2)
      .value<uint16_t>("split.count", 3)
      .value<int32_t>("split.tensors.count", 3);
  twice.tensor("part.2", DType::kF32, {1}, "abcd").write(folder.path(3));
  EXPECT_EQ(
      folder.error(),
      folder.path(1) + ": the tensor part.2 is in both x-00002-of-00003.gguf and x-00003-of-00003.gguf");
}

TEST(GgufSplit, AFolderWithPartsOfTwoModelsIsAmbiguous) {
  const SplitFolder folder;
  part_writer(1, 2, 3).write(folder.dir.file("y-00001-of-00002.gguf"));
  EXPECT_THAT(Checkpoint::open(folder.dir.path()).error().message(), HasSubstr("holds 4 GGUF files"));
}

TEST(GgufSplit, ATruncatedPartBecomesASentence) {
  install_truncation_guard();
  const SplitFolder folder;
  const auto checkpoint = *Checkpoint::open(folder.path(1));
  ASSERT_EQ(::truncate(folder.path(2).c_str(), 10), 0);
  EXPECT_EQ(checkpoint.check_undamaged().error().message(),
            folder.path(2) + " was truncated or could not be read while it was in use");
}

// A sparse file: takes no room on most file systems.
TEST(Gguf, DataBeyondFourGigabytesIsFound) {
  const TempDir dir;
  const uint64_t offset = (uint64_t{5} << 30) + 64;
  GgufWriter writer;
  writer.tensor("near", DType::kF32, {1}, "near");
  writer.tensor({"far", {2}, 0, "", offset});
  const std::string header = writer.bytes();
  const std::string path = dir.file("big.gguf");
  write_test_file(path, header);
  const uint64_t data_begin = header.size() - 32;  // "near", padded, is all the data there is
  if (::truncate(path.c_str(), static_cast<off_t>(data_begin + offset + 8)) != 0)
    GTEST_SKIP() << "no sparse file of 5 GiB here";
  const int file = ::open(path.c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(file, "far away", 8, static_cast<off_t>(data_begin + offset)), 8);
  ::close(file);
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_EQ(std::memcmp(checkpoint->require_tensor("near", {1})->data, "near", 4), 0);
  EXPECT_EQ(std::memcmp(checkpoint->require_tensor("far", {2})->data, "far away", 8), 0);
}

}  // namespace
}  // namespace butter
