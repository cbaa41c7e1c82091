// Messages, tools and arguments of a chat request (butter/chat.h) as the values that a template sees. Their
// texts are content: special tokens in them are words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "butter/chat.h"
#include "text/jinja_value.h"

namespace butter {

// A dict of role, content and the message's further fields. kCorrupt where those are no JSON object.
Result<jinja::Value> message_value(const Message& message);

// Tools and arguments by name. kInvalidArgument, naming the argument, where one is not what it must be.
Result<std::vector<std::pair<std::string, jinja::Value>>> template_variables(const ChatOptions& options);

}  // namespace butter
