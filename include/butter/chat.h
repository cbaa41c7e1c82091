// What a chat prompt is made of: messages, tools, and variables of the model's chat template.
//
// Nothing of it is trusted: special tokens that stand in a text, a tool or a variable are text in the prompt.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "butter/export.h"
#include "butter/status.h"

namespace butter {

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // A JSON object of what else the message has, for templates that know it: {"tool_calls": [...]}. Empty:
  // none.
  std::string fields = {};
};

// A variable that a template may ask for: "enable_thinking", `false`.
struct TemplateArgument {
  std::string name;
  std::string value;  // JSON
};

struct ChatOptions {
  // A JSON array of what the model may call, as the template wants it: usually OpenAI's form. Empty: none.
  std::string tools = {};
  std::vector<TemplateArgument> arguments = {};  // of two with the same name the last holds
};

// The messages of a JSON text in the form of OpenAI's API: an array of objects with a text as "role".
// "content" is a text, null (no text), or an array of parts {"type": "text", "text": ...}, which become lines
// of one text. In "tool_calls", arguments that are JSON inside a text become that JSON. Errors name the
// message.
BUTTER_API Result<std::vector<Message>> read_messages(std::string_view json);
// The way back: a JSON array, an object a line. Bytes that are no UTF-8 become U+FFFD.
BUTTER_API std::string write_messages(std::span<const Message> messages);

// "NAME=VALUE": the value is JSON where it reads as such, else a text.
BUTTER_API Result<TemplateArgument> read_template_argument(std::string_view text);

}  // namespace butter
