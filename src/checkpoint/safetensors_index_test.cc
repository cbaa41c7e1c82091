#include "checkpoint/safetensors_index.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

// A folder with a model in two shards, as Hugging Face has them.
struct ShardedFolder {
  TempDir dir;

  ShardedFolder() {
    write_test_file(dir.file("config.json"), R"({"model_type": "llama"})");
    SafetensorsWriter()
        .tensor("a", "F32", {1}, "aaaa")
        .tensor("b", "F32", {2}, "bbbbbbbb")
        .write(dir.file(kFirst));
    SafetensorsWriter().tensor("c", "BF16", {2}, "cccc").write(dir.file(kSecond));
    write_map(fmt::format(R"("a": "{}", "c": "{}", "b": "{}")", kFirst, kSecond, kFirst));
  }
  std::string index() const { return dir.file("model.safetensors.index.json"); }
  void write_map(const std::string& entries) const {
    write_test_file(index(), R"({"metadata": {"total_size": 16}, "weight_map": {)" + entries + "}}");
  }
  std::string error() const {
    const auto checkpoint = Checkpoint::open(dir.path());
    return checkpoint ? "opened" : checkpoint.error().message();
  }
};

TEST(SafetensorsIndex, AModelIsTheTensorsOfAllItsShards) {
  const ShardedFolder folder;
  for (const std::string& path : {folder.dir.path(), folder.index()}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->format(), CheckpointFormat::kSafetensors);
    EXPECT_EQ(checkpoint->weights_path(), folder.index());
    EXPECT_EQ(checkpoint->config().get_string("model_type").value(), "llama");
    ASSERT_EQ(checkpoint->tensors().size(), 3u);
    EXPECT_EQ(checkpoint->require_tensor("b", {2})->data[0], std::byte{'b'});
    EXPECT_EQ(checkpoint->require_tensor("c", {2})->data[3], std::byte{'c'});
    checkpoint->release_pages(*checkpoint->require_tensor("c", {2}));
    EXPECT_EQ(checkpoint->file_bytes(), std::filesystem::file_size(folder.dir.file(kFirst)) +
                                            std::filesystem::file_size(folder.dir.file(kSecond)));
    EXPECT_EQ(checkpoint->require_tensor("gone", {1}).error().message(),
              "gone is missing from " + folder.index());
  }
}

TEST(SafetensorsIndex, OneFileIsPreferredToAnIndex) {
  const ShardedFolder folder;
  SafetensorsWriter().tensor("w", "F32", {1}, "wwww").write(folder.dir.file("model.safetensors"));
  EXPECT_EQ(Checkpoint::open(folder.dir.path())->tensors().size(), 1u);
}

TEST(SafetensorsIndex, AMissingOrWrongShardIsNamed) {
  const ShardedFolder folder;
  write_test_file(folder.dir.file(kSecond), "short");
  EXPECT_THAT(folder.error(),
              HasSubstr(folder.index() + ": " + folder.dir.file(kSecond) + ": the file has 5 bytes"));
  std::filesystem::remove(folder.dir.file(kSecond));
  EXPECT_EQ(folder.error(), folder.index() + ": " + folder.dir.file(kSecond) +
                                " cannot be opened: No such file or directory");
  std::filesystem::create_directory(folder.dir.file(kSecond));
  EXPECT_THAT(folder.error(), HasSubstr("is a directory; a file is expected"));
}

TEST(SafetensorsIndex, NamesThatLeaveTheFolderAreRefused) {
  const ShardedFolder folder;
  for (const char* name : {"../x", "/etc/passwd", "sub/x.safetensors", "..", ".", ""}) {
    folder.write_map(fmt::format(R"("a": "{}")", name));
    EXPECT_EQ(
        folder.error(),
        folder.index() +
            fmt::format(": weight_map.a is \"{}\"; the plain name of a file beside the index is expected",
                        name));
  }
  folder.write_map(R"("a": "x\u0000y")");
  EXPECT_THAT(folder.error(), HasSubstr("the plain name of a file beside the index is expected"));
}

TEST(SafetensorsIndex, APromisedTensorMustBeInItsShard) {
  const ShardedFolder folder;
  folder.write_map(fmt::format(R"("a": "{}", "b": "{}", "c": "{}")", kFirst, kSecond, kSecond));
  EXPECT_EQ(folder.error(), folder.index() + ": the index promises b in " + folder.dir.file(kSecond) +
                                ", which holds 1 tensors and not that one");
}

TEST(SafetensorsIndex, ATensorInTwoShardsIsRefused) {
  const ShardedFolder folder;
  SafetensorsWriter()
      .tensor("c", "F32", {1}, "cccc")
      .tensor("a", "F32", {1}, "aaaa")
      .write(folder.dir.file(kSecond));
  EXPECT_EQ(folder.error(), folder.index() + ": the tensor a is in both " + kFirst + " and " + kSecond);
  folder.write_map(fmt::format(R"("a": "{}", "a": "{}")", kFirst, kSecond));
  EXPECT_THAT(folder.error(), HasSubstr("is there twice"));
}

TEST(SafetensorsIndex, AWrongIndexIsASentence) {
  const ShardedFolder folder;
  const auto with = [&](const std::string& text) {
    write_test_file(folder.index(), text);
    return folder.error();
  };
  EXPECT_THAT(with("{}"), HasSubstr(": weight_map is missing from the index; an object is expected"));
  EXPECT_THAT(with(R"({"weight_map": []})"), HasSubstr("weight_map is an array of 0; an object is expected"));
  EXPECT_THAT(with(R"({"weight_map": {}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(with(R"({"weight_map": {"a": 3}})"), HasSubstr("weight_map.a is 3; a string is expected"));
  EXPECT_THAT(with("weights"), HasSubstr("is not JSON"));
  std::string many;
  for (int i = 0; i <= kMaxWeightFiles; ++i)
    many += fmt::format(R"({}"t{}": "s{}")", i == 0 ? "" : ",", i, i);
  folder.write_map(many);
  EXPECT_THAT(folder.error(), HasSubstr("weight_map names more than 1000 files; at most 1000 are read"));
}

TEST(SafetensorsIndex, AFolderWithAGgufFileBesideTheIndexIsAmbiguous) {
  const ShardedFolder folder;
  GgufWriter().write(folder.dir.file("x.gguf"));
  EXPECT_EQ(folder.error(),
            folder.dir.path() + " holds both model.safetensors.index.json and x.gguf; name one of the files");
}

// A sparse file: takes no room on most file systems.
TEST(Safetensors, DataBeyondFourGigabytesIsFound) {
  const TempDir dir;
  const uint64_t offset = uint64_t{5} << 30;
  const std::string header =
      safetensors_bytes(fmt::format(R"({{"gap":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}},)"
                                    R"("far":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}})",
                                    offset, offset, offset, offset + 8),
                        "");
  const std::string path = dir.file("model.safetensors");
  write_test_file(path, header);
  write_test_file(dir.file("config.json"), "{}");
  if (::truncate(path.c_str(), static_cast<off_t>(header.size() + offset + 8)) != 0)
    GTEST_SKIP() << "no sparse file of 5 GiB here";
  const int file = ::open(path.c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(file, "far away", 8, static_cast<off_t>(header.size() + offset)), 8);
  ::close(file);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_EQ(std::memcmp(checkpoint->require_tensor("far", {2})->data, "far away", 8), 0);
}

}  // namespace
}  // namespace butter
