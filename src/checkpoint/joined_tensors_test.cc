#include "checkpoint/joined_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "core/dequantise.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.elements()));
  for (int64_t r = 0; r < view.rows(); ++r) dequantise_row(view, r, values.data() + r * view.columns());
  return values;
}

// The file is MLX's own, and so are the values: see tests/data/quants/generate_mlx.py.
TEST(JoinedTensors, ValuesAreThoseOfMlxBitForBit) {
  const auto checkpoint = Checkpoint::open(test_data("quants/mlx"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
  int compared = 0;
  for (const TensorEntry& entry : checkpoint->tensors()) {
    if (!entry.name.ends_with(".weight")) continue;
    const std::string module(entry.name.substr(0, entry.name.size() - 7));
    ASSERT_EQ(entry.unreadable, "") << module;
    const TensorView* expected = checkpoint->find_tensor(module + ".values");
    ASSERT_NE(expected, nullptr);
    ASSERT_EQ(entry.view.shape, expected->shape) << module;
    EXPECT_EQ(entry.view.dtype, DType::kMLX);
    EXPECT_EQ(static_cast<int64_t>(entry.bytes), entry.view.bytes()) << module;
    const std::vector<float> values = values_of(entry.view), recorded = values_of(*expected);
    for (size_t i = 0; i < values.size(); ++i) {
      // FP4 has a minus zero, which is zero here.
      if (recorded[i] == 0 && values[i] == 0 && entry.view.mlx.has_exponents()) continue;
      ASSERT_EQ(std::memcmp(&values[i], &recorded[i], sizeof(float)), 0)
          << module << " element " << i << ": " << values[i] << " for " << recorded[i];
    }
    ++compared;
    EXPECT_EQ(checkpoint->find_tensor(module + ".scales"), nullptr);
    EXPECT_EQ(checkpoint->find_tensor(module + ".biases"), nullptr);
  }
  EXPECT_EQ(compared, 6 * 3 * 3 + 2);
  EXPECT_EQ(checkpoint->find_tensor("b5.g32.F16.weight")->type_name(), "q5 g32 scale+bias");
  EXPECT_EQ(checkpoint->find_tensor("fp4.weight")->type_name(), "fp4 g32 exponent");
}

TEST(JoinedTensors, ARangeOfRowsIsThoseRows) {
  const auto checkpoint = *Checkpoint::open(test_data("quants/mlx"));
  for (const char* name : {"b3.g64.BF16.weight", "fp4.weight", "experts.weight"}) {
    const TensorView whole = *checkpoint.find_tensor(name);
    const TensorView part = whole.row_range(1, 2);
    const std::vector<float> all = values_of(whole), two = values_of(part);
    const auto columns = static_cast<size_t>(whole.columns());
    EXPECT_TRUE(std::equal(two.begin(), two.end(), all.begin() + static_cast<int64_t>(columns))) << name;
    EXPECT_EQ(part.shape, (Shape{2, whole.columns()}));
    EXPECT_EQ(part.bytes() * whole.rows(), whole.bytes() * 2);
  }
}

// One module, X, of 2 rows of 64 columns in 4 bits; tests spoil it.
struct MlxFile {
  std::string config = R"({"quantization": {"group_size": 32, "bits": 4}})";
  std::string words_type = "U32", scale_type = "F16", bias_type = "F16";
  std::vector<int64_t> words = {2, 8}, scales = {2, 2}, biases = {2, 2};
  bool has_scales = true, has_biases = true;

  static std::string zeros(const std::string& type, const std::vector<int64_t>& dims) {
    size_t bytes = type == "U8" ? 1 : type == "F16" || type == "BF16" ? 2 : type == "F64" ? 8 : 4;
    for (const int64_t dim : dims) bytes *= static_cast<size_t>(dim);
    return std::string(bytes, '\0');
  }

  void write(const TempDir& dir) const {
    SafetensorsWriter writer;
    writer.tensor("X.weight", words_type, words, zeros(words_type, words));
    if (has_scales) writer.tensor("X.scales", scale_type, scales, zeros(scale_type, scales));
    if (has_biases) writer.tensor("X.biases", bias_type, biases, zeros(bias_type, biases));
    writer.tensor("X.bias", "F16", {2}, "abcd").write(dir.file("model.safetensors"));
    write_test_file(dir.file("config.json"), config);
  }

  // What asking for X.weight of [2, 64] gives, or opening.
  std::string result() const {
    const TempDir dir;
    write(dir);
    const auto checkpoint = Checkpoint::open(dir.path());
    if (!checkpoint) {
      const std::string& message = checkpoint.error().message();
      return message.substr(message.find(": ") + 2);
    }
    const auto view = checkpoint->require_tensor("X.weight", {2, 64});
    return view ? view->type_name() : view.error().message();
  }
};

TEST(JoinedTensors, AreOneTensorOfTheirLogicalShape) {
  const TempDir dir;
  MlxFile().write(dir);
  const auto checkpoint = *Checkpoint::open(dir.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "X.weight");
  EXPECT_EQ(checkpoint.tensors()[0].bytes, 64u + 8 + 8);
  EXPECT_EQ(checkpoint.tensors()[0].view.shape, (Shape{2, 64}));
  EXPECT_TRUE(checkpoint.require_tensor("X.bias", {2})) << "the ordinary bias is not a part";
  EXPECT_EQ(checkpoint.require_tensor("X.weight", {2, 128}).error().message(),
            "X.weight is [2, 64]; config.json implies [2, 128]");
}

TEST(JoinedTensors, PartsMayLieInDifferentShards) {
  const TempDir dir;
  SafetensorsWriter()
      .tensor("X.weight", "U32", {2, 8}, std::string(64, '\x11'))
      .write(dir.file("model-00001-of-00002.safetensors"));
  SafetensorsWriter()
      .floats("X.scales", DType::kF16, {2, 2}, std::vector<float>{1, 2, 3, 4})
      .floats("X.biases", DType::kF16, {2, 2}, std::vector<float>{0, 0, 0.5f, 0})
      .write(dir.file("model-00002-of-00002.safetensors"));
  write_test_file(dir.file("model.safetensors.index.json"),
                  R"({"weight_map": {"X.weight": "model-00001-of-00002.safetensors",
                                     "X.scales": "model-00002-of-00002.safetensors",
                                     "X.biases": "model-00002-of-00002.safetensors"}})");
  write_test_file(dir.file("config.json"), MlxFile().config);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const auto view = checkpoint->require_tensor("X.weight", {2, 64});
  ASSERT_TRUE(view) << view.error().message();
  checkpoint->prefetch(*view);
  const std::vector<float> values = values_of(*view);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[63], 2);
  EXPECT_EQ(values[64], 3.5f);
  EXPECT_EQ(values[127], 4);
  checkpoint->release_pages(*view);
  EXPECT_EQ(values_of(*view), values);
}

TEST(JoinedTensors, ConfigurationOfAModuleHoldsInsteadOfTheOuterOne) {
  MlxFile file;
  file.config = R"({"quantization": {"group_size": 64, "bits": 8, "X": {"group_size": 32, "bits": 4}}})";
  EXPECT_EQ(file.result(), "q4 g32 scale+bias");
  file.config = R"({"quantization": {"group_size": 32, "bits": 8, "X": {"group_size": 32}}})";
  EXPECT_EQ(file.result(), "q4 g32 scale+bias") << "4 bits are MLX's default";
  file.config = R"({"quantization": {"group_size": 32, "bits": 4, "X": true}})";
  EXPECT_EQ(file.result(), "q4 g32 scale+bias");
  file.config = R"({"quantization_config": {"group_size": 32, "bits": 4}})";
  EXPECT_EQ(file.result(), "q4 g32 scale+bias");
  file.config = R"({"quantization": {"group_size": 64, "bits": 4, "mode": "affine",
                                     "X": {"mode": "mxfp4", "group_size": 32, "bits": 4}}})";
  file.has_biases = false;
  file.scale_type = "U8";
  EXPECT_EQ(file.result(), "fp4 g32 exponent");
}

TEST(JoinedTensors, WhatDoesNotFitIsASentenceWithBothSides) {
  MlxFile file;
  file.has_scales = false;
  EXPECT_EQ(file.result(), "X.weight is stored as U32, the words of MLX's codes, and X.scales is missing");
  file = {};
  file.config = "{}";
  EXPECT_EQ(file.result(),
            "X.weight is stored as U32 with scales beside it; config.json has no quantization to say how");
  file.config = R"({"quantization": {"group_size": 32, "bits": 4, "X": false}})";
  EXPECT_EQ(file.result(),
            "X.weight is stored as U32 with scales beside it; config.json says that it is not quantised");
  file = {};
  file.config = R"({"quantization": {"group_size": 32, "bits": 8}})";
  EXPECT_EQ(
      file.result(),
      "X.weight has 8 words and 2 scales a row, which is 4 bits in groups of 32; config.json says 8 bits");
  file.config = R"({"quantization": {"group_size": 64, "bits": 4}})";
  EXPECT_EQ(
      file.result(),
      "X.weight has 8 words and 2 scales a row, which is 2 bits in groups of 64; config.json says 4 bits");
  file = {};
  file.words = {2, 9};
  EXPECT_EQ(file.result(),
            "X.weight has 9 words and 2 scales a row, which is no whole number of bits in groups of 32; "
            "config.json says 4 bits");
  file = {};
  file.has_biases = false;
  EXPECT_EQ(file.result(),
            "X.weight has no biases beside its scales; config.json says mode affine, which has such");
  file = {};
  file.config = R"({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})";
  EXPECT_EQ(file.result(),
            "X.weight has biases beside its scales; config.json says mode mxfp4, which has none");
  file.has_biases = false;
  EXPECT_EQ(file.result(), "X.weight has X.scales stored as F16; U8 is expected");
  file = {};
  file.scale_type = file.bias_type = "U8";
  EXPECT_EQ(file.result(), "X.weight has X.scales stored as U8; F16, BF16 or F32 is expected");
  file = {};
  file.bias_type = "BF16";
  EXPECT_EQ(file.result(), "X.weight has X.biases stored as BF16; F16 is expected");
  file = {};
  file.scales = {3, 2};
  EXPECT_EQ(file.result(),
            "X.weight has words [2, 8] and X.scales [3, 2]; scales and biases for each row are expected");
  file = {};
  file.biases = {2, 1};
  EXPECT_EQ(file.result(),
            "X.weight has words [2, 8] and X.biases [2, 1]; scales and biases for each row are expected");
  file = {};
  file.words = {16};
  EXPECT_THAT(file.result(), HasSubstr("words [16] and X.scales [2, 2]"));
  file = {};
  file.bias_type = "F64";
  EXPECT_EQ(file.result(), "X.weight has X.biases, which is stored as F64; F32, F16 or BF16 is expected");
}

TEST(JoinedTensors, AQuantisationThatThereIsNotIsRefused) {
  const auto with = [](const std::string& config) {
    MlxFile file;
    file.config = R"({"quantization": )" + config + "}";
    return file.result();
  };
  EXPECT_EQ(with(R"({"group_size": 32, "bits": 7})"),
            "quantization.bits is 7; 2, 3, 4, 5, 6 or 8 is expected");
  EXPECT_EQ(with(R"({"group_size": 48, "bits": 4})"),
            "quantization.group_size is 48; 32, 64 or 128 is expected");
  EXPECT_EQ(with(R"({"group_size": 32, "bits": "4"})"), "quantization.bits is \"4\"; an integer is expected");
  EXPECT_EQ(with(R"({"group_size": 16, "bits": 4, "mode": "nvfp4"})"),
            "quantization.mode is \"nvfp4\"; affine or mxfp4 is expected");
  EXPECT_EQ(with(R"({"group_size": 64, "bits": 4, "mode": "mxfp4"})"),
            "quantization.group_size is 64; 32, with mode mxfp4, is expected");
  EXPECT_EQ(with(R"({"group_size": 32, "bits": 4, "Y": {"bits": 9}})"),
            "quantization.Y.bits is 9; 2, 3, 4, 5, 6 or 8 is expected");
}

TEST(JoinedTensors, EveryFlippedByteOfAHeaderIsReadSafely) {
  SafetensorsWriter writer;
  writer.tensor("X.weight", "U32", {2, 8}, std::string(64, '\x5a'));
  writer.tensor("X.scales", "F16", {2, 2}, std::string(8, '\1'))
      .tensor("X.biases", "F16", {2, 2}, std::string(8, '\2'));
  writer.tensor("Y.weight", "U32", {2, 4}, std::string(32, '\x5a')).tensor("Y.scales", "U8", {2, 1}, "ab");
  writer.tensor("Z_blocks", "U8", {1, 2, 16}, std::string(32, '\1')).tensor("Z_scales", "U8", {1, 2}, "ab");
  const std::string file = writer.bytes();
  const auto config = *Attributes::parse_json(
      R"({"quantization": {"group_size": 32, "bits": 4, "Y": {"mode": "mxfp4"}}})", "config.json");
  int joined_all = 0;
  for (size_t at = 8; at < file.size() - 148; ++at) {
    for (const char flipped : {'\x00', '"', ',', '1', '3', '8', 'X', 'Y'}) {
      std::string wrong = file;
      wrong[at] = flipped;
      const auto parsed = SafetensorsFile::parse(as_bytes(wrong));
      if (!parsed) continue;
      std::vector<std::string> notes;
      const auto joined = join_tensors(config, parsed->tensors(), notes);
      ASSERT_TRUE(joined) << joined.error().message();
      joined_all += joined->entries().size() == 3 ? 1 : 0;
      for (const TensorEntry& entry : joined->entries()) {
        if (entry.view.dtype == DType::kMLX && !entry.view.empty()) (void)values_of(entry.view);
      }
    }
  }
  EXPECT_GT(joined_all, 0);
}

TEST(JoinedTensors, OtherQuantisersAreNoneOfThis) {
  MlxFile file;
  file.config = R"({"quantization_config": {"quant_method": "gptq", "group_size": 7, "bits": 1}})";
  EXPECT_THAT(file.result(), HasSubstr("config.json has no quantization"));
  file.words_type = "F32";
  file.words = {2, 64};
  EXPECT_EQ(file.result(), "F32") << "a float weight with scales beside it is left alone";
}

TEST(JoinedTensors, AModuleThatIsNotThereIsNoted) {
  MlxFile file;
  file.config = R"({"quantization": {"group_size": 32, "bits": 4, "Y.gate": {"bits": 8}, "Z": false}})";
  const TempDir dir;
  file.write(dir);
  EXPECT_THAT(Checkpoint::open(dir.path())->notes(),
              ElementsAre("config.json has a quantization for Y.gate, which is not in the files"));
  write_test_file(
      dir.file("config.json"),
      R"({"quantization": {"group_size": 32, "bits": 4, "Y": {}, "X": {"group_size": 32}, "Z": {}}})");
  EXPECT_THAT(Checkpoint::open(dir.path())->notes(),
              ElementsAre("config.json has a quantization for Y and 1 more, which are not in the files"));
}

TEST(JoinedTensors, PublishedBlocksOfFp4AreOneTensor) {
  const TempDir dir;
  std::string blocks(2 * 3 * 2 * 16, '\x21');  // code 1, then 2
  blocks[0] = '\x7f';
  SafetensorsWriter()
      .tensor("experts.up_blocks", "U8", {2, 3, 2, 16}, blocks)
      .tensor("experts.up_scales", "U8", {2, 3, 2}, std::string(12, '\x80'))
      .tensor("lone_blocks", "U8", {1, 1, 16}, std::string(16, '\0'))
      .tensor("wrong_blocks", "U8", {1, 1, 16}, std::string(16, '\0'))
      .tensor("wrong_scales", "U8", {1, 2}, std::string(2, '\0'))
      .tensor("floats_blocks", "U8", {1, 1, 16}, std::string(16, '\0'))
      .tensor("floats_scales", "F32", {1, 1}, std::string(4, '\0'))
      .tensor("flat_blocks", "U8", {16}, std::string(16, '\0'))
      .write(dir.file("model.safetensors"));
  write_test_file(dir.file("config.json"), R"({"quantization_config": {"quant_method": "mxfp4"}})");
  const auto checkpoint = *Checkpoint::open(dir.path());
  const auto view = checkpoint.require_tensor("experts.up", {2, 3, 64});
  ASSERT_TRUE(view) << view.error().message();
  EXPECT_EQ(view->type_name(), "fp4 g32 exponent");
  const std::vector<float> values = values_of(*view);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 4), ElementsAre(-12, 12, 1, 2));
  EXPECT_EQ(checkpoint.find_tensor("experts.up_scales"), nullptr);
  const std::pair<const char*, const char*> wrong[] = {
      {"lone", "lone is stored as blocks of FP4, and their _scales are missing"},
      {"wrong", "wrong has wrong_scales, U8 [1, 2]; U8 [1, 1] is expected"},
      {"floats", "floats has floats_scales, F32 [1, 1]; U8 [1, 1] is expected"},
      {"flat", "flat has blocks [16]; [..., rows, blocks, 16] is expected"}};
  for (const auto& [name, why] : wrong) {
    EXPECT_TRUE(checkpoint.has_tensor(name));
    EXPECT_EQ(checkpoint.require_tensor(name, {1, 32}).error().message(), why);
  }
}

}  // namespace
}  // namespace butter
