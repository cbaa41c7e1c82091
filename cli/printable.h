// Bytes of a token as a line can show them.
#pragma once

#include <string>
#include <string_view>

namespace butter::cli {

// Line breaks, other control characters and backslashes are escaped; all else is as it is.
std::string printable(std::string_view piece);

}  // namespace butter::cli
