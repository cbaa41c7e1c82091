// Recorded logits and greedy continuations of a tiny model of each family (docs/families.md).
//
// Bounds: 1e-3 where rows and arithmetic are float32; 2e-2 where rows are fp16; 2e-1 where all is bf16. The
// recordings' own 16-bit runs move by 4e-3 and 8e-2.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/cpu_isa.h"
#include "support/coded_model.h"
#include "support/fixture_gguf.h"
#include "support/run_engine.h"
#include "support/safetensors_writer.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

constexpr float kFloatBound = 1e-3f;
constexpr float kFp16Bound = 2e-2f;
constexpr float kBf16Bound = 2e-1f;
const std::vector<size_t> kChunks =
    kSanitized ? std::vector<size_t>{5, 64} : std::vector<size_t>{1, 5, 16, 64, 200};
constexpr size_t kGreedyPrompt = 16;

// What a GGUF file of a fixture's weights says of the model: all, but that dt has no floor in Nemotron-H, and
// that Mamba2 norms each group, as Nemotron-H does.
std::string folder_of_gguf_model(const Fixture& fixture, const std::string& scratch) {
  const bool mamba2 = fixture.name == "mamba2";
  if (!mamba2 && fixture.name.rfind("nemotron", 0) != 0) return fixture.folder;
  nlohmann::json config = nlohmann::json::parse(read_test_file(fixture.folder + "/config.json"));
  config["time_step_min"] = 0.0;
  if (mamba2) {
    config["model_type"] = "nemotron_h";
    config["hybrid_override_pattern"] =
        std::string(static_cast<size_t>(fixture.number("num_hidden_layers")), 'M');
    config["mamba_num_heads"] = config["num_heads"];
    config["mamba_head_dim"] = config["head_dim"];
    config["ssm_state_size"] = config["state_size"];
    config["num_attention_heads"] = config["num_key_value_heads"] = 1;
  }
  std::filesystem::create_directory(scratch);
  write_test_file(scratch + "/config.json", config.dump());
  std::filesystem::copy(fixture.folder + "/model.safetensors", scratch + "/model.safetensors");
  return scratch;
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  GoldenTest() : fixture_(load_fixture(GetParam())) {
    for (int64_t r = 0; r < fixture_.logits.shape[0]; ++r) {
      expected_.emplace_back(fixture_.logits.row(r), fixture_.logits.row(r) + fixture_.vocabulary());
    }
  }

  Logits run(Engine& engine, size_t chunk = 1000000) const {
    Sequence sequence = make_sequence(engine, short_sequence());
    return feed_all(engine, sequence, fixture_.input_ids, chunk);
  }

  // The experts that float32 arithmetic chooses.
  Routes& sure_routes() {
    if (!routes_) {
      const auto reference = load_engine(tiny_options(model_folder_, "reference"));
      routes_ = Routes::of(*reference, fixture_.input_ids);
    }
    return *routes_;
  }

  void expect_greedy(Engine& engine) const {
    Sequence sequence = make_sequence(engine, short_sequence());
    std::vector<int32_t> ids(fixture_.greedy.begin(), fixture_.greedy.begin() + kGreedyPrompt);
    Sampler sampler{SamplingOptions{}};
    std::vector<int32_t> fed = ids;
    while (ids.size() < fixture_.greedy.size()) {
      const auto next = engine.forward_sample(sequence, fed, sampler);
      ASSERT_TRUE(next) << next.error().message();
      ids.push_back(*next);
      fed.assign(1, *next);
    }
    EXPECT_EQ(ids, fixture_.greedy);
  }

  // The most likely token is the recorded one wherever that is ahead by more than the bound.
  void expect_same_choices(const Logits& logits, float bound) const {
    for (size_t r = 0; r < logits.size(); ++r) {
      if (top_gap(expected_[r]) > bound) {
        EXPECT_EQ(argmax(logits[r]), argmax(expected_[r])) << "row " << r;
      }
    }
  }

  Logits sure_logits(std::span<const int32_t> ids) {
    if (sure_.empty()) {
      const auto reference = load_engine(tiny_options(model_folder_, "reference"));
      Sequence sequence = make_sequence(*reference, short_sequence());
      sure_ = feed_all(*reference, sequence, ids);
    }
    return sure_;
  }

  // Greedy choices along the recorded continuation, where float32 arithmetic is sure of them.
  void expect_greedy_where_sure(Engine& engine, float bound) {
    Sequence sequence = make_sequence(engine, short_sequence());
    const std::span<const int32_t> ids(fixture_.greedy.data(), fixture_.greedy.size() - 1);
    const Logits logits = feed_all(engine, sequence, ids, 1), sure = sure_logits(ids);
    for (size_t r = kGreedyPrompt - 1; r < ids.size(); ++r) {
      if (top_gap(sure[r]) > bound) {
        EXPECT_EQ(argmax(logits[r]), argmax(sure[r])) << "after token " << r;
      }
    }
  }

  // Everything that is promised of one file on one instruction set. `bound` holds where weights keep their
  // type.
  void expect_golden_on(Isa isa, const std::string& model, float bound) {
    SCOPED_TRACE(std::string(isa_name(isa)) + " " + model);
    const ScopedIsa forced(isa_name(isa));
    const auto engine = load_engine(tiny_options(model, "cpu")),
               three = load_engine(tiny_options(model, "cpu", 3));
    ASSERT_EQ(engine->info().isa, isa_name(isa));
    Routes& routes = sure_routes();
    const auto run_on = [&](Engine& on, size_t chunk) {
      return routes.impose(on, fixture_.input_ids, chunk, bound);
    };
    const Logits whole = run_on(*engine, fixture_.input_ids.size());
    EXPECT_LE(max_difference(whole, expected_), bound);
    EXPECT_EQ(run_on(*three, fixture_.input_ids.size()), whole) << "3 threads";
    expect_same_choices(whole, bound);
    for (size_t chunk : kChunks) {
      const Logits logits = run_on(*engine, chunk);
      EXPECT_LE(max_difference(logits, expected_), bound) << "chunks of " << chunk;
      EXPECT_LE(max_difference(logits, whole), bound) << "chunks of " << chunk;
      if (chunk == 5) {
        EXPECT_EQ(run_on(*three, chunk), logits) << "3 threads, chunks of " << chunk;
      }
    }
    if (routes.empty()) expect_greedy_where_sure(*engine, bound);
  }

  const Fixture fixture_;
  std::string model_folder_ = fixture_.folder;  // of the model that is expected
  Logits expected_;
  Logits sure_;  // float32, along the greedy continuation
  std::optional<Routes> routes_;
  TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(fixture_names()),
                         [](const auto& instance) { return instance.param; });

// Families of which GGUF says all: its Llama architecture has no key for Mistral's window.
class GgufGoldenTest : public GoldenTest {
 protected:
  GgufGoldenTest() {
    model_folder_ = folder_of_gguf_model(fixture_, folder_.file("model"));
    if (model_folder_ == fixture_.folder) return;
    const auto reference = load_engine(tiny_options(model_folder_, "reference"));
    expected_ = run(*reference);
  }
};

std::vector<std::string> gguf_fixtures() {
  std::vector<std::string> names = fixture_names();
  std::erase(names, "mistral_swa");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldenTest, testing::ValuesIn(gguf_fixtures()),
                         [](const auto& instance) { return instance.param; });

TEST_P(GoldenTest, ReferenceDeviceGivesTheRecordedLogits) {
  const auto engine = load_engine(tiny_options(fixture_.folder, "reference"));
  const Logits logits = run(*engine);
  EXPECT_LE(max_difference(logits, expected_), kFloatBound);
  expect_same_choices(logits, kFloatBound);
  expect_greedy(*engine);
}

TEST_P(GoldenTest, ReferenceDeviceDoesNotSeeHowAPromptIsCut) {
  const auto engine = load_engine(tiny_options(fixture_.folder, "reference"));
  const Logits whole = run(*engine);
  for (size_t chunk : kChunks) EXPECT_EQ(run(*engine, chunk), whole) << "chunks of " << chunk;
}

TEST_P(GoldenTest, EveryInstructionSetHoldsTheBf16Bound) {
  for (Isa isa : available_isas()) expect_golden_on(isa, fixture_.folder, kBf16Bound);
}

// Factors that go into the weights are rounded with them.
float gguf_bound(const Fixture& fixture, DType type) {
  if (type == DType::kBF16 && fixture.name == "falcon_h1") return kBf16Bound;
  // F16 cannot hold every bf16 weight; scaling factors are stored as floats.
  return type == DType::kF16 ? 1e-2f : 1e-4f;
}

TEST_P(GgufGoldenTest, GgufOfTheSameWeightsIsTheSameModel) {
  const auto safetensors = load_engine(tiny_options(model_folder_, "reference"));
  const Logits expected = run(*safetensors);
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string file = folder_.file(std::string(dtype_name(type)) + ".gguf");
    write_fixture_gguf(fixture_, file, {type, {}, {}});
    const auto engine = load_engine(tiny_options(file, "reference"));
    const Logits logits = run(*engine);
    const float bound = gguf_bound(fixture_, type);
    EXPECT_LE(max_difference(logits, expected), bound) << dtype_name(type);
    if (bound < kFloatBound && model_folder_ == fixture_.folder) expect_greedy(*engine);
  }
}

TEST_P(GgufGoldenTest, EveryInstructionSetHoldsTheFp16BoundWithFloatWeights) {
  for (DType type : {DType::kF16, DType::kF32}) {
    if (kSanitized && type == DType::kF32) continue;
    const std::string file = folder_.file(std::string(dtype_name(type)) + ".gguf");
    write_fixture_gguf(fixture_, file, {type, {}, {}});
    for (Isa isa : available_isas()) expect_golden_on(isa, file, kFp16Bound);
  }
}

TEST_P(GgufGoldenTest, QuantisedWeightsMeanTheSameOnEveryDevice) {
  for (DType type : {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0}) {
    if (kSanitized && type != DType::kQ4_1) continue;
    SCOPED_TRACE(dtype_name(type));
    const std::string file = folder_.file(std::string(dtype_name(type)) + ".gguf");
    write_fixture_gguf(fixture_, file, {type, {}, {}});
    expect_codes_mean_the_same(fixture_, file);
  }
}

// Models of text and images keep the text model's configuration in an object of its own, and its tensors
// deeper, beside others.
TEST(Wrapper, TextModelInsideIsTheModel) {
  for (const char* name : {"llama", "gemma3"}) {
    const Fixture fixture = load_fixture(name);
    for (const std::string prefix : {"model.language_model.", "language_model.model."}) {
      SCOPED_TRACE(name + (" " + prefix));
      TempDir folder;
      SafetensorsWriter writer;
      for (const auto& [plain, tensor] : fixture.weights) {
        const bool is_head = plain.rfind("model.", 0) != 0;
        const std::string deep = prefix[0] == 'l' ? "language_model." + plain : plain;
        writer.floats(is_head ? deep : prefix + plain.substr(6), DType::kBF16, tensor.shape, tensor.values);
      }
      writer.floats("vision_tower.patches.weight", DType::kBF16, {1, 2}, std::vector<float>{1, 2});
      writer.write(folder.file("model.safetensors"));
      write_test_file(folder.file("config.json"),
                      R"({"model_type": "some_wrapper", "architectures": ["SomeWrapper"], "text_config": )" +
                          read_test_file(fixture.folder + "/config.json") + "}");
      const auto engine = load_engine(tiny_options(folder.path(), "reference"));
      Sequence sequence = make_sequence(*engine, short_sequence());
      const Logits logits = feed_all(*engine, sequence, fixture.input_ids);
      for (size_t row = 0; row < logits.size(); ++row) {
        ASSERT_LE(max_difference(logits[row], {fixture.logits.row(static_cast<int64_t>(row)), 256}),
                  kFloatBound);
      }
    }
  }
}

TEST(GgufWindow, LlamaArchitectureHasNone) {
  const Fixture mistral = load_fixture("mistral_swa");
  TempDir folder;
  write_fixture_gguf(mistral, folder.file("mistral.gguf"));
  const auto engine = load_engine(tiny_options(folder.file("mistral.gguf"), "reference"));
  EXPECT_EQ(make_sequence(*engine).layers()[0].window_size, 0);
  Sequence plain = make_sequence(*engine);
  SequenceOptions window;
  window.kv_window_size = 16;
  window.kv_window_keep = 0;
  Sequence windowed = make_sequence(*engine, window);
  const Logits all = feed_all(*engine, plain, mistral.input_ids);
  const Logits sixteen = feed_all(*engine, windowed, mistral.input_ids);
  for (int64_t r = 0; r < mistral.logits.shape[0]; ++r) {
    const std::span<const float> recorded(mistral.logits.row(r), 256);
    const auto row = static_cast<size_t>(r);
    EXPECT_LE(max_difference(sixteen[row], recorded), kFloatBound) << "the user's window is the model's";
    if (r < 16) {
      EXPECT_LE(max_difference(all[row], recorded), kFloatBound);
    }
  }
  EXPECT_GT(max_difference(all[100], {mistral.logits.row(100), 256}), 10 * kFloatBound);
}

}  // namespace
}  // namespace butter
