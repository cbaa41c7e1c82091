#include "text/regex_pattern.h"

#include <algorithm>

#include "text/regex_classes.h"
#include "text/tokenizer_internal.h"

namespace butter {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

// Reads a pattern from left to right; each step takes what it understands and writes it for PCRE2.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : pattern_(pattern), rest_(pattern) {}

  Result<std::string> translate() {
    if (take("(?i)")) out_ += "(?i)";
    while (!rest_.empty()) BUTTER_TRY(in_class_ ? class_member() : element());
    return std::move(out_);
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  void copy(size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }

  Status refuse(std::string_view what) const {
    return fail(StatusCode::kUnsupported, "pattern {} has {} at byte {}, which is not supported",
                shown_text(pattern_), shown_text(what), pattern_.size() - rest_.size());
  }

  Status element() {
    switch (rest_[0]) {
      case '\\':
        return escape();
      case '[':
        return open_class();
      case '(':
        return group();
      case '{':
        return count();
      default:
        copy(1);
        return {};
    }
  }

  Status group() {
    if (!rest_.starts_with("(?")) return copy(1), Status();
    for (const std::string_view open : {"(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (rest_.starts_with(open)) return copy(open.size()), Status();
    }
    return refuse(rest_.substr(0, 4));
  }

  // {2} {2,} {2,5}; a + behind one would be possessive for PCRE2 and a second repeat in Ruby.
  Status count() {
    const size_t end = rest_.find_first_not_of("0123456789,", 1);
    const bool closed = end != std::string_view::npos && rest_[end] == '}' && end > 1 && rest_[1] != ',';
    if (!closed || rest_.substr(end).starts_with("}+")) return refuse(rest_.substr(0, 8));
    copy(end + 1);
    return {};
  }

  Status open_class() {
    copy(1);
    if (rest_.starts_with("^")) copy(1);
    if (rest_.starts_with("]")) return refuse("an empty class");
    in_class_ = true;
    return {};
  }

  Status class_member() {
    if (rest_.starts_with("[")) return refuse("[ inside a class");
    if (rest_.starts_with("&&")) return refuse("&&");
    if (rest_[0] == '\\') return escape();
    if (rest_[0] == ']') in_class_ = false;
    copy(1);
    return {};
  }

  Status escape() {
    if (rest_.size() < 2) return refuse("\\ at the end");
    if (take(R"(\s)")) return put_class(kWhiteSpaceMembers, false);
    if (take(R"(\S)")) return put_class(kWhiteSpaceMembers, true);
    if (take(R"(\d)")) return put_class(*regex_class_members("Nd"), false);
    if (rest_[1] == 'p' || rest_[1] == 'P') return property();
    if (rest_[1] == 'u' || rest_[1] == 'x') return code_point();
    const auto byte = static_cast<unsigned char>(rest_[1]);
    const bool is_letter_or_digit = std::isalnum(byte) != 0;
    const bool is_known = std::string_view("nrtfv").find(rest_[1]) != std::string_view::npos ||
                          (!in_class_ && (rest_[1] == 'A' || rest_[1] == 'z'));
    if (byte >= 0x80 || (is_letter_or_digit && !is_known)) return refuse(rest_.substr(0, 2));
    copy(2);
    return {};
  }

  Status property() {
    const size_t close = rest_.find('}');
    if (!rest_.substr(2).starts_with("{") || close == std::string_view::npos)
      return refuse(rest_.substr(0, 4));
    const auto members = regex_class_members(rest_.substr(3, close - 3));
    if (!members) {
      return fail(StatusCode::kUnsupported, "pattern {} has the class {}; those that Butter knows are {}",
                  shown_text(pattern_), shown_text(rest_.substr(0, close + 1)), known_regex_classes());
    }
    const bool is_negated = rest_[1] == 'P';
    if (is_negated && in_class_) return refuse(rest_.substr(0, close + 1));
    rest_.remove_prefix(close + 1);
    return put_class(*members, is_negated);
  }

  // \x{1F600} or \u00E9.
  Status code_point() {
    const bool braces = rest_.substr(1).starts_with("x{");
    const size_t begin = braces ? 3 : 2;
    const size_t end =
        std::min(rest_.find_first_not_of(kHexDigits, begin), braces ? rest_.size() : begin + 4);
    const bool is_whole = braces ? end > begin && end < begin + 7 && end < rest_.size() && rest_[end] == '}'
                                 : rest_[1] == 'u' && end == begin + 4 && end <= rest_.size();
    if (!is_whole) return refuse(rest_.substr(0, 6));
    out_ += R"(\x{)";
    out_ += rest_.substr(begin, end - begin);
    out_ += '}';
    rest_.remove_prefix(braces ? end + 1 : end);
    return {};
  }

  Status put_class(std::string_view members, bool is_negated) {
    if (in_class_ && is_negated) return refuse("a negated class inside a class");
    if (!in_class_) out_ += is_negated ? "[^" : "[";
    out_ += members;
    if (!in_class_) out_ += ']';
    return {};
  }

  std::string_view pattern_;
  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

Result<std::string> pcre2_pattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    return fail(StatusCode::kUnsupported, "a pattern has {} bytes; 1 to {} are expected", pattern.size(),
                kMaxPatternBytes);
  }
  // A run of white space that no line ends in would be tried from each of its characters, in vain: only its
  // first can begin a match.
  if (pattern == R"(\s+$)") {
    const std::string space = "[" + std::string(kWhiteSpaceMembers) + "]";
    return "(?<!" + space + ")" + space + "+$";
  }
  return PatternTranslator(pattern).translate();
}

}  // namespace butter
