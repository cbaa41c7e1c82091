// butter eval on the tiny model with a tokenizer of bytes: what it prints, refuses and keeps, whatever the
// figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run_butter.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

// The spelling of a byte in byte-level vocabularies: itself where it is printable, else a character from
// U+0100 on.
std::string byte_spelling(int byte, int& next) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
  const int code = printable ? byte : 0x100 + next++;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string byte_tokenizer() {
  Json json = {{"added_tokens", Json::array()},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  for (int byte = 0, next = 0; byte < 256; ++byte) json["model"]["vocab"][byte_spelling(byte, next)] = byte;
  return json.dump();
}

// The tiny model as a folder of its own, with a tokenizer, and a cache folder that is not the user's.
class EvalCommand : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(model_);
    for (const auto& entry : fs::directory_iterator(tiny_model())) {
      fs::copy(entry.path(), fs::path(model_) / entry.path().filename());
    }
    std::ofstream(model_ + "/tokenizer.json") << byte_tokenizer();
  }

  Words eval(const Words& more) const {
    Words words = {"eval", "-m", model_, "--window-tokens", "160", "--windows", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  RunOptions environment() const { return {{}, {{"BUTTER_CACHE_DIR", scratch_.file("cache")}}, {}}; }
  ProgramResult run(const Words& more) const { return run_butter(eval(more), environment()); }

  Json json_of(Words more) const {
    more.push_back("--json");
    const ProgramResult result = run(more);
    EXPECT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << result.out;
    return json;
  }

  void expect_refusal(const ProgramResult& result, const std::string& named) const {
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("butter: "));
    EXPECT_THAT(result.err, HasSubstr(named));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }

  std::string write_text(const std::string& text) const {
    const std::string path = scratch_.file("text.txt");
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  ScratchFolder scratch_;
  const std::string model_ = scratch_.file("model");
};

std::vector<std::string> names_of(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

TEST_F(EvalCommand, RawAgainstItselfCostsNothing) {
  const Json json = json_of({"--kv-cache", "raw"});
  EXPECT_THAT(names_of(json),
              ElementsAre("model", "machine", "commit", "command", "text", "complete", "rows"));
  EXPECT_EQ(json["text"], "alice29.txt, asyoulik.txt, lcet10.txt");
  EXPECT_EQ(json["complete"], true);
  ASSERT_EQ(json["rows"].size(), 1u);
  const Json& row = json["rows"][0];
  EXPECT_THAT(names_of(row), ElementsAre("kv_cache", "positions", "bits_per_value", "ratio_sealed",
                                         "kld_mean", "kld_p99", "top1", "ppl", "ppl_raw", "needle"));
  EXPECT_EQ(row["kv_cache"], "raw");
  EXPECT_EQ(row["positions"], 3 * 159);
  EXPECT_EQ(row["bits_per_value"], 16);
  EXPECT_EQ(row["ratio_sealed"], 1);
  EXPECT_EQ(row["kld_mean"], 0);
  EXPECT_EQ(row["kld_p99"], 0);
  EXPECT_EQ(row["top1"], 1);
  EXPECT_EQ(row["ppl"], row["ppl_raw"]);
  EXPECT_TRUE(row["needle"].is_null());
}

TEST_F(EvalCommand, EverySchemeThereIsStandsBelowTheRawCacheByDefault) {
  const Json json = json_of({"--windows", "1"});
  ASSERT_GT(json["rows"].size(), 0u);
  EXPECT_EQ(json["rows"][0]["kv_cache"], "raw");
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(row["positions"], 159);
    EXPECT_GE(row["ratio_sealed"], 1) << row;
    EXPECT_EQ(row["ppl_raw"], json["rows"][0]["ppl"]);
    EXPECT_LT(row["kld_mean"], 1) << row;
    EXPECT_NEAR(row["bits_per_value"].get<double>() * row["ratio_sealed"].get<double>(), 16, 1e-9);
  }
}

TEST_F(EvalCommand, TableHasALineForEachScheme) {
  const ProgramResult result = run({"--kv-cache", "raw,k=raw,v=raw,raw", "--attention-error"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part : {"KLD p99", "ppl/raw", "\nraw  ", "attention: "})
    EXPECT_THAT(result.out, HasSubstr(part));
  EXPECT_THAT(result.out, Not(HasSubstr("incomplete")));
}

TEST_F(EvalCommand, AttentionErrorHasAFigureForEachLayer) {
  const Json json = json_of({"--kv-cache", "raw", "--attention-error"});
  ASSERT_EQ(json["attention_error"].size(), 1u);
  EXPECT_EQ(json["attention_error"][0]["kv_cache"], "raw");
  EXPECT_EQ(json["attention_error"][0]["layers"], Json::array({0, 0, 0, 0}));
}

TEST_F(EvalCommand, NeedlesAreAskedAndCounted) {
  const Words words = {"--kv-cache", "raw", "--windows", "1", "--needle", "5", "--needle-context", "512"};
  const Json json = json_of(words);
  const Json& needle = json["rows"][0]["needle"];
  EXPECT_THAT(names_of(needle),
              ElementsAre("asked", "right", "share", "low", "high", "context_tokens", "depths"));
  EXPECT_EQ(needle["asked"], 5);
  EXPECT_EQ(needle["right"], 0) << "an untrained model knows none";
  EXPECT_EQ(needle["context_tokens"], 512);
  EXPECT_EQ(needle["low"], 0);
  EXPECT_NEAR(needle["high"].get<double>(), 0.4345, 1e-3);
  int64_t asked = 0;
  for (const Json& depth : needle["depths"]) asked += depth["asked"].get<int64_t>();
  EXPECT_EQ(asked, 5);
  const ProgramResult text = run(words);
  EXPECT_THAT(text.out, HasSubstr("5 facts in 512 tokens"));
}

TEST_F(EvalCommand, CardIsKeptBesideTheModelAndShown) {
  const ProgramResult result = run({"--kv-cache", "raw", "--card"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(model_ + ".quality.json"));
  const Json card = Json::parse(std::ifstream(model_ + ".quality.json"), nullptr, false);
  EXPECT_THAT(names_of(card), ElementsAre("layout", "model", "model_hash", "text", "text_hash", "version",
                                          "command", "rows"));
  EXPECT_EQ(card["rows"][0]["kld_mean"], 0);
  EXPECT_THAT(card["command"].get<std::string>(), StartsWith("butter eval -m "));

  EXPECT_THAT(run_butter({"plan", "-m", model_}, environment()).out, HasSubstr("KLD"));
  EXPECT_THAT(run_butter({"inspect", "-m", model_}, environment()).out,
              HasSubstr("quality against the raw cache"));
  const Json plan = Json::parse(run_butter({"plan", "-m", model_, "--json"}, environment()).out);
  EXPECT_EQ(plan["schemes"][0]["kld_mean"], 0);
  const Json inspected = Json::parse(run_butter({"inspect", "-m", model_, "--json"}, environment()).out);
  EXPECT_EQ(inspected["quality"]["rows"][0]["kv_cache"], "raw");
}

TEST_F(EvalCommand, SpoiltCardIsNotedAndNothingElse) {
  std::ofstream(model_ + ".quality.json") << "{";
  for (const char* command : {"plan", "inspect"}) {
    const ProgramResult result = run_butter({command, "-m", model_}, environment());
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err, HasSubstr(".quality.json"));
    EXPECT_THAT(result.out, Not(HasSubstr("quality")));
  }
}

TEST_F(EvalCommand, CardThatCanBeWrittenNowhereIsRefusedBeforeTheWork) {
  fs::create_directory(model_ + ".quality.json");
  std::ofstream(scratch_.file("cache")) << "a file";
  expect_refusal(run({"--card"}), "quality.json");
}

TEST_F(EvalCommand, TextsThatWillNotDo) {
  expect_refusal(run({"--text", scratch_.file("absent.txt")}), "absent.txt");
  expect_refusal(run({"--text", write_text("")}), "is empty");
  expect_refusal(run({"--text", write_text("some words \xff\xfe")}), "byte 11");
  expect_refusal(run({"--text", write_text("cut off \xe2\x82")}), "UTF-8");
  expect_refusal(run({"--text", write_text(std::string(479, 'x'))}), "479 tokens");
  expect_refusal(run({"--text", scratch_.file("model")}), "model");
  EXPECT_EQ(run({"--kv-cache", "raw", "--text", write_text(std::string(480, 'x'))}).status, 0);
}

TEST_F(EvalCommand, NumbersThatWillNotDo) {
  expect_refusal(run({"--windows", "0"}), "--windows");
  expect_refusal(run({"--windows", "1000000"}), "148480 tokens");
  expect_refusal(run({"--windows", "99999999999999999999"}), "--windows");
  expect_refusal(run({"--window-tokens", "1"}), "--window-tokens");
  expect_refusal(run({"--window-tokens", "2000000"}), "tokens");
  expect_refusal(run({"--needle", "0"}), "--needle");
  expect_refusal(run({"--needle", "--needle-context", "10"}), "--needle-context");
  EXPECT_EQ(run({"--windows", "many"}).status, 2);
}

TEST_F(EvalCommand, UnknownSchemeListsThoseThereAre) {
  const ProgramResult result = run({"--kv-cache", "raw,aura5"});
  expect_refusal(result, "aura5");
  EXPECT_THAT(result.err, HasSubstr("there is raw"));
  expect_refusal(run({"--kv-cache", "raw,"}), "kv-cache");
}

TEST_F(EvalCommand, ModelWithoutATokenizerIsRefused) {
  expect_refusal(run_butter({"eval", "-m", tiny_model()}), "no tokenizer");
}

TEST_F(EvalCommand, LengthsBeyondTheModelAreMeasuredWithANote) {
  const ProgramResult result = run({"--kv-cache", "raw", "--windows", "1", "--window-tokens", "600"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("512 positions"));
  // With a window nothing is beyond the model.
  const ProgramResult windowed =
      run({"--kv-cache", "raw", "--windows", "1", "--window-tokens", "600", "--kv-window-size", "128"});
  EXPECT_EQ(windowed.status, 0) << windowed.err;
  EXPECT_EQ(windowed.err, "");
}

TEST_F(EvalCommand, StepsOfOneTokenMeasureTheKernelsOfDecode) {
  const Words schemes = {"--kv-cache", "affine4"};
  Words by_one = schemes;
  by_one.insert(by_one.end(), {"--step-tokens", "1"});
  const Json whole = json_of(schemes), steps = json_of(by_one);
  ASSERT_EQ(steps["rows"].size(), 2u);
  EXPECT_EQ(steps["rows"][0]["kld_mean"], 0.0);  // the raw cache beside itself
  const double kld = whole["rows"][1]["kld_mean"], by_decode = steps["rows"][1]["kld_mean"];
  EXPECT_EQ(steps["rows"][1]["positions"], whole["rows"][1]["positions"]);
  EXPECT_GT(kld, 0);
  EXPECT_NE(by_decode, kld);
  EXPECT_NEAR(by_decode, kld, 0.5 * kld);
  expect_refusal(run({"--step-tokens", "-1"}), "--step-tokens");
}

TEST_F(EvalCommand, SignalPrintsWhatIsDoneAndSaysSo) {
  const Words words =
      eval({"--kv-cache", "raw", "--windows", "700", "--device", "reference", "--verbose", "--card"});
  RunningProgram program(words, environment());
  ASSERT_TRUE(program.wait_for_error_text("of weights"));
  program.signal(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
  EXPECT_THAT(result.out, HasSubstr("incomplete"));
  EXPECT_FALSE(fs::exists(model_ + ".quality.json"));
}

}  // namespace
}  // namespace butter
