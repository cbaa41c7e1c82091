#include "text/chat_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "text/jinja_testing.h"

namespace butter {
namespace {

using testing::HasSubstr;

std::vector<Message> messages_of(std::string_view json) {
  const auto messages = read_messages(json);
  EXPECT_TRUE(messages) << messages.error().message();
  return messages.value_or(std::vector<Message>());
}

std::string refusal(std::string_view json) {
  const auto messages = read_messages(json);
  return messages ? "accepted" : messages.error().message();
}

TEST(ReadMessages, RoleContentAndTheRestInOrder) {
  const auto messages = messages_of(R"([
      {"role": "user", "content": "Grüße"},
      {"role": "assistant", "z": 1, "content": null, "a": [true, null, 0.5, "x"], "k": {"y": {}, "b": []}}])");
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, "user");
  EXPECT_EQ(messages[0].content, "Grüße");
  EXPECT_EQ(messages[0].fields, "");
  EXPECT_EQ(messages[1].content, "");
  EXPECT_EQ(messages[1].fields, R"({"z": 1, "a": [true, null, 0.5, "x"], "k": {"y": {}, "b": []}})");
  EXPECT_TRUE(messages_of("[]").empty());
}

TEST(ReadMessages, PartsOfTextAreLinesOfOne) {
  EXPECT_EQ(messages_of(
                R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""},
                            {"type": "text", "text": "b"}]}])")[0]
                .content,
            "a\n\nb");
  EXPECT_EQ(messages_of(R"([{"role": "user", "content": []}, {"role": "user"}])")[0].content, "");
}

TEST(ReadMessages, ArgumentsOfToolCallsThatAreJsonInATextBecomeJson) {
  const auto calls = [](const std::string& arguments) {
    return messages_of(
               R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f",
                           "arguments": )" +
               arguments + "}, \"type\": \"function\"}, 5, {\"function\": 6}]}]")[0]
        .fields;
  };
  const std::string parsed =
      R"({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"x": [1, "two"]}}, "type": "function"}, )"
      R"(5, {"function": 6}]})";
  EXPECT_EQ(calls(R"("{\"x\": [1, \"two\"]}")"), parsed);
  EXPECT_EQ(calls(R"({"x": [1, "two"]})"), parsed);
  EXPECT_THAT(calls(R"("{not json")"), HasSubstr(R"("arguments": "{not json")"));
  EXPECT_THAT(calls(R"("7")"), HasSubstr(R"("arguments": "7")"));
  // What would nest too deep in its place stays a text, so that all that is read can be written and read
  // again.
  const auto nested = [](size_t depth) {
    return "\"{\\\"x\\\": " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}\"";
  };
  EXPECT_THAT(calls(nested(95)), HasSubstr(R"("arguments": {"x": [[)"));
  EXPECT_THAT(calls(nested(96)), HasSubstr(R"("arguments": "{\"x\": [[)"));
}

TEST(ReadMessages, WhatIsWrongIsNamedWithItsMessage) {
  EXPECT_THAT(refusal("{"), HasSubstr("not valid at byte"));
  EXPECT_THAT(refusal("{\"role\": \"user\"}"), HasSubstr("an object; an array of messages is expected"));
  EXPECT_THAT(refusal("[{\"role\": \"user\"}, \"hello\"]"), HasSubstr("message 2: it is a text"));
  EXPECT_THAT(refusal("[{\"content\": \"x\"}]"), HasSubstr("message 1: it has no role"));
  EXPECT_THAT(refusal("[{\"role\": 5}]"), HasSubstr("its role is a number; a text is expected"));
  EXPECT_THAT(refusal("[{\"role\": \"user\", \"content\": true}]"),
              HasSubstr("its content is true or false"));
  EXPECT_THAT(refusal(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
              HasSubstr("a part of type \"image_url\""));
  EXPECT_THAT(refusal(R"([{"role": "user", "content": [{"type": "text"}]}])"), HasSubstr("no \"text\""));
  EXPECT_THAT(refusal(R"([{"role": "user", "content": ["x"]}])"), HasSubstr("has no type"));
  EXPECT_THAT(refusal(std::string(5000, '[')), HasSubstr("nests deeper"));
  EXPECT_THAT(refusal("[{\"role\": \"\xff\"}]"), HasSubstr("not valid"));
}

TEST(WriteMessages, ReadsBackAsItWas) {
  const std::vector<Message> messages = {
      {"system", "a \"b\"\n\\"},
      {"assistant", "", "{\"tool_calls\": [{\"id\": 1}], \"name\": \"é\"}"},
      {"user", "", "{}"}};
  const auto again = messages_of(write_messages(messages));
  ASSERT_EQ(again.size(), 3u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again[i].role, messages[i].role);
    EXPECT_EQ(again[i].content, messages[i].content);
    EXPECT_EQ(again[i].fields, messages[i].fields);
  }
  EXPECT_EQ(again[2].fields, "");
  EXPECT_TRUE(messages_of(write_messages({})).empty());
  const Message odd[] = {{"user", "\xff", "no json"}};
  EXPECT_EQ(messages_of(write_messages(odd))[0].content, "\xEF\xBF\xBD");
}

TEST(TemplateArgument, IsJsonWhereItReadsAsSuchAndElseAText) {
  const auto value = [](std::string_view text) {
    const auto argument = read_template_argument(text);
    EXPECT_TRUE(argument) << argument.error().message();
    return argument ? argument->name + " " + argument->value : "";
  };
  EXPECT_EQ(value("enable_thinking=false"), "enable_thinking false");
  EXPECT_EQ(value("n=3"), "n 3");
  EXPECT_EQ(value("list=[1, {\"a\": null}]"), "list [1, {\"a\": null}]");
  EXPECT_EQ(value("effort=high"), "effort \"high\"");
  EXPECT_EQ(value("q=\"high\""), "q \"high\"");
  EXPECT_EQ(value("e="), "e \"\"");
  EXPECT_EQ(value("a=b=c"), "a \"b=c\"");
  EXPECT_EQ(value("big=99999999999999999999"), "big \"99999999999999999999\"");
}

TEST(TemplateArgument, NamesThatNoTemplateCanAskForAreRefused) {
  const auto refused = [](std::string_view text) {
    const auto argument = read_template_argument(text);
    return argument ? "accepted" : argument.error().message();
  };
  EXPECT_THAT(refused("thinking"), HasSubstr("NAME=VALUE is expected"));
  for (const char* text : {"=1", "1a=1", "a-b=1", "ä=1"})
    EXPECT_THAT(refused(text), HasSubstr("--template-arg names"));
  EXPECT_THAT(refused("messages=[]"), HasSubstr("the conversation itself"));
  EXPECT_THAT(refused("tools=[]"), HasSubstr("--tools"));
}

TEST(TemplateVariables, ToolsAreAnArrayAndEveryTextIsContent) {
  ChatOptions options;
  options.tools = R"([{"name": "f<|im_end|>"}])";
  options.arguments = {{"who", "\"<|im_start|>\""}, {"deep", "{\"a\": [1]}"}, {"who", "\"you\""}};
  const auto variables = template_variables(options);
  ASSERT_TRUE(variables) << variables.error().message();
  const auto chat_template =
      ChatTemplate::parse("{{ tools | tojson }}{{ who }}{{ deep.a[0] }}{{ messages[0].x }}");
  ChatTemplateOptions render;
  render.arguments = *variables;
  const auto chat = chat_template->render({{"user", "", "{\"x\": \"<|x|>\"}"}}, render);
  ASSERT_TRUE(chat) << chat.error().message();
  EXPECT_EQ(jinja::marked({chat->text, chat->content, false}),
            "[{\"[name]\": \"[f<|im_end|>]\"}][you]1[<|x|>]");
}

TEST(TemplateVariables, WhatIsWrongIsNamed) {
  const auto refused = [](const ChatOptions& options) {
    const auto variables = template_variables(options);
    return variables ? "accepted" : variables.error().message();
  };
  EXPECT_THAT(refused({.tools = "{}"}), HasSubstr("--tools is an object; a JSON array is expected"));
  EXPECT_THAT(refused({.tools = "[1"}), HasSubstr("--tools: "));
  EXPECT_THAT(refused({.arguments = {{"x", "no"}}}), HasSubstr("--template-arg x: "));
  EXPECT_THAT(refused({.arguments = {{"x y", "1"}}}), HasSubstr("x y"));
  const auto chat = ChatTemplate::parse("{{ messages }}")->render({{"user", "", "[1]"}}, {});
  ASSERT_FALSE(chat);
  EXPECT_THAT(chat.error().message(), HasSubstr("an array; a JSON object is expected"));
}

}  // namespace
}  // namespace butter
