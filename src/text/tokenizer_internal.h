// What the tokenizer's files share, for src/text only.
#pragma once

#include <string>
#include <string_view>

namespace butter {

// Text of a file as a message shows it: in quotes, cut short, without control characters or bad UTF-8.
std::string shown_text(std::string_view text);

// Whether a file begins as a tiktoken file does.
bool looks_like_tiktoken(std::string_view file);

}  // namespace butter
