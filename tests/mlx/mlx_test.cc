// MLX folders of the fixtures: the recorded model where they hold its weights, and the model of the values
// that their codes stand for where they are quantised, on every device, in every form that the CPU has for
// them.
//
// Bounds: that of golden_test.cc for float32 against the recording; none between codes and values on the
// reference device, where both are the same float32 numbers; on the CPU those of block-quantised weights
// against the reference.
#include <gtest/gtest.h>

#include "butter/inspect.h"
#include "checkpoint/safetensors.h"
#include "core/cpu_isa.h"
#include "support/coded_model.h"
#include "support/fixture_mlx.h"
#include "support/run_engine.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

constexpr float kFloatBound = 1e-3f;

Logits run(const std::string& folder, const std::string& device, const Fixture& fixture,
           size_t chunk = 1000000) {
  const auto engine = load_engine(tiny_options(folder, device));
  SequenceOptions options;
  options.max_context = 256;
  Sequence sequence = make_sequence(*engine, options);
  return feed_all(*engine, sequence, fixture.input_ids, chunk);
}

class MlxGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void expect_same_on_reference(const FixtureMlxOptions& options) const {
    const FixtureMlx mlx(fixture_, options);
    const TempDir codes, values;
    mlx.write(codes.path());
    mlx.write_values(values.path());
    EXPECT_EQ(run(codes.path(), "reference", fixture_), run(values.path(), "reference", fixture_));
  }

  const Fixture fixture_ = load_fixture(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Families, MlxGoldenTest, testing::ValuesIn(fixture_names()),
                         [](const auto& instance) { return instance.param; });

TEST_P(MlxGoldenTest, NamesAndShapesOfMlxAreTheRecordedModel) {
  const TempDir folder;
  FixtureMlx(fixture_, {{0, 0, false}, DType::kF32, {}}).write(folder.path());
  const Logits logits = run(folder.path(), "reference", fixture_);
  for (size_t row = 0; row < logits.size(); ++row) {
    const std::span<const float> recorded(fixture_.logits.row(static_cast<int64_t>(row)), logits[row].size());
    ASSERT_LE(max_difference(logits[row], recorded), kFloatBound) << "row " << row;
  }
}

TEST_P(MlxGoldenTest, CodesMeanTheirValuesOnTheReferenceDevice) {
  expect_same_on_reference({{4, 32, false}, DType::kF16, {}});
  expect_same_on_reference({{4, 64, false}, DType::kBF16, {}});
  expect_same_on_reference({{4, 32, true}, DType::kBF16, {}});
}

// As converters make them: an odd module in more bits, one not quantised at all.
TEST_P(MlxGoldenTest, ModulesMayHaveBitsOfTheirOwn) {
  const auto own = [](const std::string& module) -> std::optional<MlxSetting> {
    if (module.ends_with("down_proj")) return MlxSetting{8, 64, false};
    if (module.ends_with("layers.1.self_attn.o_proj")) return MlxSetting{0, 0, false};
    return std::nullopt;
  };
  expect_same_on_reference({{6, 64, false}, DType::kBF16, own});
}

TEST_P(MlxGoldenTest, ShardsAreTheSameModel) {
  const FixtureMlx mlx(fixture_, {{4, 32, false}, DType::kF16, {}});
  const TempDir whole, shards;
  mlx.write(whole.path());
  mlx.write_shards(shards.path());
  EXPECT_EQ(run(shards.path(), "reference", fixture_), run(whole.path(), "reference", fixture_));
}

TEST_P(MlxGoldenTest, EveryInstructionSetStaysByTheReference) {
  const std::vector<MlxSetting> settings =
      kSanitized ? std::vector<MlxSetting>{{4, 64, false}}
                 : std::vector<MlxSetting>{{4, 32, false}, {4, 64, false}, {8, 64, false}, {4, 32, true}};
  for (const MlxSetting& setting : settings) {
    SCOPED_TRACE(testing::Message() << setting.bits << " bits" << (setting.exponents ? ", exponents" : ""));
    const TempDir folder;
    FixtureMlx(fixture_, {setting, DType::kF16, {}}).write(folder.path());
    expect_codes_mean_the_same(fixture_, folder.path());
  }
}

// What loading says after bytes of a part of the file were overwritten.
std::string load_error_with(const std::string& tensor, size_t at, std::string_view bytes, bool exponents,
                            const std::string& device) {
  const Fixture fixture = load_fixture("llama");
  const TempDir folder;
  FixtureMlx(fixture, {{4, 32, exponents}, DType::kBF16, {}}).write(folder.path());
  std::string file = read_test_file(folder.file("model.safetensors"));
  const auto parsed = SafetensorsFile::parse(as_bytes(file));
  const std::byte* data = parsed->tensor(tensor)->data;
  file.replace(static_cast<size_t>(data - as_bytes(file).data()) + at, bytes.size(), bytes);
  write_test_file(folder.file("model.safetensors"), file);
  const auto engine = Engine::load(tiny_options(folder.path(), device));
  return engine ? "loaded" : engine.error().message();
}

TEST(MlxScales, WhatIsNoNumberIsRefusedByItsPlace) {
  for (const char* device : {"cpu", "reference"}) {
    EXPECT_EQ(load_error_with("model.layers.2.mlp.up_proj.scales", 10, "\xc0\x7f", false, device),
              "model.layers.2.mlp.up_proj.weight: the scale of group 1 in row 2 is NaN or infinite; a finite "
              "number "
              "is expected");
    EXPECT_EQ(
        load_error_with("model.embed_tokens.biases", 2, "\x80\xff", false, device),
        "model.embed_tokens.weight: the bias of group 1 in row 0 is NaN or infinite; a finite number is "
        "expected");
    EXPECT_EQ(
        load_error_with("lm_head.scales", 5, "\xff", true, device),
        "lm_head.weight: the scale of group 1 in row 2 is NaN or infinite; a finite number is expected");
    EXPECT_EQ(load_error_with("lm_head.scales", 5, "\xfe", true, device), "loaded");
  }
}

// The experts of gpt-oss as they are published: FP4 blocks of rows that are outputs, gate and up by turns. In
// the float files, whose values these are, rows are inputs.
TEST(PublishedBlocks, AreTheModelOfTheirValues) {
  const Fixture fixture = load_fixture("gpt_oss");
  SafetensorsWriter blocks, values;
  for (const auto& [name, tensor] : fixture.weights) {
    if (tensor.shape.rank() != 3) {
      blocks.floats(name, DType::kBF16, tensor.shape, tensor.values);
      values.floats(name, DType::kBF16, tensor.shape, tensor.values);
      continue;
    }
    const FloatTensor rows = turned(tensor, 0, 1);
    const MlxTensor quantised = quantise_mlx(rows, {4, 32, true}, DType::kU8);
    const int64_t per_row = rows.shape[2] / 32;
    blocks.tensor(name + "_blocks", "U8", {rows.shape[0], rows.shape[1], per_row, 16}, quantised.words);
    blocks.tensor(name + "_scales", "U8", {rows.shape[0], rows.shape[1], per_row}, quantised.scales);
    values.floats(name, DType::kF32, tensor.shape, turned({rows.shape, quantised.values}, 0, 1).values);
  }
  const TempDir of_blocks, of_values;
  const std::string config = read_test_file(fixture.folder + "/config.json");
  for (const auto& [writer, folder] : {std::pair{&blocks, &of_blocks}, std::pair{&values, &of_values}}) {
    writer->write(folder->file("model.safetensors"));
    write_test_file(folder->file("config.json"), config);
  }
  EXPECT_EQ(run(of_blocks.path(), "reference", fixture), run(of_values.path(), "reference", fixture));
}

TEST(MlxForms, InspectShowsThem) {
  const Fixture fixture = load_fixture("llama");
  const TempDir folder;
  FixtureMlx(fixture, {{5, 64, false},
                       DType::kBF16,
                       [](const std::string& module) {
                         return module == "lm_head" ? std::optional(MlxSetting{4, 32, true}) : std::nullopt;
                       }})
      .write(folder.path());
  const auto model = inspect_model(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto expect_tensor = [&](const std::string& name, const std::string& type, std::vector<int64_t> shape,
                                 int64_t bytes) {
    const auto found = std::find_if(model->tensors.begin(), model->tensors.end(),
                                    [&](const TensorDescription& tensor) { return tensor.name == name; });
    ASSERT_NE(found, model->tensors.end()) << name;
    EXPECT_EQ(found->type, type);
    EXPECT_EQ(found->shape, shape);
    EXPECT_EQ(found->bytes, bytes);
  };
  expect_tensor("model.layers.3.mlp.up_proj.weight", "q5 g64 scale+bias", {128, 64}, 128 * (40 + 4));
  expect_tensor("lm_head.weight", "fp4 g32 exponent", {256, 64}, 256 * (32 + 2));
  expect_tensor("model.norm.weight", "BF16", {64}, 128);
  EXPECT_TRUE(model->notes.empty());
}

// --- The writer itself -----------------------------------------------------------------------------------

FloatTensor counting(const Shape& shape, float first) {
  FloatTensor tensor{shape, {}};
  for (int64_t i = 0; i < shape.elements(); ++i) tensor.values.push_back(first + static_cast<float>(i));
  return tensor;
}

TEST(MlxNames, ExpertsAreStackedInTheOrderOfTheirNumbers) {
  NamedTensors hf;
  for (int expert = 0; expert < 12; ++expert) {
    const std::string prefix = fmt::format("model.layers.3.mlp.experts.{}.", expert);
    hf[prefix + "up_proj.weight"] = counting({2, 4}, static_cast<float>(100 * expert));
    hf[fmt::format("backbone.layers.1.mixer.experts.{}.down_proj.weight", expert)] = counting({4, 2}, 1);
  }
  const NamedTensors mlx = mlx_tensors(hf);
  ASSERT_EQ(mlx.size(), 2u);
  const FloatTensor& up = mlx.at("model.layers.3.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ(up.shape, (Shape{12, 2, 4}));
  for (size_t expert = 0; expert < 12; ++expert) EXPECT_EQ(up.values[8 * expert + 7], 100 * expert + 7);
  EXPECT_EQ(mlx.at("backbone.layers.1.mixer.switch_mlp.fc2.weight").shape, (Shape{12, 4, 2}));
}

TEST(MlxNames, MergedGateAndUpAreTakenApartWhereThereAreNoExperts) {
  NamedTensors hf = {{"model.layers.0.shared_mlp.input_linear.weight", counting({6, 2}, 0)},
                     {"model.layers.0.shared_mlp.output_linear.weight", counting({2, 3}, 0)}};
  const NamedTensors dense = mlx_tensors(hf);
  ASSERT_EQ(dense.size(), 3u);
  EXPECT_EQ(dense.at("model.layers.0.mlp.gate_proj.weight").values, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(dense.at("model.layers.0.mlp.up_proj.weight").values, (std::vector<float>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(dense.at("model.layers.0.mlp.down_proj.weight").shape, (Shape{2, 3}));
  hf["model.layers.0.block_sparse_moe.router.layer.weight"] = counting({2, 2}, 0);
  EXPECT_TRUE(mlx_tensors(hf).contains("model.layers.0.shared_mlp.input_linear.weight"));
}

TEST(MlxNames, MatricesOfStackedExpertsAreTakenApartOneByOne) {
  const NamedTensors mlx = mlx_tensors({{"l.block_sparse_moe.input_linear.weight", counting({2, 4, 1}, 0)},
                                        {"l.block_sparse_moe.output_linear.weight", counting({2, 1, 2}, 0)}});
  EXPECT_EQ(mlx.at("l.block_sparse_moe.switch_mlp.gate_proj.weight").values,
            (std::vector<float>{0, 1, 4, 5}));
  EXPECT_EQ(mlx.at("l.block_sparse_moe.switch_mlp.up_proj.weight").values, (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(mlx.at("l.block_sparse_moe.switch_mlp.up_proj.weight").shape, (Shape{2, 2, 1}));
  EXPECT_TRUE(mlx.contains("l.block_sparse_moe.switch_mlp.down_proj.weight"));
}

TEST(MlxNames, TurnedAndMixedExpertsAreUntangled) {
  const NamedTensors mlx = mlx_tensors({{"mlp.experts.gate_up_proj", counting({2, 3, 4}, 0)},
                                        {"mlp.experts.gate_up_proj_bias", counting({2, 4}, 0)},
                                        {"mlp.experts.down_proj", counting({2, 2, 3}, 0)},
                                        {"mlp.experts.down_proj_bias", counting({2, 3}, 0)}});
  ASSERT_EQ(mlx.size(), 6u);
  EXPECT_EQ(mlx.at("mlp.experts.gate_proj.weight").shape, (Shape{2, 2, 3}));
  EXPECT_EQ(mlx.at("mlp.experts.gate_proj.weight").values,
            (std::vector<float>{0, 4, 8, 2, 6, 10, 12, 16, 20, 14, 18, 22}));
  EXPECT_EQ(mlx.at("mlp.experts.up_proj.bias").values, (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(mlx.at("mlp.experts.down_proj.weight").values,
            (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(mlx.at("mlp.experts.down_proj.bias").shape, (Shape{2, 3}));
}

TEST(MlxNames, NormsAreFoldedWhereThereIsADeltaRule) {
  NamedTensors hf = {{"model.layers.0.input_layernorm.weight", counting({2}, 0)},
                     {"model.layers.0.linear_attn.norm.weight", counting({2}, 0)}};
  EXPECT_EQ(mlx_tensors(hf).at("model.layers.0.input_layernorm.weight").values, (std::vector<float>{1, 2}));
  EXPECT_EQ(mlx_tensors(hf).at("model.layers.0.linear_attn.norm.weight").values, (std::vector<float>{0, 1}));
  hf.erase("model.layers.0.linear_attn.norm.weight");
  EXPECT_EQ(mlx_tensors(hf).at("model.layers.0.input_layernorm.weight").values, (std::vector<float>{0, 1}));
}

TEST(MlxNames, ConvolutionsHaveTheirChannelsLast) {
  const NamedTensors mlx = mlx_tensors({{"backbone.layers.0.mixer.conv1d.weight", counting({5, 1, 4}, 0)},
                                        {"backbone.layers.0.mixer.conv1d.bias", counting({5}, 0)}});
  EXPECT_EQ(mlx.at("backbone.layers.0.mixer.conv1d.weight").shape, (Shape{5, 4, 1}));
  EXPECT_EQ(mlx.at("backbone.layers.0.mixer.conv1d.weight").values[7], 7)
      << "a channel's taps stay neighbours";
  EXPECT_EQ(mlx.at("backbone.layers.0.mixer.conv1d.bias").shape, (Shape{5}));
}

}  // namespace
}  // namespace butter
