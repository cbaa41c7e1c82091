// What each command prints on the tiny model, and on the default model where that has been fetched.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run_butter.h"

namespace butter {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::vector<std::string> names_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

Json json_of(const Words& words) {
  const ProgramResult result = run_butter(words);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json json = Json::parse(result.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << result.out;
  return json;
}

// One tensor of a safetensors file.
struct Tensor {
  std::vector<int64_t> shape;
  std::string bytes;

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), result.size() * sizeof(T));
    return result;
  }
};

Tensor read_tensor(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header_bytes = 0;
  if (bytes.size() < 8) return {};
  std::memcpy(&header_bytes, bytes.data(), 8);
  const Json header = Json::parse(bytes.substr(8, header_bytes));
  const Json& entry = header.at(name);
  const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
  return {entry["shape"].get<std::vector<int64_t>>(), bytes.substr(8 + header_bytes + begin, end - begin)};
}

std::string joined(const std::vector<int64_t>& ids, size_t count) {
  return fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ","));
}

// An I32 tensor of what was recorded for the tiny model.
std::vector<int64_t> recorded_ids(const std::string& name) {
  const std::vector<int32_t> ids =
      read_tensor(tiny_model() + "/expected.safetensors", name).values<int32_t>();
  return {ids.begin(), ids.end()};
}

TEST(Version, NamesCompilerInstructionSetAndDevices) {
  const ProgramResult result = run_butter({"--version"});
  EXPECT_EQ(result.status, 0);
  for (const char* part : {"butter 0.", "compiler: ", "ISA: ", "devices: cpu"})
    EXPECT_THAT(result.out, HasSubstr(part));
}

TEST(Help, ListsTheCommandsOnStdout) {
  const ProgramResult result = run_butter({"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char* part : {"generate", "chat", "inspect", "plan", "bench", "eval", "tokenize", "pull"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(Generate, ContinuesTheFixtureAsRecorded) {
  const std::vector<int64_t> greedy = recorded_ids("greedy");
  ASSERT_EQ(greedy.size(), 40u);
  const Json json = json_of({"generate", "-m", tiny_model(), "--device", "reference", "--ignore-eos", "-n",
                             "24", "--json", "--token-ids", joined(greedy, 16)});
  EXPECT_THAT(names_of(json),
              ElementsAre("text", "token_ids", "finish_reason", "prompt_tokens", "generated_tokens",
                          "prefill_tps", "decode_tps", "ttft_ms", "kv_bytes", "kv_raw_bytes"));
  EXPECT_EQ(json["token_ids"].get<std::vector<int64_t>>(),
            std::vector<int64_t>(greedy.begin() + 16, greedy.end()));
  EXPECT_EQ(json["finish_reason"], "length");
}

TEST(Generate, IsTheCommandWhereNoneIsNamed) {
  const Words options = {"-m", tiny_model(), "--token-ids", "1,2,3", "-n", "4", "--ignore-eos"};
  Words named = {"generate"};
  named.insert(named.end(), options.begin(), options.end());
  const ProgramResult result = run_butter(options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, run_butter(named).out);
}

TEST(Generate, DumpsTheLogitsOfEveryPositionFed) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("logits.safetensors");
  const std::vector<int64_t> ids = recorded_ids("input_ids");
  const ProgramResult result =
      run_butter({"generate", "-m", tiny_model(), "--device", "reference", "-n", "3", "--ignore-eos",
                  "--token-ids", joined(ids, ids.size()), "--dump-logits", path});
  ASSERT_EQ(result.status, 0) << result.err;
  const Tensor logits = read_tensor(path, "logits");
  const Tensor expected = read_tensor(tiny_model() + "/expected.safetensors", "logits");
  ASSERT_EQ(logits.shape.size(), 2u);
  // The last of the three generated tokens is not fed.
  EXPECT_EQ(logits.shape[0], static_cast<int64_t>(ids.size()) + 2);
  EXPECT_EQ(logits.shape[1], expected.shape.back());
  const std::vector<float> found = logits.values<float>(), wanted = expected.values<float>();
  float difference = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    difference = std::max(difference, std::fabs(found[i] - wanted[i]));
  EXPECT_LE(difference, 1e-3f);
  EXPECT_EQ(scratch.names(), Words{"logits.safetensors"});
}

TEST(Generate, SameSeedSameTokensOnAnyThreadCount) {
  const Words options = {"generate", "-m", tiny_model(),   "--token-ids",   "5,6,7",
                         "-n",       "12", "--ignore-eos", "--temperature", "1.5",
                         "--seed",   "11", "--threads"};
  Words one = options, two = options;
  one.push_back("1");
  two.push_back("2");
  EXPECT_EQ(run_butter(one).out, run_butter(two).out);
}

TEST(Plan, NamesAreStable) {
  const Json json =
      json_of({"plan", "-m", tiny_model(), "--max-context", "128", "--budget", "1MiB", "--json"});
  ASSERT_FALSE(json["schemes"].empty());
  const Json& row = json["schemes"][0];
  for (const char* name : {"kv_cache", "sealed_bytes", "open_bytes", "recurrent_bytes", "total_bytes",
                           "raw_bytes", "ratio_sealed", "ratio_at_context", "bytes_per_token"}) {
    EXPECT_TRUE(row.contains(name)) << name;
  }
  EXPECT_GT(row["fits_sessions"], 0);
}

TEST(Plan, SaysWhatAWindowSaves) {
  const auto total = [](const Words& more) {
    Words words = {"plan", "-m", tiny_model(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return json_of(words)["schemes"][0]["total_bytes"].get<int64_t>();
  };
  EXPECT_LT(total({"--kv-window-size", "64"}), total({}));
}

std::string planned_scheme(const Words& more) {
  Words words = {"plan", "-m", tiny_model(), "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return json_of(words)["schemes"][0]["kv_cache"].get<std::string>();
}

TEST(Plan, MoreBytesThanCanBeCountedAreRefused) {
  const ProgramResult result = run_butter({"plan", "-m", tiny_model(), "--kv-cache", "raw", "--max-context",
                                           "2147483648", "--sessions", "1048576"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("--sessions is 1048576, of caches of"));
}

TEST(Plan, PartsAddUpToTheWhole) {
  const Json json =
      json_of({"plan", "-m", tiny_model(), "--max-context", "200", "--sessions", "3", "--json"});
  for (const Json& row : json["schemes"]) {
    int64_t sum = 0;
    for (const char* part : {"sealed_bytes", "open_bytes", "pinned_bytes", "centre_bytes", "recurrent_bytes"})
      sum += row[part].get<int64_t>();
    EXPECT_EQ(sum, row["total_bytes"]) << row["kv_cache"];
  }
}

TEST(Plan, TakesTheNamesThatOtherToolsGive) {
  EXPECT_EQ(planned_scheme({"-ctk", "q8_0", "-ctv", "q4_0"}), "k=affine8,v=affine4");
  EXPECT_EQ(planned_scheme({"-ctk", "q8_0", "-ctv", "q8_0"}), "affine8");
  EXPECT_EQ(planned_scheme({"-ctv", "q4_1"}), "k=raw,v=affine4");
  EXPECT_EQ(planned_scheme({"--kv-cache", "f16"}), "raw");
}

TEST(Plan, TheSpanOfAPromptIsPartOfTheScheme) {
  EXPECT_EQ(planned_scheme({"--kv-cache", "affine8", "--prefill-span", "256"}), "affine8:span256");
  EXPECT_EQ(planned_scheme({"--kv-cache", "affine8:plain", "--prefill-span", "128"}),
            "affine8:plain:span128");
  EXPECT_EQ(planned_scheme({"--kv-cache", "affine8", "--prefill-span", "64"}), "affine8");
}

// A step is as long as the span, where that is more than usual.
TEST(Generate, ReadsASpanLongerThanAStep) {
  for (const Words& span :
       {Words{"--kv-cache", "affine8", "--prefill-span", "1024"}, Words{"--kv-cache", "affine8:span1024"}}) {
    Words words = {"generate", "-m", tiny_model(), "--token-ids", "5,6,7", "-n", "4", "--json"};
    words.insert(words.end(), span.begin(), span.end());
    EXPECT_EQ(json_of(words)["token_ids"].size(), 4u);
  }
}

// The raw cache stands beside the schemes that the span is about.
TEST(Bench, GivesASpanToTheSchemesThatSeal) {
  const Json json = json_of({"bench", "-m", tiny_model(), "--kv-cache", "raw,affine8", "--prefill-span",
                             "128", "--depth", "64", "-p", "64", "-n", "2", "--repeat", "1", "--json"});
  EXPECT_EQ(json["rows"][0]["kv_cache"], "raw");
  EXPECT_EQ(json["rows"][1]["kv_cache"], "affine8:span128");
}

TEST(Inspect, DescribesTheModel) {
  const Json json = json_of({"inspect", "-m", tiny_model(), "--json"});
  EXPECT_EQ(json["family"], "llama");
  EXPECT_FALSE(json["layers"].empty());
  EXPECT_FALSE(json["tensors"].empty());
  EXPECT_GT(json["total_bytes"], 0);
  EXPECT_EQ(run_butter({"inspect", "-m", tiny_model(), "--tensors"}).status, 0);
}

TEST(Inspect, TracesLayers) {
  const Json json =
      json_of({"inspect", "-m", tiny_model(), "--json", "--layer-trace", "--token-ids", "1,2,3,4"});
  for (const Json& layer : json["layers"]) {
    EXPECT_EQ(layer["mixer"], "attention");
    EXPECT_EQ(layer["format"], "raw");
    EXPECT_GT(layer["rms"], 0);
    EXPECT_GT(layer["bytes"], 0);
    EXPECT_FALSE(layer["norms"].empty());
  }
}

// The tiny model with two further tensors in its file, of 100 kB each.
void write_model_with_eyes(const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy(tiny_model() + "/config.json", folder + "/config.json");
  std::ifstream file(tiny_model() + "/model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  Json header = Json::parse(bytes.substr(8, header_bytes));
  bytes.erase(0, 8 + header_bytes);
  for (const char* name : {"model.visual.patch_embed.weight", "multi_modal_projector.weight"}) {
    header[name] = {
        {"dtype", "BF16"}, {"shape", {50, 1000}}, {"data_offsets", {bytes.size(), bytes.size() + 100'000}}};
    bytes += std::string(100'000, '\0');
  }
  const std::string text = header.dump();
  header_bytes = text.size();
  std::ofstream out(folder + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out << text << bytes;
}

TEST(Notes, VisionTensorsAreSpokenOfOnceAndIgnored) {
  const ScratchFolder scratch;
  const std::string model = scratch.file("model"), line = "note: ignoring 2 vision tensors (0.2 MB)\n";
  write_model_with_eyes(model);
  const Words words = {"-m", tiny_model(), "--token-ids", "1,2,3", "-n", "4", "--max-context", "64"};
  const ProgramResult plain = run_butter(words);
  Words with_eyes = words;
  with_eyes[1] = model;
  const ProgramResult result = run_butter(with_eyes);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, line);
  EXPECT_EQ(result.out, plain.out);
  EXPECT_THAT(run_butter({"inspect", "-m", model}).out, HasSubstr(line));
  EXPECT_EQ(json_of({"inspect", "-m", model, "--json"})["notes"].size(), 1u);
  EXPECT_TRUE(json_of({"inspect", "-m", tiny_model(), "--json"})["notes"].empty());
}

TEST(Bench, AContextShorterThanTheDepthIsRefused) {
  const ProgramResult result =
      run_butter({"bench", "-m", tiny_model(), "--depth", "128", "-p", "8", "-n", "4", "-c", "64"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("--max-context is 64; at least the 136 positions"));
}

TEST(Bench, RowsAndNamesAreStable) {
  const ProgramResult result =
      run_butter({"bench", "-m", tiny_model(), "--kv-cache", "raw,k=raw,v=raw", "--depth", "0,64", "-p", "64",
                  "-n", "4", "--repeat", "2", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  ASSERT_EQ(json["rows"].size(), 4u);
  for (const Json& row : json["rows"]) {
    EXPECT_THAT(names_of(row),
                ElementsAre("kv_cache", "depth", "prefill_tps", "decode_tps", "decode_ms", "kv_bytes",
                            "weight_bytes", "bandwidth_share", "token_hash", "threads", "isa", "device"));
    EXPECT_GT(row["decode_tps"], 0);
  }
  // Two names of one scheme: the same tokens.
  EXPECT_EQ(json["rows"][0]["token_hash"], json["rows"][1]["token_hash"]);
}

TEST(Tokenize, ThereAndBack) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const Json json = json_of({"tokenize", "-m", default_model(), "-p", "Hello, <|im_end|> world", "--json"});
  EXPECT_EQ(names_of(json), (Words{"ids", "pieces"}));
  const std::vector<int64_t> ids = json["ids"];
  EXPECT_EQ(run_butter({"tokenize", "-m", default_model(), "--decode", joined(ids, ids.size())}).out,
            "Hello, <|im_end|> world\n");
  const Json special =
      json_of({"tokenize", "-m", default_model(), "-p", "Hello, <|im_end|> world", "--special", "--json"});
  EXPECT_LT(special["ids"].size(), ids.size());
}

TEST(DefaultModel, AnswersTheDemoQuestion) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const ProgramResult result =
      run_butter({"-m", default_model(), "-p", "What is the capital of France?", "-n", "40", "--stats"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Paris"));
  EXPECT_THAT(result.err, HasSubstr("tok/s"));
}

TEST(Chat, RemembersAndSavesOverPipes) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const ScratchFolder scratch;
  RunOptions options;
  options.input = "Say hello.\n/stats\n/save " + scratch.file("talk.json") + "\n/reset\n/load " +
                  scratch.file("talk.json") + "\nAnd again?\n/nonsense\n/quit\n";
  const ProgramResult result = run_butter({"chat", "-m", default_model(), "-n", "8"}, options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n') >= 2, true) << result.out;
  EXPECT_THAT(result.err, HasSubstr("/nonsense is no command"));
  std::ifstream file(scratch.file("talk.json"));
  EXPECT_EQ(Json::parse(file).size(), 2u);
}

// What one turn of `butter chat --json` says after a conversation was loaded.
struct LoadedTurn {
  Json answer;
  std::string notes;
};
LoadedTurn turn_after_load(const std::string& path, const std::string& kv_cache) {
  RunOptions options;
  options.input = "/load " + path + "\nAnd again?\n";
  const ProgramResult result =
      run_butter({"chat", "-m", default_model(), "-n", "4", "--json", "--kv-cache", kv_cache}, options);
  EXPECT_EQ(result.status, 0) << result.err;
  return {Json::parse(result.out, nullptr, false), result.err};
}

TEST(Chat, LoadedConversationIsReadAgainOnlyWhereItsCacheDoesNotFit) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const ScratchFolder scratch;
  const std::string talk = scratch.file("talk.json");
  RunOptions options;
  options.input = "Say hello.\n/save " + talk + "\n";
  const ProgramResult saved =
      run_butter({"chat", "-m", default_model(), "-n", "8", "--kv-cache", "aura"}, options);
  ASSERT_EQ(saved.status, 0) << saved.err;
  EXPECT_THAT(saved.err, HasSubstr(talk + ".cache"));

  const LoadedTurn kept = turn_after_load(talk, "aura");
  EXPECT_THAT(kept.notes, HasSubstr("with their cache of"));
  EXPECT_GT(kept.answer["reused_tokens"], 0);
  const LoadedTurn other = turn_after_load(talk, "raw");
  EXPECT_THAT(other.notes, AllOf(HasSubstr("read with your next one"), HasSubstr("\"aura4v4\"; \"raw\"")));
  EXPECT_EQ(other.answer["reused_tokens"], 0);
  std::filesystem::remove(talk + ".cache");
  const LoadedTurn without = turn_after_load(talk, "aura");
  EXPECT_THAT(without.notes, HasSubstr("read with your next one"));
  EXPECT_EQ(without.answer["reused_tokens"], 0);
}

}  // namespace
}  // namespace butter
