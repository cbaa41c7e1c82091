#include "text/regex_classes.h"

#include <array>

namespace butter {
namespace {

// A class, as PCRE2 spells it, and the members that later versions of Unicode added to it.
struct RegexClass {
  std::string_view name;
  std::string_view base;
  std::string_view added;
};

// Debian 12's PCRE2 knows Unicode 14; the expressions of PyPI `tokenizers` know Unicode 16. With these all
// code points fall into the classes that they have there (a test holds this); a newer PCRE2 loses nothing by
// them. Scripts are the property Script: PCRE2's own \p{Han} is Script_Extensions.
constexpr RegexClass kClasses[] = {
    {"L", R"(\p{L})",
     R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65})"
     R"(\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B})"
     R"(\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02})"
     R"(\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA})"
     R"(\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A})"
     R"(\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
     R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Lu", R"(\p{Lu})", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Ll", R"(\p{Ll})", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lt", R"(\p{Lt})", ""},
    {"Lm", R"(\p{Lm})",
     R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    {"Lo", R"(\p{Lo})",
     R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
     R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
     R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
     R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF})"
     R"(\x{1B132}\x{1B155}\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
     R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"M", R"(\p{M})",
     R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113B8}-\x{113C0})"
     R"(\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2}\x{113E1}-\x{113E2})"
     R"(\x{11F00}-\x{11F01}\x{11F03}\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{11F5A}\x{13440})"
     R"(\x{13447}-\x{13455}\x{1611E}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"N", R"(\p{N})",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
     R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
     R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"Nd", R"(\p{Nd})",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
     R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9})"
     R"(\x{1E5F1}-\x{1E5FA})"},
    {"Nl", R"(\p{Nl})", ""},
    {"No", R"(\p{No})", R"(\x{1D2C0}-\x{1D2D3})"},
    {"P", R"(\p{P})",
     R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09})"
     R"(\x{11BE1}\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"S", R"(\p{S})",
     R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{10D8E}-\x{10D8F})"
     R"(\x{1CC00}-\x{1CCEF}\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F})"
     R"(\x{1F7D9}\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89})"
     R"(\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF})"
     R"(\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF})"},
    {"Sm", R"(\p{Sm})", R"(\x{10D8E}-\x{10D8F})"},
    {"Sc", R"(\p{Sc})", ""},
    {"Z", R"(\p{Z})", ""},
    {"Zs", R"(\p{Zs})", ""},
    {"Han", R"(\p{sc:Han})", R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Hiragana", R"(\p{sc:Hiragana})", R"(\x{1B132})"},
    {"Katakana", R"(\p{sc:Katakana})", R"(\x{1B155})"},
    {"Hangul", R"(\p{sc:Hangul})", ""},
    {"Thai", R"(\p{sc:Thai})", ""},
    {"Latin", R"(\p{sc:Latin})", R"(\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{1DF25}-\x{1DF2A})"},
    {"Cyrillic", R"(\p{sc:Cyrillic})", R"(\x{1C89}-\x{1C8A}\x{1E030}-\x{1E06D}\x{1E08F})"},
    {"Greek", R"(\p{sc:Greek})", ""},
    {"Arabic", R"(\p{sc:Arabic})", R"(\x{897}\x{10EC2}-\x{10EC4}\x{10EFC}-\x{10EFF})"},
    {"Hebrew", R"(\p{sc:Hebrew})", ""},
};

constexpr std::string_view kWordAdded =
    R"(\x{897}\x{CF3}\x{ECE}\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D40}-\x{10D65}\x{10D69}-\x{10D6D}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4})"
    R"(\x{10EFC}-\x{10EFF}\x{1123F}-\x{11241}\x{11380}-\x{11389}\x{1138B}\x{1138E})"
    R"(\x{11390}-\x{113B5}\x{113B7}-\x{113C0}\x{113C2}\x{113C5}\x{113C7}-\x{113CA})"
    R"(\x{113CC}-\x{113D3}\x{113E1}-\x{113E2}\x{116D0}-\x{116E3}\x{11BC0}-\x{11BE0})"
    R"(\x{11BF0}-\x{11BF9}\x{11F00}-\x{11F10}\x{11F12}-\x{11F3A}\x{11F3E}-\x{11F42})"
    R"(\x{11F50}-\x{11F5A}\x{1342F}\x{13440}-\x{13455}\x{13460}-\x{143FA}\x{16100}-\x{16139})"
    R"(\x{16D40}-\x{16D6C}\x{16D70}-\x{16D79}\x{18CFF}\x{1B132}\x{1B155}\x{1CCF0}-\x{1CCF9})"
    R"(\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E08F}\x{1E4D0}-\x{1E4F9}\x{1E5D0}-\x{1E5FA})"
    R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
// What the old Unicode of `tokenizers` knows as punctuation, and what it does not know yet.
constexpr std::string_view kPunctuationAdded = R"(\x{166D}\x{111C9})";
constexpr std::string_view kPunctuationRemoved =
    R"(\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B7D}-\x{1B7E}\x{2E43}-\x{2E4F}\x{2E52}-\x{2E5D})"
    R"(\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89}\x{1144B}-\x{1144F}\x{1145A}-\x{1145B})"
    R"(\x{1145D}\x{11660}-\x{1166C}\x{116B9}\x{1183B}\x{11944}-\x{11946}\x{119E2})"
    R"(\x{11A3F}-\x{11A46}\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2}\x{11C41}-\x{11C45})"
    R"(\x{11C70}-\x{11C71}\x{11EF7}-\x{11EF8}\x{11FFF}\x{12FF1}-\x{12FF2}\x{16E97}-\x{16E9A})"
    R"(\x{16FE2}\x{1E95E}-\x{1E95F})";

std::string word_members() {
  return R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})" + std::string(kWordAdded);
}

}  // namespace

std::optional<std::string> regex_class_members(std::string_view name) {
  for (const RegexClass& known : kClasses) {
    if (known.name == name) return std::string(known.base) + std::string(known.added);
  }
  return std::nullopt;
}

std::string known_regex_classes() {
  std::string names;
  for (const RegexClass& known : kClasses) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

std::string word_character_pattern() {
  std::string pattern = "[";
  pattern += word_members();
  pattern += ']';
  return pattern;
}

std::string word_or_other_pattern() {
  const std::string word = word_members();
  return "[" + word + "]+|[^" + word + std::string(kWhiteSpaceMembers) + "]+";
}

std::string punctuation_pattern() {
  return "(?![" + std::string(kPunctuationRemoved) + R"(])[\p{P}$+<=>^`|~)" + std::string(kPunctuationAdded) +
         "]";
}

}  // namespace butter
