// Case mapping and printability of code points, as Python's str has them (the Unicode database).
#pragma once

#include <string_view>

#include "text/jinja_text.h"

namespace butter::jinja {

// str.upper(), lower(), capitalize(), and title() (a letter after a letter is lower case, the others title
// case), swapcase(). Content spans and the markup flag are kept.
enum class Case { kUpper, kLower, kCapitalized, kTitle, kSwapped };
Result<Text> with_case(Budget& budget, const Text& text, Case wanted);

// Whether the code point takes part in upper and lower case: it is changed by one of them.
bool is_cased(char32_t c);
// str.isupper() and so on of one code point. is_title: of the few that are neither, such as U+01C5.
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_alphabetic(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alphanumeric(char32_t c);
// str.isprintable() of one code point.
bool is_printable(char32_t c);

}  // namespace butter::jinja
