#include "cli/printable.h"

#include <fmt/format.h>

namespace butter::cli {

std::string printable(std::string_view piece) {
  std::string text;
  for (const char c : piece) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else if (c == '\r')
      text += "\\r";
    else if (c == '\\')
      text += "\\\\";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      text += fmt::format("\\x{:02x}", c);
    else
      text += c;
  }
  return text;
}

}  // namespace butter::cli
