// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include <string>

#include "text/jinja_builtins.h"

namespace butter::jinja {

// repr() of a float: the shortest digits that read back as the same number.
std::string float_repr(double number);

// str(value); texts as they are, with their spans. An error for what Python would print with an address.
Status append_str(Runtime& runtime, TextBuilder& out, const Value& value);
Result<Text> to_text(Runtime& runtime, const Value& value);
// repr(value).
Status append_repr(Runtime& runtime, TextBuilder& out, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one item a line
  std::string indent;   // of one level, if pretty
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value); the bytes of a string that are content stay content.
Status append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace butter::jinja
