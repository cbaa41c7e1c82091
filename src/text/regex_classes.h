// The character classes of the expressions in tokenizer files, spelled out for PCRE2 so that they do not
// depend on the version of Unicode that the library knows: they are those of PyPI `tokenizers`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace butter {

// White_Space. PCRE2's own \s also takes U+180E, which lost the property with Unicode 6.3.
inline constexpr std::string_view kWhiteSpaceMembers = R"(\t-\r\x{85}\p{Z})";

// What stands between [ and ] for \p{name}; nothing for a class that is not known.
std::optional<std::string> regex_class_members(std::string_view name);
// "L, Lu, Ll", for messages.
std::string known_regex_classes();

// One character of a word.
std::string word_character_pattern();

// Whole patterns of the pre-tokenizers that tokenizer.json names without an expression.
std::string word_or_other_pattern();  // Whitespace: a run of word characters, or one of others
std::string punctuation_pattern();    // Punctuation: one character

}  // namespace butter
