#include "text/characters.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"
#include "text/regex_classes.h"
#include "text/regex_matcher.h"
#include "text/utf8.h"

namespace butter {
namespace {

const Regex& word_character_regex() {
  static const Regex* const kRegex =
      new Regex(Regex::compile(word_character_pattern(), Regex::Language::kPcre2).value());
  return *kRegex;
}

}  // namespace

bool is_one_character(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Unit unit = first_utf8_unit(text);
  return unit.state == Utf8State::kWellFormed && unit.bytes == text.size();
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, first_utf8_unit(text).bytes);
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

bool is_white_space(std::string_view character) {
  struct CodePoints {
    char32_t first;
    char32_t last;
  };
  constexpr CodePoints kSpaces[] = {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                    {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                    {0x205F, 0x205F}, {0x3000, 0x3000}};
  if (!is_one_character(character)) return false;
  const char32_t c = decode_utf8(character);
  const auto* const found = std::ranges::lower_bound(kSpaces, c, {}, &CodePoints::last);
  return found != std::end(kSpaces) && found->first <= c;
}

bool is_word_character(std::string_view character) {
  if (!is_one_character(character)) return false;
  MatchFinder matches(word_character_regex());
  matches.start(character);
  size_t begin = 0, end = 0;
  return matches.next(&begin, &end);
}

}  // namespace butter
