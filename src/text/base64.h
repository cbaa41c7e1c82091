// Base64 (RFC 4648, section 4), as tokenizer files hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace butter {

// Nothing where `text` is no base64: a character that is not of it, bits or padding that do not fit.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace butter
