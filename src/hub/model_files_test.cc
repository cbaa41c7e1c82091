#include "hub/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace butter {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;

const Names kQuantised = {"README.md",
                          "m-Q4_K_M.gguf",
                          "m-Q4_K_S.gguf",
                          "m-IQ4_XS.gguf",
                          "mmproj-Q8_0.gguf",
                          "m-BF16-00001-of-00002.gguf",
                          "m-BF16-00002-of-00002.gguf"};

TEST(ModelFiles, AFolderTakesWhatDescribesTheModelAndItsWeightsOnce) {
  const auto files = choose_model_files(
      {"README.md", "config.json", "consolidated.safetensors", "flax_model.msgpack", "generation_config.json",
       "merges.txt", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
       "model.safetensors.index.json", "onnx/model.onnx", "pytorch_model.bin", "special_tokens_map.json",
       "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "vocab.json",
       "model-Q4_0.gguf"},
      "", "org/m");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->opened, "");
  EXPECT_EQ(files->names, (Names{"chat_template.jinja", "config.json", "generation_config.json", "merges.txt",
                                 "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                 "model.safetensors.index.json", "special_tokens_map.json", "tokenizer.json",
                                 "tokenizer.model", "tokenizer_config.json", "vocab.json"}));
}

TEST(ModelFiles, ByNameAndByTag) {
  EXPECT_EQ(choose_model_files(kQuantised, "m-Q4_K_S.gguf", "org/m")->opened, "m-Q4_K_S.gguf");
  EXPECT_EQ(choose_model_files(kQuantised, "q4_k_m", "org/m")->opened, "m-Q4_K_M.gguf");
  EXPECT_EQ(choose_model_files(kQuantised, "IQ4_XS", "org/m")->opened, "m-IQ4_XS.gguf");
  EXPECT_EQ(choose_model_files(kQuantised, "mmproj-Q8_0.gguf", "org/m")->opened, "mmproj-Q8_0.gguf");
}

TEST(ModelFiles, ATagIsAWord) {
  for (const char* tag : {"Q4_K", "Q4_XS", "Q8_0", "4_K_M", "Q5_K_M"}) {
    const auto files = choose_model_files(kQuantised, tag, "org/m");
    ASSERT_FALSE(files) << tag;
    EXPECT_THAT(files.error().message(), HasSubstr("m-Q4_K_M.gguf, m-Q4_K_S.gguf")) << tag;
  }
}

TEST(ModelFiles, SplitFilesComeWithAllParts) {
  for (const char* name : {"bf16", "m-BF16-00002-of-00002.gguf"}) {
    const auto files = choose_model_files(kQuantised, name, "org/m");
    ASSERT_TRUE(files);
    EXPECT_EQ(files->opened, "m-BF16-00001-of-00002.gguf");
    EXPECT_EQ(files->names, (Names{"m-BF16-00001-of-00002.gguf", "m-BF16-00002-of-00002.gguf"}));
  }
  const auto half = choose_model_files({"m-00002-of-00003.gguf"}, "", "org/m");
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().message(), "org/m has 1 of the 3 parts of m-00002-of-00003.gguf");
}

TEST(ModelFiles, AmbiguityIsListed) {
  const auto several = choose_model_files(kQuantised, "", "org/m");
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().message(), HasSubstr("holds 4 GGUF files"));
  const auto both = choose_model_files({"a-Q4_0.gguf", "b-Q4_0.gguf"}, "Q4_0", "org/m");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().message(), "Q4_0 names 2 GGUF files of org/m: a-Q4_0.gguf, b-Q4_0.gguf");
  EXPECT_EQ(choose_model_files({"a.gguf", "mmproj.gguf"}, "", "org/m")->opened, "a.gguf");
  EXPECT_FALSE(choose_model_files({}, "", "org/m"));
}

}  // namespace
}  // namespace butter
