// LongRoPE: a sequence turns by the short or the long frequencies from its first position on, as its limit
// says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/fixture_gguf.h"
#include "support/run_engine.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kPairs = 8;        // of the fixture
constexpr int64_t kReach = 100;  // positions that the short frequencies are for
constexpr int64_t kFar = 240;    // a limit beyond them

// What divides the frequencies: nothing for short sequences, 2 for long ones.
const std::vector<float> kShort(kPairs, 1.0f), kLong(kPairs, 2.0f);

// The fixture with other rope parameters.
class Model {
 public:
  explicit Model(const Json& rope) {
    const std::string from = test_data("fixtures/phi3");
    std::filesystem::copy(from + "/model.safetensors", folder_.file("model.safetensors"));
    Json config = Json::parse(read_test_file(from + "/config.json"));
    config["original_max_position_embeddings"] = kReach;
    config["rope_parameters"].update(rope);
    write_test_file(folder_.file("config.json"), config.dump());
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TempDir folder_;
};

Json longrope(double amplitude) {
  return {{"rope_type", "longrope"},
          {"short_factor", kShort},
          {"long_factor", kLong},
          {"attention_factor", amplitude}};
}

SequenceOptions up_to(int64_t positions, const std::string& kv_cache = "raw") {
  SequenceOptions options;
  options.kv_cache = kv_cache;
  options.max_context = positions;
  return options;
}

class LongropeTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  static std::string device() { return std::get<0>(GetParam()); }
  static std::string kv_cache() { return std::get<1>(GetParam()); }

  static std::unique_ptr<Engine> load(const std::string& model) {
    return load_engine(tiny_options(model, device()));
  }
  static Logits run(Engine& engine, int64_t limit, size_t chunk = 33) {
    Sequence sequence = make_sequence(engine, up_to(limit, kv_cache()));
    return feed_all(engine, sequence, random_ids(90, 3), chunk);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, LongropeTest,
                         testing::Combine(testing::Values("reference", "cpu"),
                                          testing::Values("raw", "aura4v4")),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) + "_" +
                                  std::get<1>(instance.param);
                         });

TEST_P(LongropeTest, AShortLimitTurnsByTheShortFrequenciesAndALongOneByTheLong) {
  const Model both(longrope(1)), plain(Json{{"rope_type", "default"}}),
      halved(Json{{"rope_type", "linear"}, {"factor", 2}});
  const auto engine = load(both.path());
  const Logits near = run(*engine, kReach), far = run(*engine, kReach + 1);
  EXPECT_EQ(near, run(*load(plain.path()), kReach));
  EXPECT_EQ(far, run(*load(halved.path()), kFar));
  EXPECT_EQ(far, run(*engine, kFar));
  EXPECT_GT(max_difference(near, far), 0.01f);
}

TEST_P(LongropeTest, BothKindsGoInOneStepAsAlone) {
  const Model both(longrope(1.25));
  const auto engine = load(both.path());
  const std::vector<int32_t> ids = random_ids(70, 5);
  const auto fed = [&](int64_t limit) {
    Sequence sequence = make_sequence(*engine, up_to(limit, kv_cache()));
    feed_last(*engine, sequence, ids);
    return sequence;
  };
  Sequence near = fed(kReach), far = fed(kFar), near_alone = fed(kReach), far_alone = fed(kFar);
  const std::vector<int32_t> next = {17};
  const std::vector<BatchItem> items = {{&near, next}, {&far, next}};
  const auto together = engine->forward_batch(items);
  ASSERT_TRUE(together) << together.error().message();
  const std::vector<float> logits(together->begin(), together->end());
  const size_t width = logits.size() / 2;
  const auto alone = [&](Sequence& sequence) { return feed_last(*engine, sequence, next); };
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.begin() + static_cast<int64_t>(width)),
            alone(near_alone));
  EXPECT_EQ(std::vector<float>(logits.begin() + static_cast<int64_t>(width), logits.end()), alone(far_alone));
}

TEST_P(LongropeTest, ASavedSequenceGoesOnByItsFrequenciesAndNotByTheOthers) {
  const Model both(longrope(1.25));
  const auto engine = load(both.path());
  const std::vector<int32_t> ids = random_ids(80, 7), rest = random_ids(15, 8);
  const TempDir folder;
  const std::string path = folder.file("cache");
  Sequence far = make_sequence(*engine, up_to(kFar, kv_cache()));
  feed_last(*engine, far, ids);
  const Status saved = far.save(path);
  ASSERT_TRUE(saved) << saved.error().message();
  auto loaded = engine->load_sequence(path, up_to(kReach + 20, kv_cache()));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(feed_last(*engine, *loaded, rest), feed_last(*engine, far, rest));
  const auto refused = engine->load_sequence(path, up_to(kReach, kv_cache()));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("--max-context"), HasSubstr("\"long\""), HasSubstr("\"short\" is expected")));
}

TEST(Longrope, GgufFilesSayTheSame) {
  const double amplitude = std::sqrt(1 + std::log(512.0 / kReach) / std::log(double(kReach)));
  Json unstated = longrope(1);
  unstated.erase("attention_factor");
  const Model folder(unstated);
  const TempDir files;
  FixtureGgufOptions options;
  options.finish = [&](GgufWriter& writer) {
    writer.value<uint32_t>("phi3.rope.scaling.original_context_length", kReach);
    writer.value<float>("phi3.rope.scaling.attn_factor", static_cast<float>(amplitude));
    writer.floats("rope_factors_short.weight", DType::kF32, {kPairs}, kShort);
    writer.floats("rope_factors_long.weight", DType::kF32, {kPairs}, kLong);
  };
  write_fixture_gguf(load_fixture("phi3"), files.file("model.gguf"), options);
  const auto of_folder = load_engine(tiny_options(folder.path(), "reference"));
  const auto of_file = load_engine(tiny_options(files.file("model.gguf"), "reference"));
  for (const int64_t limit : {kReach, kFar}) {
    const auto run = [&](Engine& engine) {
      Sequence sequence = make_sequence(engine, up_to(limit));
      return feed_all(engine, sequence, random_ids(90, 3));
    };
    EXPECT_LE(max_difference(run(*of_file), run(*of_folder)), 1e-4f) << limit;
  }
}

TEST(Longrope, AGgufFileWithoutOneOfItsTablesIsRefused) {
  const TempDir files;
  FixtureGgufOptions options;
  options.finish = [](GgufWriter& writer) {
    writer.floats("rope_factors_short.weight", DType::kF32, {kPairs}, kShort);
  };
  write_fixture_gguf(load_fixture("phi3"), files.file("model.gguf"), options);
  const auto engine = Engine::load(tiny_options(files.file("model.gguf"), "reference"));
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message(), HasSubstr("no rope_factors_long.weight"));
}

}  // namespace
}  // namespace butter
