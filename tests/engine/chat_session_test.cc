// Session::chat: what a template makes of messages, tools and arguments, and the turns of a conversation. On
// the tiny model with a template, and on the default model where that has been fetched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "butter/pull.h"
#include "butter/session.h"
#include "support/chat_model.h"
#include "support/run_engine.h"
#include "support/temp_dir.h"

namespace butter {
namespace {

using testing::HasSubstr;

GenerateOptions tokens(int64_t count) {
  GenerateOptions options;
  options.max_tokens = count;
  return options;
}

std::string with_specials(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return tokenizer.decode(ids);
}

Session make_session(Engine& engine) {
  auto session = Session::create(engine);
  EXPECT_TRUE(session) << session.error().message();
  BUTTER_CHECK(session.has_value());
  return std::move(*session);
}

class ChatModelTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> load(const ChatModelOptions& options = {}) {
    write_chat_model(folder_.file("model.gguf"), options);
    return load_engine(tiny_options(folder_.file("model.gguf"), "reference"));
  }
  TempDir folder_;
};

TEST_F(ChatModelTest, ToolsArgumentsAndFieldsAreInThePromptAndSpecialTokensOfTheTemplateAlone) {
  const auto engine = load();
  const Session session = make_session(*engine);
  const std::vector<Message> messages = {
      {"user", "a<|im_end|>b"}, {"assistant", "", R"({"tool_calls": [{"function": {"name": "<|im_start|>",
                                                              "arguments": {"x": "<|im_end|>"}}}]})"}};
  ChatOptions options;
  options.tools = R"([{"name": "<|im_end|>"}])";
  options.arguments = {{"enable_thinking", "false"}};
  const auto ids = session.chat_tokens(messages, options);
  ASSERT_TRUE(ids) << ids.error().message();
  EXPECT_EQ(with_specials(*engine->tokenizer(), *ids),
            "<|im_start|>tools\n[{\"name\": \"<|im_end|>\"}]<|im_end|>\n"
            "<|im_start|>user\na<|im_end|>b<|im_end|>\n"
            "<|im_start|>assistant\ncall <|im_start|> {\"x\": \"<|im_end|>\"}<|im_end|>\n"
            "<|im_start|>assistant\n<think></think>\n");
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kByteStartId), 4) << "those of the template";
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kByteEndId), 3);
}

TEST_F(ChatModelTest, TurnsAnswerAsAFreshSessionDoes) {
  const auto engine = load();
  Session chat = make_session(*engine);
  std::vector<Message> messages;
  for (int turn = 0; turn < 3; ++turn) {
    messages.push_back({"user", "turn " + std::to_string(turn)});
    std::string streamed;
    const auto answer = chat.chat(messages, tokens(12), [&](std::string_view piece) {
      streamed += piece;
      return true;
    });
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(streamed, answer->text);
    Session fresh = make_session(*engine);
    const auto expected = fresh.chat(messages, tokens(12), nullptr);
    ASSERT_TRUE(expected);
    EXPECT_EQ(answer->token_ids, expected->token_ids) << "turn " << turn;
    EXPECT_EQ(answer->prompt_tokens, static_cast<int64_t>(chat.chat_tokens(messages)->size()));
    if (turn > 0) {
      EXPECT_GT(answer->reused_tokens, 0);
    }
    messages.push_back({"assistant", answer->text});
  }
}

TEST_F(ChatModelTest, OptionsOfAChatAreThoseOfItsPrompt) {
  const auto engine = load();
  Session chat = make_session(*engine);
  GenerateOptions options = tokens(3);
  const auto plain = chat.chat({{"user", "Hi"}}, options, nullptr);
  options.chat.arguments = {{"enable_thinking", "false"}};
  const auto without = chat.chat({{"user", "Hi"}}, options, nullptr);
  ASSERT_TRUE(plain && without);
  EXPECT_EQ(without->prompt_tokens, plain->prompt_tokens + 16) << "bytes of \"<think></think>\\n\"";
}

TEST_F(ChatModelTest, WhatTheTemplateLacksIsRefused) {
  const auto engine =
      load({.chat_template = "{% for m in messages %}{{ m.content }}{{ mytools }}{% endfor %}"});
  Session chat = make_session(*engine);
  GenerateOptions options = tokens(1);
  options.chat.tools = "[]";
  const auto refused = chat.chat({{"user", "Hi"}}, options, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.error().message(), HasSubstr("the chat template of model.gguf has no tools"));
  EXPECT_TRUE(chat.chat_template_names("mytools"));
  EXPECT_FALSE(chat.chat_template_names("tools"));
  options.chat.tools = "";
  options.chat.arguments = {{"enable_thinking", "false"}};
  EXPECT_TRUE(chat.chat({{"user", "Hi"}}, options, nullptr)) << "templates may ignore variables";

  const auto plain = load({.chat_template = nullptr});
  Session without = make_session(*plain);
  EXPECT_FALSE(without.has_chat_template());
  EXPECT_FALSE(without.chat_template_names("messages"));
  EXPECT_THAT(without.chat({{"user", "Hi"}}, tokens(1), nullptr).error().message(),
              HasSubstr("no chat template"));
}

TEST_F(ChatModelTest, AnotherTemplateForToolsIsTakenForThemAlone) {
  const auto engine = load({.chat_template = "usual {{ messages[0].content }}",
                            .tool_template = "{{ tools[0] }} {{ messages[0].content }} {{ mood }}"});
  const Session session = make_session(*engine);
  const auto text_of = [&](const ChatOptions& options) {
    const auto ids = session.chat_tokens({{"user", "Hi"}}, options);
    EXPECT_TRUE(ids) << ids.error().message();
    return ids ? engine->tokenizer()->decode(*ids) : "";
  };
  EXPECT_EQ(text_of({}), "usual Hi");
  EXPECT_EQ(text_of({.tools = "[5]", .arguments = {{"mood", "\"good\""}}}), "5 Hi good");
  EXPECT_TRUE(session.chat_template_names("mood"));
}

TEST_F(ChatModelTest, ATemplateThatDoesNotParseStandsInTheWayOfChatsAlone) {
  const auto engine = load({.chat_template = "{% for %}"});
  Session session = make_session(*engine);
  EXPECT_TRUE(session.has_chat_template());
  const auto chat = session.chat({{"user", "Hi"}}, tokens(1), nullptr);
  ASSERT_FALSE(chat);
  EXPECT_THAT(chat.error().message(), HasSubstr("model.gguf: chat template: template line 1"));
  EXPECT_TRUE(session.complete("Hi", tokens(1), nullptr));
}

// Of a folder: a file of its own, or one of the texts that tokenizer_config.json has.
TEST_F(ChatModelTest, FoldersHaveTheirTemplatesInSeveralPlaces) {
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(test_data("fixtures/llama/") + name, folder_.file(name));
  const auto engine = load_engine(tiny_options(folder_.path(), "reference"));
  const auto usual = [&](bool for_tools = false) {
    const auto source = engine->chat_template(for_tools);
    return !source ? source.error().message() : source->value_or("none");
  };
  EXPECT_EQ(usual(), "none");
  const std::string config = folder_.file("tokenizer_config.json");
  write_test_file(config, R"({"chat_template": null, "model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(usual(), "none");
  write_test_file(config, R"({"chat_template": "a"})");
  EXPECT_EQ(usual(), "a");
  EXPECT_EQ(usual(true), "none");
  write_test_file(
      config, R"({"chat_template": [{"name": "default", "template": "b"}, {"name": "rag", "template": "c"},
                                                {"name": "tool_use", "template": "d"}]})");
  EXPECT_EQ(usual(), "b");
  EXPECT_EQ(usual(true), "d");
  for (const char* wrong : {"5", "[5]", "[{\"name\": \"default\"}]", "{}"}) {
    write_test_file(config, std::string("{\"chat_template\": ") + wrong + "}");
    EXPECT_THAT(usual(), HasSubstr("tokenizer_config.json: chat_template is neither")) << wrong;
  }
  write_test_file(config, "[");
  EXPECT_THAT(usual(), HasSubstr("tokenizer_config.json is no JSON object"));
  write_test_file(folder_.file("chat_template.json"), R"({"chat_template": "e"})");
  EXPECT_EQ(usual(), "e");
  write_test_file(folder_.file("chat_template.jinja"), "f");
  EXPECT_EQ(usual(), "f");
}

class DefaultModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = find_fetched_model("smollm2");
    if (!path) GTEST_SKIP() << "the default model has not been fetched";
    EngineOptions options;
    options.model = *path;
    options.max_context = 1024;
    options.cache_budget_bytes = int64_t{256} << 20;
    engine_ = load_engine(options);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_F(DefaultModelTest, ChatTokensAreTheTemplatesWithTheModelsOwnSpecialTokens) {
  const Session session = make_session(*engine_);
  const auto ids = session.chat_tokens({{"user", "Say <|im_end|>."}});
  ASSERT_TRUE(ids) << ids.error().message();
  const Tokenizer& tokenizer = *engine_->tokenizer();
  EXPECT_EQ(
      tokenizer.decode(*ids),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nSay <|im_end|>.<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(ids->begin(), ids->end(), *tokenizer.special_id("<|im_end|>")), 2);
}

TEST_F(DefaultModelTest, TurnsKeepTheCacheAndEndByThemselves) {
  Session chat = make_session(*engine_);
  std::vector<Message> messages = {{"system", "You answer in one short sentence."},
                                   {"user", "What is the capital of France?"}};
  const auto first = chat.chat(messages, tokens(60), nullptr);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_THAT(first->text, HasSubstr("Paris"));
  EXPECT_EQ(first->finish_reason, "stop");
  EXPECT_FALSE(engine_->tokenizer()->is_end(first->token_ids.back()));
  messages.push_back({"assistant", first->text});
  messages.push_back({"user", "And of Italy?"});
  const auto second = chat.chat(messages, tokens(60), nullptr);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_GE(second->reused_tokens, first->prompt_tokens);
  EXPECT_THAT(second->text, HasSubstr("Rome"));
}

}  // namespace
}  // namespace butter
