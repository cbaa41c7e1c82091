#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::HasSubstr;

std::string open_error(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  return checkpoint ? "opened" : checkpoint.error().message();
}

std::string small_gguf() {
  GgufWriter writer;
  writer.string("general.architecture", "llama");
  writer.tensor("norm.weight", DType::kF32, {2}, "abcdefgh");
  return writer.bytes();
}

std::string small_safetensors() {
  return SafetensorsWriter().tensor("w", "F32", {2}, "abcdefgh").bytes();
}

TEST(Checkpoint, OpensEveryFixtureFolder) {
  for (const char* name : {"llama", "llama3_scaled", "mistral_swa", "qwen2", "qwen3"}) {
    const auto checkpoint = Checkpoint::open(test_data(std::string("fixtures/") + name));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    EXPECT_EQ(checkpoint->format(), CheckpointFormat::kSafetensors);
    EXPECT_EQ(checkpoint->config().get_int("hidden_size").value(), 64);
    EXPECT_TRUE(checkpoint->require_tensor("model.norm.weight", {64}));
    EXPECT_FALSE(checkpoint->tensors().empty());
    EXPECT_TRUE(checkpoint->sidecar("generation_config.json")->has_value());
    EXPECT_FALSE(checkpoint->sidecar("tokenizer.json")->has_value());
  }
}

TEST(Checkpoint, OpensAFileOfEitherKindByItsBytes) {
  const TempDir dir;
  write_test_file(dir.file("model.bin"), small_gguf());
  const auto gguf = Checkpoint::open(dir.file("model.bin"));
  ASSERT_TRUE(gguf) << gguf.error().message();
  EXPECT_EQ(gguf->format(), CheckpointFormat::kGguf);
  EXPECT_STREQ(checkpoint_format_name(gguf->format()), "gguf");
  EXPECT_EQ(gguf->config().get_string("general.architecture").value(), "llama");
  EXPECT_EQ(gguf->file_bytes(), small_gguf().size());

  write_test_file(dir.file("x.safetensors"), small_safetensors());
  write_test_file(dir.file("config.json"), "{\"model_type\": \"llama\"}");
  const auto safetensors = Checkpoint::open(dir.file("x.safetensors"));
  ASSERT_TRUE(safetensors) << safetensors.error().message();
  EXPECT_EQ(safetensors->format(), CheckpointFormat::kSafetensors);
  EXPECT_EQ(safetensors->config().get_string("model_type").value(), "llama");
}

TEST(Checkpoint, AFolderWithOneGgufFileIsThatFile) {
  const TempDir dir;
  write_test_file(dir.file("a.gguf"), small_gguf());
  EXPECT_EQ(Checkpoint::open(dir.path())->weights_path(), dir.file("a.gguf"));
  write_test_file(dir.file("b.gguf"), small_gguf());
  EXPECT_EQ(open_error(dir.path()), dir.path() + " holds 2 GGUF files (a.gguf, b.gguf); name one of them");
  write_test_file(dir.file("model.safetensors"), small_safetensors());
  EXPECT_EQ(open_error(dir.path()),
            dir.path() + " holds both model.safetensors and a.gguf; name one of the files");
}

TEST(Checkpoint, PathsThatHoldNoModelAreRefused) {
  const TempDir dir;
  EXPECT_EQ(open_error(dir.path()),
            "the folder " + dir.path() +
                " holds neither model.safetensors nor model.safetensors.index.json nor a GGUF file");
  EXPECT_EQ(open_error(dir.file("none")), dir.file("none") + " cannot be opened: No such file or directory");
  write_test_file(dir.file("empty.gguf"), "");
  EXPECT_EQ(open_error(dir.file("empty.gguf")), dir.file("empty.gguf") + " is empty");
  write_test_file(dir.file("text"), "Once upon a time");
  EXPECT_EQ(open_error(dir.file("text")),
            dir.file("text") + " begins with \"Once upo\"; a GGUF or safetensors file is expected");
  EXPECT_EQ(open_error(dir.file("text") + "/model"),
            dir.file("text") + "/model cannot be opened: Not a directory");
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_error(dir.file("fifo")), dir.file("fifo") + " is a FIFO; a file is expected");
  EXPECT_THAT(open_error(std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_EQ(open_error(""), "a file name is empty");
  EXPECT_THAT(open_error(std::string(5000, 'x')), HasSubstr("File name too long"));
}

TEST(Checkpoint, ADirectoryInPlaceOfAFileIsRefused) {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("model.safetensors"));
  EXPECT_EQ(open_error(dir.path()), dir.file("model.safetensors") + " is a directory; a file is expected");
}

TEST(Checkpoint, SafetensorsNeedTheirConfiguration) {
  const TempDir dir;
  write_test_file(dir.file("model.safetensors"), small_safetensors());
  EXPECT_EQ(
      open_error(dir.path()),
      dir.file("config.json") + " is missing; a safetensors file is read with the config.json beside it");
  write_test_file(dir.file("config.json"), "{\n\"a\": }");
  EXPECT_THAT(open_error(dir.path()), HasSubstr(dir.path() + "/: config.json: line 2 is not JSON"));
  std::filesystem::remove(dir.file("config.json"));
  ASSERT_EQ(::mkfifo(dir.file("config.json").c_str(), 0600), 0);
  EXPECT_EQ(open_error(dir.path()), dir.file("config.json") + " is a FIFO; a file is expected");
}

TEST(Checkpoint, AnErrorOfTheFileNamesItsPath) {
  const TempDir dir;
  write_test_file(dir.file("x.gguf"), small_gguf().substr(0, 20));
  EXPECT_EQ(open_error(dir.file("x.gguf")),
            dir.file("x.gguf") + ": the key count needs 8 bytes at byte 16; the file ends after 4");
  write_test_file(dir.file("x.safetensors"), "short");
  EXPECT_THAT(open_error(dir.file("x.safetensors")),
              HasSubstr(dir.file("x.safetensors") + ": the file has 5 bytes"));
}

TEST(Checkpoint, RequiredTensorsHaveTheShapeThatTheConfigurationImplies) {
  const auto checkpoint = *Checkpoint::open(test_data("fixtures/llama"));
  EXPECT_EQ(checkpoint.require_tensor("model.layers.3.mlp.up_proj.weight", {172, 64}).error().message(),
            "model.layers.3.mlp.up_proj.weight is [128, 64]; config.json implies [172, 64]");
  EXPECT_EQ(checkpoint.require_tensor("model.gone.weight", {64}).error().message(),
            "model.gone.weight is missing from " + test_data("fixtures/llama/model.safetensors"));
  EXPECT_EQ(checkpoint.find_tensor("model.gone.weight"), nullptr);

  const TempDir dir;
  write_test_file(dir.file("x.gguf"), small_gguf());
  EXPECT_EQ(Checkpoint::open(dir.file("x.gguf"))->require_tensor("norm.weight", {3}).error().message(),
            "norm.weight is [2]; the GGUF metadata implies [3]");

  write_test_file(dir.file("config.json"), "{}");
  write_test_file(
      dir.file("x.safetensors"),
      SafetensorsWriter().tensor("w", "I64", {1}, "abcdefgh").tensor("i", "I32", {1}, "abcd").bytes());
  const auto integers = *Checkpoint::open(dir.file("x.safetensors"));
  EXPECT_EQ(integers.require_tensor("w", {1}).error().message(),
            "w is stored as I64; F32, F16 or BF16 is expected");
  EXPECT_EQ(integers.require_tensor("i", {1}).error().message(),
            "i is stored as I32; F32, F16 or BF16 is expected");
  EXPECT_EQ(integers.find_tensor("w"), nullptr);
  EXPECT_NE(integers.find_tensor("i"), nullptr);
}

TEST(Checkpoint, AnOptionalTensorMayBeMissingButNotWrong) {
  const TempDir dir;
  write_test_file(dir.file("config.json"), "{}");
  SafetensorsWriter writer;
  writer.tensor("head", "F8_E4M3", {8}, "abcdefgh").tensor("bias", "F32", {2}, "abcdefgh");
  writer.write(dir.file("x.safetensors"));
  const auto checkpoint = *Checkpoint::open(dir.file("x.safetensors"));
  EXPECT_FALSE(checkpoint.optional_tensor("gone", {2})->has_value());
  EXPECT_TRUE(checkpoint.optional_tensor("bias", {2})->has_value());
  EXPECT_EQ(checkpoint.optional_tensor("bias", {3}).error().message(),
            "bias is [2]; config.json implies [3]");
  EXPECT_EQ(checkpoint.optional_tensor("head", {8}).error().message(),
            "head is stored as F8_E4M3; F32, F16 or BF16 is expected");
}

TEST(Checkpoint, SidecarsAreTheFilesBesideTheWeights) {
  const TempDir dir;
  write_test_file(dir.file("x.gguf"), small_gguf());
  write_test_file(dir.file("tokenizer.json"), "{}");
  std::filesystem::create_directory(dir.file("chat_template.jinja"));
  const auto checkpoint = *Checkpoint::open(dir.file("x.gguf"));
  EXPECT_EQ(checkpoint.sidecar("tokenizer.json").value(), "{}");
  EXPECT_EQ(checkpoint.sidecar("tokenizer_config.json").value(), std::nullopt);
  EXPECT_THAT(checkpoint.sidecar("chat_template.jinja").error().message(), HasSubstr("is a directory"));
  EXPECT_EQ(checkpoint.sidecar("../x").error().message(), "\"../x\" is no plain file name");
}

TEST(Checkpoint, ATensorsPagesCanBeGivenBackAndReadAgain) {
  const auto checkpoint = *Checkpoint::open(test_data("fixtures/llama"));
  for (const TensorEntry& entry : checkpoint.tensors()) {
    checkpoint.prefetch(entry.view);
    const std::vector<std::byte> before(entry.view.data, entry.view.data + entry.view.bytes());
    checkpoint.release_pages(entry.view);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), entry.view.data)) << entry.name;
  }
  checkpoint.release_pages(TensorView());
}

TEST(Checkpoint, CopiesKeepTheMappingAlive) {
  TensorView view;
  std::optional<Checkpoint> copy;
  {
    const auto checkpoint = *Checkpoint::open(test_data("fixtures/llama"));
    view = *checkpoint.require_tensor("model.norm.weight", {64});
    copy = checkpoint;
  }
  EXPECT_EQ(copy->find_tensor("model.norm.weight")->data, view.data);
  EXPECT_EQ(copy->tensors().front().name, "lm_head.weight");
}

TEST(Checkpoint, ATruncationUnderTheMappingBecomesASentence) {
  install_truncation_guard();
  const TempDir dir;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::string data(2 * page, 'w');
  GgufWriter()
      .tensor("w", DType::kF32, {static_cast<int64_t>(data.size() / 4)}, data)
      .write(dir.file("x.gguf"));
  const auto checkpoint = *Checkpoint::open(dir.file("x.gguf"));
  EXPECT_TRUE(checkpoint.check_undamaged());
  ASSERT_EQ(::truncate(dir.file("x.gguf").c_str(), 100), 0);
  const TensorView view = *checkpoint.find_tensor("w");
  EXPECT_EQ(view.data[view.bytes() - 1], std::byte{0});
  EXPECT_TRUE(checkpoint.damaged());
  EXPECT_EQ(checkpoint.check_undamaged().error().message(),
            dir.file("x.gguf") + " was truncated or could not be read while it was in use");
}

}  // namespace
}  // namespace butter
