// What a character is, as PyPI `tokenizers` sees it; and those that a text begins and ends with.
//
// A character is given by its bytes: bytes that are no whole, well-formed one are neither space nor word.
#pragma once

#include <string_view>

namespace butter {

// The first and the last character of a text that is not empty; of malformed text, some bytes of it.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);

// Whether a text is one character, and nothing else.
bool is_one_character(std::string_view text);
// White_Space.
bool is_white_space(std::string_view character);
// \w of the Unicode standard: letters, marks, digits, connectors, joiners.
bool is_word_character(std::string_view character);

}  // namespace butter
