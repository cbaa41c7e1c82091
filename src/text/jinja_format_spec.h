// FormatSpec: how one value becomes text in str.format(): '{:>8}', '{:,.2f}'. Numbers of '%' formats share
// its way to print them.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_builtins.h"

namespace butter::jinja {

// [[fill]align][sign][#][0][width][grouping][.precision][type], Python's format specification.
struct FormatSpec {
  static constexpr size_t kMaxWidth = 1000;

  std::string fill = " ";  // one character
  bool fill_is_content = false;
  char align = 0;  // < > ^ =, or 0: not given
  char sign = 0;   // + - or a space
  bool alternate = false;
  bool zero = false;  // a 0 before the width, and no align: zeros between the sign and the digits
  size_t width = 0;
  char grouping = 0;   // , or _
  int precision = -1;  // -1: not given
  char type = 0;

  static Result<FormatSpec> parse(std::string_view text);
};

// Appends format(value, spec).
Status append_formatted(Runtime& runtime, TextBuilder& out, const Value& value, const FormatSpec& spec);

// The digits of a number in base 2, 8, 10 or 16, without its sign.
std::string integer_digits(int64_t number, int base, bool upper_case);
// A float without its sign, as the types e, f, g and their capitals print it.
std::string float_digits(double number, char type, int precision, bool alternate);

}  // namespace butter::jinja
