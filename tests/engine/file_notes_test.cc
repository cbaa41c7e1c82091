// Files that are odd as the model which their configuration says they are: what is there and cannot be read
// is refused where the model would read it, what it does not read is named in a note.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "butter/inspect.h"
#include "engine/model_identity.h"
#include "support/fixture_gguf.h"
#include "support/run_engine.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// A fixture's tensors with changes, and its configuration with others.
class FileNotes : public testing::Test {
 protected:
  void take(const std::string& fixture) {
    fixture_ = load_fixture(fixture);
    config_ = Json::parse(read_test_file(fixture_.folder + "/config.json"));
  }
  void write() {
    for (const auto& [name, tensor] : fixture_.weights)
      writer_.floats(name, DType::kBF16, tensor.shape, tensor.values);
    writer_.write(folder_.file("model.safetensors"));
    write_test_file(folder_.file("config.json"), config_.dump());
  }
  std::string refusal() {
    const auto engine = Engine::load(tiny_options(folder_.path(), "reference"));
    EXPECT_FALSE(engine);
    return engine ? "" : engine.error().message();
  }
  std::vector<std::string> notes() {
    const auto engine = load_engine(tiny_options(folder_.path(), "reference"));
    EXPECT_EQ(inspect_model(folder_.path())->notes, engine->info().notes);
    return engine->info().notes;
  }

  TempDir folder_;
  Fixture fixture_;
  Json config_;
  SafetensorsWriter writer_;
};

TEST_F(FileNotes, EveryTensorOfTheFixturesIsRead) {
  for (const std::string& name : fixture_names())
    EXPECT_THAT(inspect_model(test_data("fixtures/" + name))->notes, IsEmpty()) << name;
}

TEST_F(FileNotes, AHeadThatCannotBeReadIsNotReplacedByTheEmbedding) {
  take("llama");
  const Shape shape = fixture_.weights.at("lm_head.weight").shape;
  writer_.tensor("lm_head.weight", "F8_E4M3", {shape[0], shape[1]},
                 std::string(static_cast<size_t>(shape.elements()), '\1'));
  fixture_.weights.erase("lm_head.weight");
  write();
  EXPECT_THAT(refusal(), HasSubstr("lm_head.weight is stored as F8_E4M3; F32, F16 or BF16 is expected"));
}

TEST_F(FileNotes, AnOptionalBiasThatCannotBeReadIsNotLeftOut) {
  take("mamba2");
  const int64_t rows = fixture_.weights.at("backbone.layers.0.mixer.in_proj.weight").shape[0];
  writer_.tensor("backbone.layers.0.mixer.in_proj.bias", "F64", {rows},
                 std::string(static_cast<size_t>(8 * rows), '\0'));
  write();
  EXPECT_THAT(refusal(), HasSubstr("in_proj.bias is stored as F64"));
}

TEST_F(FileNotes, AnEmbeddingInPlaceOfAStatedHeadIsNoted) {
  take("llama");
  fixture_.weights.erase("lm_head.weight");
  config_["tie_word_embeddings"] = false;
  write();
  EXPECT_THAT(notes(), ElementsAre("tie_word_embeddings is false and the files have no head: the embedding "
                                   "takes its place"));
}

TEST_F(FileNotes, LayersBeyondTheStatedOnesAreNoted) {
  take("llama");
  config_["num_hidden_layers"] = fixture_.number("num_hidden_layers") - 1;
  write();
  const auto noted = notes();
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_THAT(noted[0], testing::MatchesRegex("ignoring model.layers.[0-9]+.[a-z_.]+ and 8 tensors more, for "
                                              "which config.json has no use"));
}

TEST_F(FileNotes, ATensorThatNoConfigurationAskedForIsNoted) {
  take("llama");
  writer_.floats("model.layers.0.self_attn.q_norm.weight", DType::kF32, Shape{2}, std::vector<float>{1, 1});
  write();
  EXPECT_THAT(notes(), ElementsAre("ignoring model.layers.0.self_attn.q_norm.weight, for which config.json "
                                   "has no use"));
}

// Stored as [experts][in][out]: with one channel inside, no dimension of 1 may be taken for another.
TEST_F(FileNotes, ExpertsOfOneChannelAreTheSameInBothForms) {
  take("gpt_oss");
  config_["intermediate_size"] = 1;
  for (auto& [name, tensor] : fixture_.weights) {
    const bool is_down = name.ends_with("down_proj");
    const bool is_up = name.ends_with("gate_up_proj") || name.ends_with("gate_up_proj_bias");
    if (!is_down && !is_up) continue;
    const int64_t experts = tensor.shape[0], hidden = is_down ? tensor.shape[2] : tensor.shape[1];
    FloatTensor cut;
    cut.shape = is_down                    ? Shape{experts, 1, hidden}
                : tensor.shape.rank() == 3 ? Shape{experts, hidden, 2}
                                           : Shape{experts, 2};
    const int64_t kept = is_down ? hidden : 2;  // of each expert or row, the first
    const int64_t run = is_down ? tensor.shape[1] * hidden : tensor.shape[tensor.shape.rank() - 1];
    for (size_t at = 0; at < tensor.values.size(); at += static_cast<size_t>(run))
      cut.values.insert(cut.values.end(), &tensor.values[at], &tensor.values[at] + kept);
    tensor = cut;
  }
  write();
  fixture_.config = *Attributes::parse_json(config_.dump(), "config.json");
  write_fixture_gguf(fixture_, folder_.file("model.gguf"), {DType::kF32, {}, {}});
  const auto folder = load_engine(tiny_options(folder_.file("model.safetensors"), "reference"));
  const auto gguf = load_engine(tiny_options(folder_.file("model.gguf"), "reference"));
  Sequence one = make_sequence(*folder), other = make_sequence(*gguf);
  const std::span<const int32_t> ids(fixture_.input_ids.data(), 20);
  EXPECT_LE(max_difference(feed_all(*folder, one, ids), feed_all(*gguf, other, ids)), 1e-4f);
}

// What a cache's rows depend on is in the model's name.
TEST_F(FileNotes, EveryFactorOfAModelIsInItsIdentity) {
  const auto checkpoint = *Checkpoint::open(test_data("fixtures/llama"));
  const ModelSpec spec = *make_model_spec(checkpoint);
  const std::function<void(ModelSpec&)> changes[] = {
      [](ModelSpec& changed) { changed.embedding_scale = 2; },
      [](ModelSpec& changed) { changed.embedding_norm = NormSpec{}; },
      [](ModelSpec& changed) { changed.layers[1].residual_multiplier = 0.5f; },
      [](ModelSpec& changed) { changed.layers[1].mixer_post_norm = NormSpec{}; },
      [](ModelSpec& changed) { changed.layers[1].ffn_post_norm = NormSpec{}; },
      [](ModelSpec& changed) { changed.layers[1].mixers[0].in_multiplier = 2; },
      [](ModelSpec& changed) {
        std::get<AttentionSpec>(changed.layers[1].mixers[0].kind).k.bias = TensorRef{};
      },
      [](ModelSpec& changed) { std::get<GatedFfnSpec>(*changed.layers[0].ffn).up.bias = TensorRef{}; },
      [](ModelSpec& changed) { std::get<GatedFfnSpec>(*changed.layers[0].ffn).up.weight.first_row = 1; },
      [](ModelSpec& changed) { changed.rope_tables[0].inv_freq[0] *= 2; }};
  const std::string same = *model_identity(spec, checkpoint);
  EXPECT_EQ(*model_identity(spec, checkpoint), same);
  int number = 0;
  for (const auto& change : changes) {
    ModelSpec changed = spec;
    change(changed);
    EXPECT_NE(*model_identity(changed, checkpoint), same) << "change " << number++;
  }
}

}  // namespace
}  // namespace butter
