// What is wrong gives one sentence on stderr, nothing on stdout, and leaves no file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include <fstream>

#include "cli/run_butter.h"

namespace butter {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

void expect_refusal(const ProgramResult& result, int status, const std::string& named) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("butter: "));
  EXPECT_THAT(result.err, HasSubstr(named));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.find("unexpected"), std::string::npos) << result.err;
}

Words on_tiny_model(const Words& more) {
  Words words = {"generate", "-m", tiny_model(), "-n", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_value_refused(const Words& more, const std::string& named) {
  expect_refusal(run_butter(on_tiny_model(more)), 1, named);
}

std::string file_contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BadInput, TheCommandLineThatDoesNotReadIsAUsageError) {
  EXPECT_EQ(run_butter({}).status, 2);
  expect_refusal(run_butter({"frobnicate"}), 2, "frobnicate");
  expect_refusal(run_butter({"generate", "--frobnicate"}), 2, "--frobnicate");
  expect_refusal(run_butter({"generate", "-m"}), 2, "--model");
  expect_refusal(run_butter({"generate", "-m", tiny_model(), "--max-context", "many", "--token-ids", "1"}), 2,
                 "--max-context");
  expect_refusal(run_butter({"generate", "-m", tiny_model(), "--temperature", "hot", "--token-ids", "1"}), 2,
                 "--temperature");
  expect_refusal(run_butter({"generate", "-m", tiny_model()}), 2, "-p TEXT");
  expect_refusal(run_butter({"generate", "-m", tiny_model(), "-p", "a", "--token-ids", "1"}), 2,
                 "one is expected");
}

TEST(BadInput, EmptyPrompt) {
  expect_value_refused({"-p", ""}, "empty");
  expect_refusal(run_butter(on_tiny_model({"-p", "-"})), 1, "empty");
  expect_value_refused({"-f", "/dev/null"}, "/dev/null");
  expect_value_refused({"-f", "/nowhere/at/all"}, "/nowhere/at/all");
}

TEST(BadInput, MaxContext) {
  for (const char* value : {"0", "-1", "99999999999", "999999999999999999999999"}) {
    expect_value_refused({"--token-ids", "1", "--max-context", value},
                         std::string("--max-context is ") + value);
  }
  expect_value_refused({"--token-ids", "1", "--max-context", "1000000"}, "positions");
  expect_value_refused({"--token-ids", "1,2,3,4,5", "--max-context", "4"}, "the prompt has 5 tokens");
}

TEST(BadInput, CacheSchemesAndWindows) {
  expect_value_refused({"--token-ids", "1", "--kv-cache", "nothing9"}, "nothing9");
  expect_value_refused({"--token-ids", "1", "--kv-cache", "raw", "-ctk", "raw"}, "--kv-cache");
  expect_value_refused({"--token-ids", "1", "--kv-window-size", "4", "--kv-window-keep", "4"},
                       "--kv-window-size is 4");
  expect_value_refused({"--token-ids", "1", "--kv-window-size", "-3"}, "--kv-window-size is -3");
}

TEST(BadInput, PrefillSpans) {
  expect_value_refused({"--token-ids", "1", "--kv-cache", "aura", "--prefill-span", "100"},
                       "--prefill-span is 100");
  expect_value_refused({"--token-ids", "1", "--kv-cache", "aura", "--prefill-span", "0"},
                       "--prefill-span is 0");
  // Both sides are named.
  const Words twice = {"--token-ids", "1", "--kv-cache", "aura:span128", "--prefill-span", "256"};
  expect_value_refused(twice, "aura:span128");
  expect_value_refused(twice, "--prefill-span is 256");
  expect_value_refused({"--token-ids", "1", "--prefill-span", "256"}, "--kv-cache is raw");
  expect_value_refused({"--token-ids", "1", "-ctk", "f16", "--prefill-span", "256"}, "--kv-cache is k=raw");
}

TEST(BadInput, TokenIds) {
  expect_value_refused({"--token-ids", "1,1000000000"}, "1000000000");
  expect_value_refused({"--token-ids", "-1"}, "-1");
  expect_value_refused({"--token-ids", "99999999999999999999"}, "--token-ids");
  expect_refusal(run_butter(on_tiny_model({"--token-ids", "1,,2"})), 2, "--token-ids");
  expect_value_refused({"-p", "text for a model without a tokenizer"}, "--token-ids");
}

TEST(BadInput, Sampling) {
  expect_value_refused({"--token-ids", "1", "--temperature", "nan"}, "temperature");
  expect_value_refused({"--token-ids", "1", "--temperature", "-0.5"}, "temperature");
  expect_value_refused({"--token-ids", "1", "--temperature", "1e99"}, "temperature");
  expect_value_refused({"--token-ids", "1", "--top-p", "1.5"}, "top-p");
  expect_value_refused({"--token-ids", "1", "--top-k", "-2"}, "--top-k is -2");
  expect_value_refused({"--token-ids", "1", "--seed", "-2"}, "--seed is -2");
  expect_value_refused({"--token-ids", "1", "--stop", ""}, "--stop is empty");
  expect_value_refused({"--token-ids", "1", "--max-tokens", "-2"}, "--max-tokens is -2");
}

TEST(BadInput, DevicesAndInstructionSets) {
  expect_value_refused({"--token-ids", "1", "--device", "abacus"}, "abacus");
  expect_value_refused({"--token-ids", "1", "--threads", "0"}, "--threads is 0");
  RunOptions options;
  options.environment = {{"BUTTER_ISA", "z80"}};
  expect_refusal(run_butter(on_tiny_model({"--token-ids", "1"}), options), 1, "z80");
  expect_refusal(run_butter({"--version"}, options), 1, "z80");
}

TEST(BadInput, FilesThatAreNoModels) {
  const ScratchFolder scratch;
  const auto refused = [](const std::string& model, const std::string& named) {
    expect_refusal(run_butter({"generate", "-m", model, "--token-ids", "1"}), 1, named);
    expect_refusal(run_butter({"inspect", "-m", model}), 1, named);
    expect_refusal(run_butter({"plan", "-m", model}), 1, named);
  };
  refused(scratch.file("missing.gguf"), "missing.gguf");
  refused("no-such-model", "no-such-model");
  std::ofstream(scratch.file("empty.gguf"));
  refused(scratch.file("empty.gguf"), "empty.gguf");
  std::ofstream(scratch.file("foreign.gguf")) << "This is a letter, not a model. " << std::string(4096, 'x');
  refused(scratch.file("foreign.gguf"), "foreign.gguf");
  fs::create_directory(scratch.file("folder.gguf"));
  refused(scratch.file("folder.gguf"), "folder.gguf");
  refused(tiny_model() + "/config.json/model.safetensors", "config.json");
  ASSERT_EQ(::mkfifo(scratch.file("fifo.gguf").c_str(), 0600), 0);
  refused(scratch.file("fifo.gguf"), "fifo.gguf");
}

TEST(BadInput, AModelCutShort) {
  const ScratchFolder scratch;
  fs::copy(tiny_model(), scratch.file("model"));
  const std::string weights = scratch.file("model/model.safetensors");
  const auto whole = static_cast<int64_t>(fs::file_size(weights));
  for (const int64_t size : {whole - 1, whole / 2, int64_t{100}, int64_t{7}, int64_t{0}}) {
    fs::resize_file(weights, static_cast<uintmax_t>(size));
    expect_refusal(run_butter({"generate", "-m", scratch.file("model"), "--token-ids", "1"}), 1,
                   "model.safetensors");
  }
}

TEST(BadInput, WeightsThatAreNotNumbers) {
  const ScratchFolder scratch;
  fs::copy(tiny_model(), scratch.file("model"));
  const std::string weights = scratch.file("model/model.safetensors");
  std::string bytes = file_contents(weights);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(8 + header_bytes), bytes.end(), '\xff');
  std::ofstream(weights, std::ios::binary) << bytes;
  expect_refusal(run_butter({"generate", "-m", scratch.file("model"), "--token-ids", "1"}), 1,
                 "not a finite number");
}

// Before weights are read: those of this model do not even fit its configuration.
TEST(BadInput, AHeadWidthThatTheCacheFormatCannotTake) {
  const ScratchFolder scratch;
  fs::copy(tiny_model(), scratch.file("model"));
  const std::string path = scratch.file("model/config.json");
  std::string config = file_contents(path);
  const std::string width = "\"head_dim\": 64";
  ASSERT_NE(config.find(width), std::string::npos);
  config.replace(config.find(width), width.size(), "\"head_dim\": 20");
  std::ofstream(path, std::ios::binary) << config;
  const std::string sentence =
      "the cache format affine4 takes head widths 16, 32, 48, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, "
      "512, "
      "...; layer 0 of this model has 20";
  for (const char* command : {"generate", "plan", "bench"}) {
    Words words = {command, "-m", scratch.file("model"), "--kv-cache", "affine4", "--max-context", "64"};
    if (std::string(command) == "generate") words.insert(words.end(), {"--token-ids", "1"});
    if (std::string(command) == "bench") words.insert(words.end(), {"-p", "16", "-n", "4"});
    expect_refusal(run_butter(words), 1, sentence);
  }
}

TEST(BadInput, ACacheLargerThanTheMachine) {
  ProgramResult result =
      run_butter({"bench", "-m", tiny_model(), "--depth", "2000000000", "-p", "0", "-n", "1"});
  // Before it fails it warns that the model was not made for so much.
  EXPECT_THAT(result.err, StartsWith("note: "));
  result.err.erase(0, result.err.find('\n') + 1);
  expect_refusal(result, 1, "takes");
}

TEST(BadInput, NulInAPromptIsText) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  const ScratchFolder scratch;
  std::ofstream(scratch.file("prompt"), std::ios::binary) << std::string("one\0two", 7);
  const ProgramResult result =
      run_butter({"generate", "-m", default_model(), "-f", scratch.file("prompt"), "-n", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(BadInput, OutputThatCannotBeWritten) {
  RunOptions options;
  options.stdout_to = "/dev/full";
  const ProgramResult full = run_butter(on_tiny_model({"--token-ids", "1"}), options);
  expect_refusal(full, 1, "standard output");
  // A reader that went away is no error of the program.
  options.stdout_to = "|closed";
  const ProgramResult closed = run_butter(on_tiny_model({"--token-ids", "1"}), options);
  EXPECT_EQ(closed.status, 0);
  EXPECT_EQ(closed.err, "");
}

TEST(BadInput, LogitsThatCannotBeWritten) {
  const ScratchFolder scratch;
  expect_value_refused({"--token-ids", "1", "--dump-logits", scratch.file("no/folder/logits")},
                       "--dump-logits");
  fs::create_directory(scratch.file("taken"));
  expect_value_refused({"--token-ids", "1", "--dump-logits", scratch.file("taken")}, "folder");
  // A run that fails leaves nothing beside the name either.
  expect_value_refused(
      {"--token-ids", "1,2,3", "--max-context", "2", "--dump-logits", scratch.file("logits")}, "3 tokens");
  EXPECT_EQ(scratch.names(), Words{"taken"});
}

}  // namespace
}  // namespace butter
