// What a chat prompt is made of beside what was just said: --system, --tools, --template-arg.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "butter/session.h"
#include "cli/arguments.h"

namespace butter::cli {

struct ChatArguments {
  std::optional<std::string> system;
  std::optional<std::string> tools_path;
  std::vector<std::string> template_arguments;

  void declare(Arguments& arguments);
  // The first of them that is given, as it is spelled; nullptr: none.
  const char* first_given() const;
  // Reads the file of tools.
  ChatOptions read() const;
};

// Tells on stderr which arguments the chat template has no word of.
void note_unused_arguments(const Session& session, const ChatOptions& options);

// A JSON file of messages.
std::vector<Message> read_messages_file(const std::string& path);

}  // namespace butter::cli
