// Saved sequences go on as if they had never been saved, bit for bit; what is not theirs is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "butter/session.h"
#include "core/cpu_isa.h"
#include "support/run_engine.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string fixture(const std::string& name) {
  return test_data("fixtures/" + name);
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void save(const Sequence& sequence, const std::string& path) {
  const Status saved = sequence.save(path);
  ASSERT_TRUE(saved) << saved.error().message();
}

Sequence load(Engine& engine, const std::string& path, const SequenceOptions& options) {
  auto sequence = engine.load_sequence(path, options);
  EXPECT_TRUE(sequence) << sequence.error().message();
  BUTTER_CHECK(sequence.has_value());
  return std::move(*sequence);
}

struct Case {
  const char* model;
  const char* device;
  const char* kv_cache;
  int64_t window = 0;
  int64_t keep = 0;

  SequenceOptions options() const {
    SequenceOptions made;
    made.kv_cache = kv_cache;
    made.kv_window_size = window;
    made.kv_window_keep = keep;
    return made;
  }
  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.model << " " << c.device << " " << c.kv_cache << " window " << c.window << "/" << c.keep;
  }
};

const Case kCases[] = {{"llama", "cpu", "raw"},
                       {"llama", "cpu", "aura4v4"},
                       {"llama", "reference", "aura3v2", 80, 4},
                       {"mistral_swa", "cpu", "k=affine6,v=aura3"},
                       {"qwen2", "cpu", "aura3v2"},
                       {"llama", "reference", "raw", 80, 4},
                       {"llama", "reference", "affine4"},
                       {"llama", "cpu", "affine8", 80, 4},
                       {"llama", "cpu", "affine4:plain", 100, 70},
                       {"llama", "cpu", "aura2v8", 65, 0},
                       {"llama", "cpu", "aura8v3:plain"},
                       {"llama", "cpu", "k=raw,v=aura4", 100, 4},
                       {"llama", "cpu", "k=affine4g16,v=raw"},
                       {"qwen2", "cpu", "affine6", 64, 4},
                       {"qwen3", "cpu", "aura4v4", 100, 70},
                       {"mistral_swa", "reference", "aura4v4"},
                       {"llama3_scaled", "cpu", "raw", 70, 4}};

class SavedSequencesTest : public testing::TestWithParam<Case> {
 protected:
  TempDir folder_;
};

std::vector<Case> cases() {
  return {std::begin(kCases), kSanitized ? std::begin(kCases) + 5 : std::end(kCases)};
}

INSTANTIATE_TEST_SUITE_P(Cases, SavedSequencesTest, testing::ValuesIn(cases()));

TEST_P(SavedSequencesTest, GoesOnAsIfItHadNotBeenSaved) {
  const auto engine = load_engine(tiny_options(fixture(GetParam().model), GetParam().device));
  const std::vector<int32_t> ids = random_ids(300, 5);
  const std::string path = folder_.file("cache");
  Sequence sequence = make_sequence(*engine, GetParam().options());
  for (size_t position : {0, 1, 63, 64, 65, 208}) {
    SCOPED_TRACE(position);
    const auto at = static_cast<size_t>(sequence.position());
    if (position > at) feed_last(*engine, sequence, std::span(ids).subspan(at, position - at));
    save(sequence, path);
    Sequence saved = load(*engine, path, GetParam().options());
    ASSERT_EQ(saved.position(), static_cast<int64_t>(position));
    EXPECT_EQ(saved.held_bytes(), sequence.held_bytes());
    auto twin = sequence.fork();
    ASSERT_TRUE(twin);
    for (size_t rows : {1, 70, 2}) {
      const auto next = std::span(ids).subspan(static_cast<size_t>(saved.position()), rows);
      ASSERT_EQ(feed_last(*engine, saved, next), feed_last(*engine, *twin, next));
    }
  }
}

TEST_P(SavedSequencesTest, FileIsTheSameWhicheverInstructionSetHoldsIt) {
  if (std::string(GetParam().device) == "reference") GTEST_SKIP() << "it has one";
  std::string first;
  for (Isa isa : available_isas()) {
    const ScopedIsa scoped(isa_name(isa));
    const auto engine = load_engine(tiny_options(fixture(GetParam().model), "cpu"));
    if (first.empty()) {
      Sequence sequence = make_sequence(*engine, GetParam().options());
      feed_last(*engine, sequence, random_ids(208, 5));
      save(sequence, folder_.file("first"));
      first = file_bytes(folder_.file("first"));
    }
    save(load(*engine, folder_.file("first"), GetParam().options()), folder_.file("again"));
    EXPECT_EQ(file_bytes(folder_.file("again")), first) << isa_name(isa);
  }
}

class SavedLlamaTest : public testing::Test {
 protected:
  SavedLlamaTest() : engine_(load_engine(tiny_options(fixture("llama"), "cpu"))) {
    aura_.kv_cache = "aura4v4";
    Sequence sequence = make_sequence(*engine_, aura_);
    feed_last(*engine_, sequence, ids_);
    EXPECT_TRUE(sequence.save(path_, ids_));
  }
  void expect_refused(Engine& engine, const SequenceOptions& options, StatusCode code,
                      const testing::Matcher<std::string>& message) {
    const int64_t held = engine.cache_bytes();
    std::vector<int32_t> ids = {1, 2};
    const auto sequence = engine.load_sequence(path_, options, &ids);
    ASSERT_FALSE(sequence);
    EXPECT_EQ(sequence.error().code(), code);
    EXPECT_THAT(sequence.error().message(), AllOf(StartsWith(path_ + ": "), message));
    EXPECT_EQ(ids, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(engine.cache_bytes(), held);
  }

  TempDir folder_;
  const std::string path_ = folder_.file("cache");
  const std::vector<int32_t> ids_ = random_ids(130, 9);
  std::unique_ptr<Engine> engine_;
  SequenceOptions aura_;
};

TEST_F(SavedLlamaTest, TokensComeBack) {
  std::vector<int32_t> ids;
  const auto sequence = engine_->load_sequence(path_, aura_, &ids);
  ASSERT_TRUE(sequence) << sequence.error().message();
  EXPECT_EQ(ids, ids_);
}

TEST_F(SavedLlamaTest, OtherModelsDevicesAndOptionsAreRefused) {
  const auto other = load_engine(tiny_options(fixture("llama3_scaled"), "cpu"));
  expect_refused(*other, aura_, StatusCode::kInvalidArgument, HasSubstr("was saved with the model \"llama-"));
  const auto reference = load_engine(tiny_options(fixture("llama"), "reference"));
  expect_refused(*reference, aura_, StatusCode::kInvalidArgument, HasSubstr("raw rows of type"));
  SequenceOptions options = aura_;
  options.kv_cache = "aura4v4:plain";
  expect_refused(*engine_, options, StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("--kv-cache \"aura4v4\""), HasSubstr("\"aura4v4:plain\"")));
  options = aura_;
  options.kv_window_size = 100;
  expect_refused(*engine_, options, StatusCode::kInvalidArgument, HasSubstr("[100,4]"));
  options = aura_;
  options.max_context = 129;
  expect_refused(*engine_, options, StatusCode::kLimit, AllOf(HasSubstr("130"), HasSubstr("129")));
}

// One value of one weight matters, if a sample of its tensor has it.
TEST_F(SavedLlamaTest, SameShapesWithOtherWeightsAreAnotherModel) {
  const std::filesystem::path copy = folder_.file("model");
  std::filesystem::copy(fixture("llama"), copy, std::filesystem::copy_options::recursive);
  const std::string weights = (copy / "model.safetensors").string();
  std::filesystem::permissions(weights, std::filesystem::perms::owner_all);
  const auto same = load_engine(tiny_options(copy.string(), "cpu"));
  EXPECT_TRUE(same->load_sequence(path_, aura_));
  std::string bytes = file_bytes(weights);
  bytes.back() ^= 1;
  std::ofstream(weights + ".new", std::ios::binary) << bytes;
  std::filesystem::rename(weights + ".new", weights);
  const auto other = load_engine(tiny_options(copy.string(), "cpu"));
  expect_refused(*other, aura_, StatusCode::kInvalidArgument, HasSubstr("the model \"llama-"));
}

TEST_F(SavedLlamaTest, SessionGoesOnWithASavedCache) {
  GenerateOptions options;
  options.max_tokens = 5;
  auto live = Session::create(*engine_, aura_);
  ASSERT_TRUE(live);
  ASSERT_TRUE(live->complete(ids_, options, nullptr));
  ASSERT_TRUE(live->save_cache(path_));
  auto later = Session::create(*engine_, aura_);
  ASSERT_TRUE(later);
  const Status taken = later->load_cache(path_);
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(later->tokens(), live->tokens());
  std::vector<int32_t> next = live->tokens();
  const auto held = static_cast<int64_t>(next.size());
  for (int32_t id : random_ids(20, 4)) next.push_back(id);
  const auto expected = live->complete(next, options, nullptr),
             result = later->complete(next, options, nullptr);
  ASSERT_TRUE(expected && result);
  EXPECT_EQ(result->reused_tokens, held);
  EXPECT_EQ(result->token_ids, expected->token_ids);
}

TEST_F(SavedLlamaTest, SessionThatCannotTakeACacheStaysAsItWas) {
  GenerateOptions options;
  options.max_tokens = 3;
  auto session = Session::create(*engine_, {});
  ASSERT_TRUE(session);
  const auto before = session->complete(ids_, options, nullptr);
  ASSERT_TRUE(before);
  const std::vector<int32_t> tokens = session->tokens();
  EXPECT_FALSE(session->load_cache(path_));  // of another scheme
  Sequence without = make_sequence(*engine_);
  feed_last(*engine_, without, ids_);
  save(without, folder_.file("without"));
  const Status refused = session->load_cache(folder_.file("without"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("without its tokens"));
  EXPECT_EQ(session->tokens(), tokens);
  const auto after = session->complete(ids_, options, nullptr);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->token_ids, before->token_ids);
  EXPECT_EQ(after->reused_tokens, static_cast<int64_t>(ids_.size()) - 1);
}

}  // namespace
}  // namespace butter
