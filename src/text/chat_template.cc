#include "text/chat_template.h"

#include <algorithm>

#include "text/chat_messages.h"
#include "text/jinja_eval.h"
#include "text/jinja_parser.h"

namespace butter {
namespace {

using jinja::Value;

Result<Value> message_list(const std::vector<Message>& messages) {
  std::vector<Value> list;
  list.reserve(messages.size());
  for (const Message& message : messages) {
    BUTTER_ASSIGN(Value value, message_value(message));
    list.push_back(std::move(value));
  }
  return Value::list(std::move(list));
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  return parts;
}

jinja::Environment environment_of(const Value& messages, const ChatTemplateOptions& options) {
  jinja::Environment environment;
  environment.now = options.now ? *options.now : local_time();
  auto& variables = environment.variables;
  variables.emplace_back("messages", messages);
  // Published templates are rendered with these two defined, and none if there are none.
  variables.emplace_back("tools", Value());
  variables.emplace_back("documents", Value());
  variables.emplace_back("add_generation_prompt", Value(options.add_generation_prompt));
  if (options.bos_token) variables.emplace_back("bos_token", Value::text(*options.bos_token));
  if (options.eos_token) variables.emplace_back("eos_token", Value::text(*options.eos_token));
  for (const auto& argument : options.arguments) {
    const auto same = std::find_if(variables.begin(), variables.end(),
                                   [&](const auto& v) { return v.first == argument.first; });
    if (same != variables.end()) {
      same->second = argument.second;
    } else {
      variables.push_back(argument);
    }
  }
  return environment;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const jinja::Limits& limits) {
  auto program = jinja::parse_program(source, limits);
  if (!program) return fail(program.error().within("chat template"));
  return ChatTemplate(std::make_shared<const jinja::Program>(*std::move(program)), limits);
}

Result<RenderedChat> ChatTemplate::render(const std::vector<Message>& messages,
                                          const ChatTemplateOptions& options) const {
  BUTTER_ASSIGN(const Value list, message_list(messages));
  return render(list, options);
}

Result<RenderedChat> ChatTemplate::render(const Value& messages, const ChatTemplateOptions& options) const {
  const jinja::Environment environment = environment_of(messages, options);
  for (const auto& [name, value] : environment.variables) {
    if (value.depth() <= limits_.max_value_depth) continue;
    return fail(StatusCode::kLimit,
                "chat template: the argument '{}' nests {} deep, more than {} (max_value_depth)", name,
                value.depth(), limits_.max_value_depth);
  }
  auto text = jinja::evaluate(*program_, environment, limits_);
  if (!text) return fail(text.error().within("chat template"));
  return RenderedChat{std::move(text->bytes), std::move(text->content)};
}

}  // namespace butter
