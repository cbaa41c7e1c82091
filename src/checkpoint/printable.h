// Text from untrusted files, made fit for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace butter {

// Whether `text` is well-formed UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
bool valid_utf8(std::string_view text);

// `text` with control characters and bytes that are not UTF-8 written as \xNN, cut after about
// `max_bytes` bytes with "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace butter
