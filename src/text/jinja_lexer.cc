#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "text/jinja_text.h"

namespace butter::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string with_plain_line_breaks(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  return out;
}

// Longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) BUTTER_TRY(lex_until_tag());
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
    return fail(code, "template line {}: {}", line_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void advance(size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  void skip_space() { advance(stripped(rest(), true, false).begin); }

  // What the sign of a tag (`-`, `+` or 0) and the settings leave of the text in front of it.
  std::string_view before_tag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return text.substr(0, stripped(text, false, true).end);
    if (sign == '+' || is_variable) return text;
    const size_t line_begin = text.rfind('\n') + 1;  // 0 if there is no line break
    if (line_begin == 0 && !line_starting_) return text;
    const bool blank = stripped(text.substr(line_begin), true, false).begin == text.size() - line_begin;
    return blank ? text.substr(0, line_begin) : text;
  }

  // The text up to the next tag, and that tag with what is in it.
  Status lex_until_tag() {
    const std::string_view text = rest();
    size_t open = 0;
    while (true) {
      open = text.find('{', open);
      if (open == std::string_view::npos || open + 1 == text.size()) {
        add(TokenKind::kData, std::string(text));
        advance(text.size());
        return {};
      }
      const char kind = text[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++open;
    }
    const char kind = text[open + 1];
    const char next = open + 2 < text.size() ? text[open + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::string_view data = before_tag(text.substr(0, open), sign, kind == '{');
    if (!data.empty()) add(TokenKind::kData, std::string(data));
    advance(open);
    // {% raw %} is no tag of the others' kind: nothing behind it is read until {% endraw %}.
    if (kind == '%') {
      if (const size_t length = raw_begin_length()) return lex_raw(length);
    }
    advance(sign == '\0' ? 2 : 3);
    if (kind == '#') return lex_comment();
    return lex_tag(kind == '{');
  }

  void end_tag(size_t length) {
    advance(length);
    line_starting_ = source_[at_ - 1] == '\n';
  }

  // Length of the end of a tag that closes with `close` ("%}"), as the rest begins with it; 0 if it does not.
  size_t tag_end_length(std::string_view text, std::string_view close, bool is_block) const {
    const bool minus = text.starts_with('-');
    const bool plus = is_block && text.starts_with('+');
    const size_t sign = minus || plus ? 1 : 0;
    if (text.substr(std::min(sign, text.size()), 2) != close) return 0;
    const size_t end = sign + 2;
    if (minus) return end + stripped(text.substr(end), true, false).begin;
    if (is_block && !plus && end < text.size() && text[end] == '\n') return end + 1;
    return end;
  }

  Status lex_comment() {
    for (size_t i = rest().find("#}"); i != std::string_view::npos; i = rest().find("#}", i + 1)) {
      const bool has_sign = i > 0 && (rest()[i - 1] == '-' || rest()[i - 1] == '+');
      const size_t begin = has_sign ? i - 1 : i;
      end_tag(begin + tag_end_length(rest().substr(begin), "#}", true));
      return {};
    }
    return error(StatusCode::kInvalidArgument, "a comment has no end, expected '#}}'");
  }

  // Of `{% raw %}` with its signs, or 0.
  size_t raw_begin_length() const { return raw_tag_length(rest(), "raw", false); }

  size_t raw_tag_length(std::string_view text, std::string_view name, bool is_end) const {
    if (!text.starts_with("{%")) return 0;
    size_t i = 2;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    i += stripped(text.substr(i), true, false).begin;
    if (text.substr(i, name.size()) != name) return 0;
    i += name.size();
    i += stripped(text.substr(i), true, false).begin;
    if (!is_end) {
      if (text.substr(i, 2) == "%}") return i + 2;
      if (text.substr(i, 3) != "-%}") return 0;
      return i + 3 + stripped(text.substr(i + 3), true, false).begin;
    }
    const size_t length = tag_end_length(text.substr(i), "%}", true);
    return length == 0 ? 0 : i + length;
  }

  Status lex_raw(size_t begin_length) {
    end_tag(begin_length);
    const std::string_view text = rest();
    for (size_t i = text.find("{%"); i != std::string_view::npos; i = text.find("{%", i + 1)) {
      const size_t length = raw_tag_length(text.substr(i), "endraw", true);
      if (length == 0) continue;
      const char sign = text[i + 2] == '-' || text[i + 2] == '+' ? text[i + 2] : '\0';
      const std::string_view data = before_tag(text.substr(0, i), sign, false);
      if (!data.empty()) add(TokenKind::kData, std::string(data));
      advance(i);
      end_tag(length);
      return {};
    }
    return error(StatusCode::kInvalidArgument, "a raw block has no end, expected '{{% endraw %}}'");
  }

  Status lex_tag(bool is_variable) {
    add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    std::string open_brackets;
    while (at_ < source_.size()) {
      if (open_brackets.empty()) {
        if (const size_t length = tag_end_length(rest(), is_variable ? "}}" : "%}", !is_variable)) {
          add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
          end_tag(length);
          return {};
        }
      }
      const CodePoint c = code_point_at(source_, at_);
      if (is_python_space(c.value)) {
        advance(c.length);
      } else if (is_digit(peek())) {
        BUTTER_TRY(lex_number());
      } else if (is_name_start(peek())) {
        lex_name();
      } else if (peek() == '\'' || peek() == '"') {
        BUTTER_TRY(lex_string());
      } else {
        BUTTER_TRY(lex_operator(open_brackets));
      }
    }
    return {};  // the parser says what is missing
  }

  void lex_name() {
    size_t length = 1;
    while (is_name_part(peek(length))) ++length;
    add(TokenKind::kName, std::string(rest().substr(0, length)));
    at_ += length;
  }

  Status lex_operator(std::string& open_brackets) {
    for (const std::string_view symbol : kOperators) {
      if (!rest().starts_with(symbol)) continue;
      const char c = symbol[0];
      if (symbol == "{" || symbol == "(" || symbol == "[") {
        open_brackets += c == '{' ? '}' : c == '(' ? ')' : ']';
      } else if (symbol == "}" || symbol == ")" || symbol == "]") {
        if (open_brackets.empty()) return error(StatusCode::kInvalidArgument, "unexpected '{}'", symbol);
        if (open_brackets.back() != c) {
          return error(StatusCode::kInvalidArgument, "unexpected '{}', expected '{}'", symbol,
                       open_brackets.back());
        }
        open_brackets.pop_back();
      }
      add(TokenKind::kOperator, std::string(symbol));
      at_ += symbol.size();
      return {};
    }
    const std::string_view bytes = rest().substr(0, code_point_at(source_, at_).length);
    const bool printable = bytes.size() > 1 || (bytes[0] > 0x20 && bytes[0] < 0x7F);
    if (printable) return error(StatusCode::kInvalidArgument, "unexpected character '{}' in a tag", bytes);
    return error(StatusCode::kInvalidArgument, "unexpected byte 0x{:02x} in a tag",
                 static_cast<unsigned>(static_cast<unsigned char>(bytes[0])));
  }

  // Length of a run of digits with single underscores between them, from offset i; 0 if it does not begin
  // with one.
  template <typename IsDigit>
  size_t digit_run(size_t i, IsDigit is_it) const {
    const size_t begin = i;
    while (is_it(peek(i)) || (i > begin && peek(i) == '_' && is_it(peek(i + 1)))) ++i;
    return i - begin;
  }

  // Length of a float at the current place, or 0: it needs a fraction or an exponent.
  size_t float_length() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    size_t i = digit_run(0, is_digit);
    bool is_float = false;
    if (peek(i) == '.') {
      if (const size_t fraction = digit_run(i + 1, is_digit)) {
        i += 1 + fraction;
        is_float = true;
      }
    }
    if ((peek(i) | 0x20) == 'e') {
      const size_t sign = peek(i + 1) == '+' || peek(i + 1) == '-' ? 1 : 0;
      if (const size_t exponent = digit_run(i + 1 + sign, is_digit)) {
        i += 1 + sign + exponent;
        is_float = true;
      }
    }
    return is_float ? i : 0;
  }

  Status lex_number() {
    if (const size_t length = float_length()) return add_float(length);
    const char letter = static_cast<char>(peek(1) | 0x20);
    int base = 10;
    if (peek() == '0' && (letter == 'x' || letter == 'o' || letter == 'b')) {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    }
    const auto is_of_base = [base](char c) { return hex_value(c) >= 0 && hex_value(c) < base; };
    if (base != 10) {
      const size_t skip = peek(2) == '_' ? 3 : 2;
      if (const size_t length = digit_run(skip, is_of_base)) return add_integer(skip, length, base);
    }
    // 0 and 0_0 are ints; 012 is a 0 and more.
    const auto is_zero = [](char c) { return c == '0'; };
    return add_integer(0, peek() == '0' ? digit_run(0, is_zero) : digit_run(0, is_digit), 10);
  }

  std::string without_underscores(size_t begin, size_t length) const {
    std::string digits(rest().substr(begin, length));
    std::erase(digits, '_');
    return digits;
  }

  Status add_integer(size_t skip, size_t length, int base) {
    const std::string digits = without_underscores(skip, length);
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc()) {
      return error(StatusCode::kLimit, "an int of {} digits needs more than 64 bits", digits.size());
    }
    add(TokenKind::kInteger);
    tokens_.back().integer = value;
    at_ += skip + length;
    return {};
  }

  Status add_float(size_t length) {
    const std::string digits = without_underscores(0, length);
    double value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // Too large or too small: strtod says which.
    if (result.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
    add(TokenKind::kFloat);
    tokens_.back().number = value;
    at_ += length;
    return {};
  }

  Status lex_string() {
    const char quote = peek();
    size_t end = 1;
    while (at_ + end < source_.size() && peek(end) != quote) end += peek(end) == '\\' ? 2 : 1;
    if (at_ + end >= source_.size())
      return error(StatusCode::kInvalidArgument, "a string has no end, expected {}", quote);
    BUTTER_ASSIGN(std::string value, unescape(rest().substr(1, end - 1)));
    add(TokenKind::kString, std::move(value));
    advance(end + 1);
    return {};
  }

  // Python's escapes in string literals.
  Result<std::string> unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out += text[i++];
        continue;
      }
      BUTTER_TRY(unescape_one(text, i, out));
    }
    return out;
  }

  // The escape at text[i], and moves i behind it.
  Status unescape_one(std::string_view text, size_t& i, std::string& out) {
    const char c = text[i + 1];  // a literal cannot end with a backslash
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      out += kMeanings[found];
      i += 2;
      return {};
    }
    if (c == '\n') {
      i += 2;
      return {};
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t end = i + 1;
      while (end < text.size() && end < i + 4 && text[end] >= '0' && text[end] <= '7') {
        value = value * 8 + static_cast<char32_t>(text[end++] - '0');
      }
      out += utf8_of(value);
      i = end;
      return {};
    }
    if (c == 'x' || c == 'u' || c == 'U')
      return unescape_code_point(text, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c == 'N') return error(StatusCode::kUnsupported, "the escape '\\N' in a string is not supported");
    // jinja2 reads strings as ASCII with escapes: a backslash before another character turns it into its
    // escape.
    out += '\\';
    ++i;
    if (static_cast<unsigned char>(c) >= 0x80) {
      const CodePoint point = code_point_at(text, i);
      const uint32_t value = point.value;
      out += value < 0x100     ? fmt::format("x{:02x}", value)
             : value < 0x10000 ? fmt::format("u{:04x}", value)
                               : fmt::format("U{:08x}", value);
      i += point.length;
    }
    return {};
  }

  Status unescape_code_point(std::string_view text, size_t& i, size_t digits, std::string& out) {
    char32_t value = 0;
    for (size_t k = 0; k < digits; ++k) {
      const int digit = i + 2 + k < text.size() ? hex_value(text[i + 2 + k]) : -1;
      if (digit < 0) {
        return error(StatusCode::kInvalidArgument, "the escape '\\{}' in a string needs {} hex digits",
                     text[i + 1], digits);
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return error(StatusCode::kInvalidArgument, "the escape '\\{}{:0{}x}' in a string is no character",
                   text[i + 1], static_cast<uint32_t>(value), digits);
    }
    out += utf8_of(value);
    i += 2 + digits;
    return {};
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return fmt::format("'{}'", std::string_view(token.text).substr(0, 100));
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
      return "an int";
    case TokenKind::kFloat:
      return "a float";
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return "a token";
}

Result<std::vector<Token>> tokenize(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_template_bytes) {
    return fail(StatusCode::kLimit, "the template has {} bytes, more than {} (max_template_bytes)",
                source.size(), limits.max_template_bytes);
  }
  if (const size_t bad = find_invalid_utf8(source); bad != std::string_view::npos) {
    return fail(StatusCode::kCorrupt, "the template is not valid UTF-8 at byte {}", bad);
  }
  std::string plain = with_plain_line_breaks(source);
  if (plain.ends_with('\n')) plain.pop_back();
  return Lexer(std::move(plain)).run();
}

}  // namespace butter::jinja
