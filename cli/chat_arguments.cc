#include "cli/chat_arguments.h"

#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {

void ChatArguments::declare(Arguments& arguments) {
  arguments.text("--system", system, "the system message of the chat template");
  arguments.text("--tools", tools_path, "a JSON array of tools for the chat template", "FILE");
  arguments.texts("--template-arg", template_arguments,
                  "a variable of the chat template (enable_thinking=false), as JSON or text; may be repeated",
                  "NAME=VALUE");
}

const char* ChatArguments::first_given() const {
  if (system) return "--system";
  if (tools_path) return "--tools";
  return template_arguments.empty() ? nullptr : "--template-arg";
}

ChatOptions ChatArguments::read() const {
  ChatOptions options;
  for (const std::string& text : template_arguments)
    options.arguments.push_back(must(read_template_argument(text)));
  if (!tools_path) return options;
  options.tools = read_text_file(*tools_path);
  if (options.tools.empty()) refuse("{} is empty; a JSON array of tools is expected", *tools_path);
  return options;
}

void note_unused_arguments(const Session& session, const ChatOptions& options) {
  for (const TemplateArgument& argument : options.arguments) {
    if (session.chat_template_names(argument.name)) continue;
    note(fmt::format("--template-arg {}: the chat template of this model has no such variable",
                     argument.name));
  }
}

std::vector<Message> read_messages_file(const std::string& path) {
  auto messages = read_messages(read_text_file(path));
  if (!messages) refuse("{}: {}", path, messages.error().message());
  return *std::move(messages);
}

}  // namespace butter::cli
