// Chat templates and sampling from the command line: what they are given, what they print, what is refused.
// On the tiny model that has a tokenizer and a template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run_butter.h"

namespace butter {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// What `butter generate --json` says with these options.
Json generated(const Words& more) {
  Words words = {"generate", "-m", chat_model(),   "--device", "reference",
                 "-n",       "4",  "--ignore-eos", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = run_butter(words);
  EXPECT_EQ(result.status, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

// The same for a text with its special tokens, given as ids: what a template's rendering should come to.
Json generated_as_is(const std::string& prompt) {
  const ProgramResult tokens =
      run_butter({"tokenize", "-m", chat_model(), "--special", "--json", "-p", prompt});
  EXPECT_EQ(tokens.status, 0) << tokens.err;
  std::string ids = Json::parse(tokens.out).at("ids").dump();
  ids = ids.substr(1, ids.size() - 2);
  return generated({"--token-ids", ids});
}

void expect_prompt(const Words& options, const std::string& rendering) {
  const Json chat = generated(options), plain = generated_as_is(rendering);
  EXPECT_EQ(chat["prompt_tokens"], plain["prompt_tokens"]);
  EXPECT_EQ(chat["token_ids"], plain["token_ids"]);
}

void expect_refusal(const Words& more, int status, const std::string& named) {
  Words words = {"generate", "-m", chat_model(), "-n", "2"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = run_butter(words);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, testing::StartsWith("butter: "));
  EXPECT_THAT(result.err, HasSubstr(named));
}

TEST(ChatPrompt, TheTemplateGetsTheTextTheSystemMessageAndItsVariables) {
  expect_prompt({"-p", "Hi"}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  expect_prompt(
      {"-p", "Hi", "--system", "Be brief"},
      "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  expect_prompt({"-p", "Hi", "--template-arg", "enable_thinking=false"},
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think></think>\n");
  expect_prompt(
      {"-p", "Hi", "--template-arg", "enable_thinking=false", "--template-arg", "enable_thinking=true"},
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  expect_prompt({"-p", "Hi", "--raw"}, "Hi");
}

TEST(ChatPrompt, ToolsAndMessagesComeFromFiles) {
  const ScratchFolder scratch;
  const std::string tools = scratch.file("tools.json"), messages = scratch.file("messages.json");
  write_file(tools, R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  expect_prompt(
      {"-p", "Hi", "--tools", tools},
      "<|im_start|>tools\n[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
      "{}}}]<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  write_file(messages, R"([{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
      {"role": "assistant", "content": null,
       "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "content": "7"}])");
  expect_prompt(
      {"--messages", messages, "--system", "S"},
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\ncall f "
      "{\"x\": 1}<|im_end|>\n<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatPrompt, WhatCannotBeIsRefusedByName) {
  const ScratchFolder scratch;
  const std::string file = scratch.file("file.json");
  expect_refusal({"-p", "Hi", "--tools", scratch.file("none")}, 1, scratch.file("none"));
  write_file(file, "");
  expect_refusal({"-p", "Hi", "--tools", file}, 1, "is empty");
  write_file(file, "{}");
  expect_refusal({"-p", "Hi", "--tools", file}, 1, "--tools is an object; a JSON array is expected");
  expect_refusal({"--messages", file}, 1, "an array of messages is expected");
  write_file(file, "[");
  expect_refusal({"-p", "Hi", "--tools", file}, 1, "--tools: the JSON text cannot be used");
  write_file(file, "[]");
  expect_refusal({"--messages", file}, 1, "at least one is expected");
  write_file(file, R"([{"role": "system", "content": "S"}, {"content": "x"}])");
  expect_refusal({"--messages", file}, 1, "message 2: it has no role");
  write_file(file, R"([{"role": "system", "content": "S"}])");
  expect_refusal({"--messages", file, "--system", "T"}, 1, "begins with a system message");
  expect_refusal({"--messages", file, "-p", "Hi"}, 2, "one is expected");
  expect_refusal({"--messages", file, "--raw"}, 1,
                 "--messages is given, and no chat template is used: --raw");
  expect_refusal({"-p", "Hi", "--raw", "--system", "S"}, 1, "--system is given");
  expect_refusal({"--token-ids", "1", "--template-arg", "a=1"}, 1, "--template-arg is given");
  expect_refusal({"-p", "Hi", "--template-arg", "a"}, 1, "NAME=VALUE");
  expect_refusal({"-p", "Hi", "--template-arg", "messages=[]"}, 1, "messages");
}

TEST(ChatPrompt, ModelsWithoutTemplateOrToolsSaySo) {
  const ScratchFolder scratch;
  write_file(scratch.file("tools.json"), "[{}]");
  ProgramResult result = run_butter({"generate", "-m", tiny_model(), "-p", "Hi", "--system", "S"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("--system is given, and no chat template is used: llama has none"));
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  result = run_butter({"generate", "-m", default_model(), "-p", "Hi", "--tools", scratch.file("tools.json")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("has no tools"));
  RunOptions nothing_typed;
  result = run_butter({"chat", "-m", default_model(), "--tools", scratch.file("tools.json")}, nothing_typed);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("has no tools"));
}

TEST(ChatPrompt, AVariableThatTheTemplateLacksIsNoted) {
  const ProgramResult result = run_butter(
      {"generate", "-m", chat_model(), "-p", "Hi", "-n", "1", "--template-arg", "enable_thinkin=false"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--template-arg enable_thinkin: "));
}

TEST(ChatLoop, TakesTheSameAndKeepsWhatElseAMessageHas) {
  const ScratchFolder scratch;
  const std::string talk = scratch.file("talk.json"), again = scratch.file("again.json");
  write_file(talk, R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "",
                       "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}])");
  RunOptions options;
  options.input = "/load " + talk + "\nGo on.\n/save " + again + "\n";
  const ProgramResult result = run_butter({"chat", "-m", chat_model(), "-n", "2", "--json", "--template-arg",
                                           "enable_thinking=false", "--logprobs", "1"},
                                          options);
  EXPECT_EQ(result.status, 0) << result.err;
  const Json turn = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(turn["logprobs"].size(), turn["generated_tokens"].get<size_t>());
  std::ifstream file(again);
  const Json saved = Json::parse(file, nullptr, false);
  ASSERT_EQ(saved.size(), 4u);
  EXPECT_EQ(saved[1]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(saved[2]["content"], "Go on.");
}

TEST(Logprobs, StandInJsonAndInLines) {
  const Words options = {"-p", "Hi", "--logprobs", "2"};
  const Json json = generated(options);
  ASSERT_EQ(json["logprobs"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json& token = json["logprobs"][i];
    EXPECT_EQ(token["id"], json["token_ids"][i]);
    EXPECT_TRUE(token["token"].is_string());
    ASSERT_EQ(token["top"].size(), 2u);
    EXPECT_EQ(token["top"][0]["logprob"], token["logprob"]) << "greedy takes the likeliest";
    EXPECT_LE(token["top"][1]["logprob"], token["logprob"]);
    EXPECT_LT(token["logprob"], 0);
  }
  EXPECT_EQ(generated({"-p", "Hi", "--logprobs"})["logprobs"][0]["top"].size(), 0u);
  EXPECT_FALSE(generated({"-p", "Hi"}).contains("logprobs"));
  const ProgramResult lines = run_butter(
      {"generate", "-m", tiny_model(), "--token-ids", "1,2", "-n", "3", "--ignore-eos", "--logprobs", "2"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 4) << "the ids, and a line for each:\n"
                                                                     << lines.out;
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '|'), 3);
}

TEST(SamplingOptions, BiasAndPenaltiesReachTheSampler) {
  EXPECT_THAT(generated({"-p", "Hi", "--logit-bias", "70=100"})["token_ids"].get<std::vector<int>>(),
              testing::Each(70));
  const Json first = generated({"-p", "Hi"});
  const std::string id = first["token_ids"][0].dump();
  EXPECT_NE(generated({"-p", "Hi", "--logit-bias", id + "=-inf"})["token_ids"][0], first["token_ids"][0]);
  const auto count_of_70 = [](const char* option) {
    const Json json = generated({"-p", "Hi", "--logit-bias", "70=8", option, "2", "-n", "20"});
    const std::vector<int> ids = json["token_ids"];
    return std::count(ids.begin(), ids.end(), 70);
  };
  EXPECT_EQ(count_of_70("--presence-penalty"), 20) << "8 - 2 is far ahead still";
  EXPECT_LT(count_of_70("--frequency-penalty"), 10);
}

TEST(SamplingOptions, OutOfRangeIsRefusedByName) {
  const auto refused = [&](const char* option, const char* value, int status, const char* named) {
    expect_refusal({"--token-ids", "1", option, value}, status, named);
  };
  refused("--presence-penalty", "2.5", 1, "--presence-penalty is 2.5");
  refused("--frequency-penalty", "-2.5", 1, "--frequency-penalty is -2.5");
  refused("--frequency-penalty", "nan", 1, "--frequency-penalty is nan");
  refused("--logprobs", "1001", 1, "--logprobs is 1001");
  refused("--logit-bias", "5", 2, "ID=BIAS");
  refused("--logit-bias", "=5", 2, "ID=BIAS");
  refused("--logit-bias", "5=", 2, "ID=BIAS");
  refused("--logit-bias", "5=1x", 2, "ID=BIAS");
  refused("--logit-bias", "99999999999=1", 2, "ID=BIAS");
  refused("--logit-bias", "5=101", 1, "--logit-bias of token 5 is 101");
  refused("--logit-bias", "5=inf", 1, "--logit-bias of token 5 is inf");
  refused("--logit-bias", "-5=1", 1, "an id of 0 or more");
  refused("--logit-bias", "256=1", 1, "the ids 0 to 255");
}

}  // namespace
}  // namespace butter
