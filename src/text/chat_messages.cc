#include "text/chat_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja_json.h"

namespace butter {
namespace {

using jinja::Kind;
using jinja::Value;

// `outside` lists and dicts will stand around it.
Result<Value> parse(std::string_view json, int outside = 0) {
  jinja::Limits limits;
  limits.max_value_depth -= outside;
  return jinja::value_from_json(json, jinja::Provenance::kContent, limits);
}

// What a JSON value is, for messages.
std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return "true or false";
    case Kind::kText:
      return "a text";
    case Kind::kSequence:
      return "an array";
    case Kind::kDict:
      return "an object";
    default:
      return "a number";
  }
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// JSON of a value that was made of JSON, which bounds its depth.
std::string write_json(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
      return value.as_bool() ? "true" : "false";
    case Kind::kInt:
      return std::to_string(value.as_int());
    case Kind::kFloat:
      return nlohmann::json(value.as_float()).dump();
    case Kind::kText:
      return json_text(value.bytes());
    case Kind::kSequence: {
      std::string text;
      for (const Value& item : value.as_sequence().items)
        text += (text.empty() ? "" : ", ") + write_json(item);
      return "[" + text + "]";
    }
    case Kind::kDict: {
      std::string text;
      for (const auto& [key, item] : value.as_dict().entries())
        text += (text.empty() ? "" : ", ") + write_json(key) + ": " + write_json(item);
      return "{" + text + "}";
    }
    default:
      return "null";
  }
}

// Nothing where it is no object, or has no such key.
const Value* member(const Value& value, std::string_view key) {
  return value.is(Kind::kDict) ? value.as_dict().find(key) : nullptr;
}

// The dict with one of its values replaced.
Value with(const jinja::Dict& dict, std::string_view key, const Value& replacement) {
  std::vector<std::pair<std::string, Value>> entries;
  for (const auto& [name, value] : dict.entries())
    entries.emplace_back(name.bytes(), name.bytes() == key ? replacement : value);
  return Value::dict(std::move(entries));
}

// OpenAI's API has a call's arguments as JSON inside a text; templates want the JSON. A model may have
// written what is none: that stays a text.
Value with_parsed_arguments(const Value& call) {
  const Value* function = member(call, "function");
  const Value* arguments = function == nullptr ? nullptr : member(*function, "arguments");
  if (arguments == nullptr || !arguments->is(Kind::kText)) return call;
  constexpr int kOutside = 5;  // the messages, the message, its calls, the call, its function
  const auto parsed = parse(arguments->bytes(), kOutside);
  if (!parsed || !parsed->is(Kind::kDict)) return call;
  return with(call.as_dict(), "function", with(function->as_dict(), "arguments", *parsed));
}

Value read_tool_calls(const Value& calls) {
  if (!calls.is(Kind::kSequence)) return calls;
  std::vector<Value> read;
  for (const Value& call : calls.as_sequence().items) read.push_back(with_parsed_arguments(call));
  return Value::list(std::move(read));
}

Result<std::string> read_part(const Value& part) {
  const Value* type = member(part, "type");
  if (type == nullptr || !type->is(Kind::kText))
    return fail(StatusCode::kCorrupt,
                "a part of its content has no type; {{\"type\": \"text\"}} is expected");
  const Value* text = member(part, "text");
  if (type->bytes() != "text") {
    return fail(StatusCode::kUnsupported,
                "its content has a part of type {}; parts of text are all that is read",
                json_text(type->bytes()));
  }
  if (text == nullptr || !text->is(Kind::kText))
    return fail(StatusCode::kCorrupt, "a part of its content is {{\"type\": \"text\"}} and has no \"text\"");
  return text->bytes();
}

Result<std::string> read_content(const Value& content) {
  if (content.is(Kind::kText)) return content.bytes();
  if (content.is(Kind::kNone)) return std::string();
  if (!content.is(Kind::kSequence)) {
    return fail(StatusCode::kCorrupt, "its content is {}; a text, null or an array of parts is expected",
                kind_name(content));
  }
  std::string text;
  for (size_t i = 0; i < content.as_sequence().items.size(); ++i) {
    BUTTER_ASSIGN(const std::string part, read_part(content.as_sequence().items[i]));
    text += (i == 0 ? "" : "\n") + part;
  }
  return text;
}

Result<Message> read_message(const Value& value) {
  if (!value.is(Kind::kDict)) {
    return fail(StatusCode::kCorrupt, "it is {}; an object with \"role\" and \"content\" is expected",
                kind_name(value));
  }
  Message message;
  std::vector<std::pair<std::string, Value>> fields;
  bool has_role = false;
  for (const auto& [key, item] : value.as_dict().entries()) {
    const std::string& name = key.bytes();
    if (name == "role") {
      if (!item.is(Kind::kText))
        return fail(StatusCode::kCorrupt, "its role is {}; a text is expected", kind_name(item));
      message.role = item.bytes();
      has_role = true;
    } else if (name == "content") {
      BUTTER_ASSIGN(message.content, read_content(item));
    } else {
      fields.emplace_back(name, name == "tool_calls" ? read_tool_calls(item) : item);
    }
  }
  if (!has_role) return fail(StatusCode::kCorrupt, "it has no role; a text is expected");
  if (!fields.empty()) message.fields = write_json(Value::dict(std::move(fields)));
  return message;
}

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && !is_digit(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

Status check_name(const std::string& name) {
  if (!is_identifier(name)) {
    return fail(StatusCode::kInvalidArgument,
                "--template-arg names {}; letters, digits and _, a letter first, are expected",
                json_text(name));
  }
  if (name == "messages" || name == "tools") {
    return fail(StatusCode::kInvalidArgument, "--template-arg names {}, which is given by {}",
                json_text(name), name == "tools" ? "--tools" : "the conversation itself");
  }
  return {};
}

}  // namespace

Result<std::vector<Message>> read_messages(std::string_view json) {
  BUTTER_ASSIGN(const Value list, parse(json));
  if (!list.is(Kind::kSequence)) {
    return fail(StatusCode::kCorrupt, "the JSON text is {}; an array of messages is expected",
                kind_name(list));
  }
  std::vector<Message> messages;
  for (const Value& each : list.as_sequence().items) {
    auto message = read_message(each);
    if (!message) return fail(message.error().within(fmt::format("message {}", messages.size() + 1)));
    messages.push_back(*std::move(message));
  }
  return messages;
}

std::string write_messages(std::span<const Message> messages) {
  std::string text;
  for (const Message& message : messages) {
    text += text.empty() ? "[\n " : ",\n ";
    const auto whole = message_value(message);
    text += write_json(whole ? *whole : *message_value({message.role, message.content}));
  }
  return text.empty() ? "[]\n" : text + "\n]\n";
}

Result<TemplateArgument> read_template_argument(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return fail(StatusCode::kInvalidArgument, "--template-arg is {}; NAME=VALUE is expected",
                json_text(std::string(text)));
  }
  TemplateArgument argument{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  BUTTER_TRY(check_name(argument.name));
  if (!parse(argument.value)) argument.value = json_text(argument.value);
  return argument;
}

Result<Value> message_value(const Message& message) {
  std::vector<std::pair<std::string, Value>> entries = {{"role", Value::content(message.role)},
                                                        {"content", Value::content(message.content)}};
  if (message.fields.empty()) return Value::dict(std::move(entries));
  const auto fields = parse(message.fields);
  if (!fields) return fail(fields.error().within("the fields of a message"));
  if (!fields->is(Kind::kDict)) {
    return fail(StatusCode::kCorrupt, "the fields of a message are {}; a JSON object is expected",
                kind_name(*fields));
  }
  for (const auto& [key, value] : fields->as_dict().entries()) entries.emplace_back(key.bytes(), value);
  return Value::dict(std::move(entries));
}

Result<std::vector<std::pair<std::string, Value>>> template_variables(const ChatOptions& options) {
  std::vector<std::pair<std::string, Value>> variables;
  if (!options.tools.empty()) {
    const auto tools = parse(options.tools);
    if (!tools) return fail(tools.error().within("--tools"));
    if (!tools->is(Kind::kSequence)) {
      return fail(StatusCode::kInvalidArgument, "--tools is {}; a JSON array is expected", kind_name(*tools));
    }
    variables.emplace_back("tools", *tools);
  }
  for (const TemplateArgument& argument : options.arguments) {
    BUTTER_TRY(check_name(argument.name));
    auto value = parse(argument.value);
    if (!value) return fail(value.error().within("--template-arg " + argument.name));
    variables.emplace_back(argument.name, *std::move(value));
  }
  return variables;
}

}  // namespace butter
