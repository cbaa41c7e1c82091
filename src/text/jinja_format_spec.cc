#include "text/jinja_format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_print.h"

namespace butter::jinja {
namespace {

constexpr int kDefaultPrecision = 6;

bool is_one_of(char c, std::string_view characters) {
  return c != 0 && characters.find(c) != std::string_view::npos;
}

tl::unexpected<Error> wrong_type(const FormatSpec& spec, const Value& value) {
  return fail(StatusCode::kInvalidArgument, "the format type '{}' does not go with a {}", spec.type,
              value.type_name());
}

// Separators between the digits before a point.
std::string grouped(std::string_view digits, char separator, size_t group) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + std::string(digits.substr(whole));
}

// What a number is made of, before it is padded.
struct NumberText {
  std::string sign;
  std::string prefix;  // 0x
  std::string digits;
  size_t group = 3;
  bool is_finite = true;
};

void append_number(TextBuilder& out, NumberText number, const FormatSpec& spec) {
  const char align = spec.align != 0 ? spec.align : spec.zero ? '=' : '>';
  const bool is_zero_filled = align == '=' && spec.fill == "0";
  const auto shown = [&] {
    return spec.grouping != 0 ? grouped(number.digits, spec.grouping, number.group) : number.digits;
  };
  const size_t around = number.sign.size() + number.prefix.size();
  std::string digits = shown();
  if (is_zero_filled && spec.grouping != 0) {
    // Zeros are digits: they are grouped too.
    while (around + digits.size() < spec.width) {
      number.digits.insert(0, 1, '0');
      digits = shown();
    }
  }
  const size_t size = around + digits.size();
  const size_t missing = spec.width > size ? spec.width - size : 0;
  std::string padding;
  for (size_t i = 0; i < missing; ++i) padding += spec.fill;
  const size_t before = align == '^' ? missing / 2 * spec.fill.size() : 0;
  const auto append_padding = [&](std::string_view part) { out.append(part, spec.fill_is_content); };
  if (align == '>') append_padding(padding);
  if (align == '^') append_padding(padding.substr(0, before));
  out.append(number.sign + number.prefix);
  if (align == '=') append_padding(padding);
  out.append(digits);
  if (align == '<') append_padding(padding);
  if (align == '^') append_padding(padding.substr(before));
}

std::string sign_of(bool is_negative, const FormatSpec& spec) {
  if (is_negative) return "-";
  return is_one_of(spec.sign, "+ ") ? std::string(1, spec.sign) : "";
}

Status append_integer(TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if (spec.precision >= 0) return fail(StatusCode::kInvalidArgument, "a precision does not go with an int");
  const int64_t number = value.as_int();
  const char type = spec.type == 0 ? 'd' : spec.type;
  if (type == 'c') {
    if (spec.sign != 0 || spec.grouping != 0 || spec.alternate)
      return fail(StatusCode::kInvalidArgument,
                  "a sign, '#' or separators do not go with the format type 'c'");
    if (number < 0 || number >= 0x110000 || (number >= 0xD800 && number < 0xE000))
      return fail(StatusCode::kInvalidArgument, "{} is no character", number);
    FormatSpec padding = spec;
    // A character is as wide as its bytes here; only its padding counts.
    const std::string character = utf8_of(static_cast<char32_t>(number));
    padding.width += spec.width > 0 ? character.size() - 1 : 0;
    append_number(out, {"", "", character, 3, true}, padding);
    return {};
  }
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  if (base != 10 && spec.grouping == ',')
    return fail(StatusCode::kInvalidArgument, "',' does not go with the format type '{}'", type);
  NumberText text;
  text.sign = sign_of(number < 0, spec);
  if (spec.alternate && base != 10) text.prefix = fmt::format("0{}", type);
  text.digits = integer_digits(number, base, type == 'X');
  text.group = base == 10 ? 3 : 4;
  append_number(out, std::move(text), spec);
  return {};
}

// As 'g' prints it, but with a point or an exponent always; whole numbers that fill the precision have one.
std::string general_digits(double number, int precision) {
  precision = std::max(precision, 1);
  std::string mantissa = float_digits(number, 'e', precision - 1, false);
  const size_t e = mantissa.find('e');
  const std::string exponent_part = mantissa.substr(e);
  const int exponent = std::atoi(exponent_part.c_str() + 1);
  mantissa.resize(e);
  const bool has_exponent = exponent < -4 || exponent + 1 > precision - 1;
  std::string digits =
      has_exponent ? mantissa : float_digits(number, 'f', std::max(precision - 1 - exponent, 0), false);
  if (digits.find('.') != std::string::npos) {
    while (digits.ends_with('0')) digits.pop_back();
    if (digits.ends_with('.')) digits.pop_back();
  }
  if (has_exponent) return digits + exponent_part;
  return digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

Status append_float(TextBuilder& out, const Value& value, const FormatSpec& spec) {
  double number = value.as_float();
  NumberText text;
  text.sign = sign_of(std::signbit(number) && !std::isnan(number), spec);
  text.is_finite = std::isfinite(number);
  number = std::fabs(number);
  const int precision = spec.precision < 0 ? kDefaultPrecision : spec.precision;
  if (!text.is_finite) {
    text.digits = std::isnan(number) ? "nan" : "inf";
    if (is_one_of(spec.type, "EFG")) text.digits = std::isnan(number) ? "NAN" : "INF";
    if (spec.type == '%') text.digits += '%';
  } else if (spec.type == '%') {
    text.digits = float_digits(number * 100, 'f', precision, spec.alternate) + "%";
  } else if (spec.type != 0) {
    text.digits = float_digits(number, spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate);
  } else if (spec.precision < 0) {
    text.digits = float_repr(number);
  } else {
    text.digits = general_digits(number, spec.precision);
  }
  FormatSpec padding = spec;
  if (!text.is_finite) padding.grouping = 0;
  append_number(out, std::move(text), padding);
  return {};
}

Status append_text(Runtime& runtime, TextBuilder& out, const Text& text, const FormatSpec& spec) {
  if ((spec.type != 0 && spec.type != 's') || spec.sign != 0 || spec.alternate || spec.grouping != 0 ||
      spec.align == '=') {
    return fail(StatusCode::kInvalidArgument, "fill, width and precision go with a str, found more");
  }
  size_t end = text.bytes.size();
  size_t count = count_code_points(text.bytes);
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(text.bytes.size() / 16)));
  if (spec.precision >= 0 && static_cast<size_t>(spec.precision) < count) {
    count = static_cast<size_t>(spec.precision);
    end = code_point_offsets(text.bytes)[count];
  }
  const size_t missing = spec.width > count ? spec.width - count : 0;
  const size_t before = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  for (size_t i = 0; i < before; ++i) out.append(spec.fill, spec.fill_is_content);
  out.append(text, 0, end);
  for (size_t i = before; i < missing; ++i) out.append(spec.fill, spec.fill_is_content);
  return out.status();
}

bool is_plain(const FormatSpec& spec) {
  return spec.fill == " " && spec.align == 0 && spec.sign == 0 && !spec.alternate && !spec.zero &&
         spec.width == 0 && spec.grouping == 0 && spec.precision < 0 && spec.type == 0;
}

}  // namespace

std::string integer_digits(int64_t number, int base, bool upper_case) {
  uint64_t rest = number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char* const kDigits = upper_case ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += kDigits[rest % static_cast<uint64_t>(base)];
    rest /= static_cast<uint64_t>(base);
  } while (rest > 0);
  std::ranges::reverse(digits);
  return digits;
}

std::string float_digits(double number, char type, int precision, bool alternate) {
  char buffer[FormatSpec::kMaxWidth + 400];
  const std::string pattern = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int length = std::snprintf(buffer, sizeof(buffer), pattern.c_str(), precision, number);
  return std::string(buffer, static_cast<size_t>(std::max(length, 0)));
}

Result<FormatSpec> FormatSpec::parse(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto peek = [&](size_t ahead = 0) { return at + ahead < text.size() ? text[at + ahead] : '\0'; };
  const auto take_number = [&](size_t* number) {
    const size_t begin = at;
    for (*number = 0; peek() >= '0' && peek() <= '9' && *number <= kMaxWidth; ++at)
      *number = *number * 10 + static_cast<size_t>(peek() - '0');
    return at > begin;
  };
  bool has_fill = false;
  if (!text.empty()) {
    const size_t first = code_point_at(text, 0).length;
    if (is_one_of(peek(first), "<>^=")) {
      spec.fill = text.substr(0, first);
      spec.align = peek(first);
      at = first + 1;
      has_fill = true;
    } else if (is_one_of(peek(), "<>^=")) {
      spec.align = text[at++];
    }
  }
  if (is_one_of(peek(), "+- ")) spec.sign = text[at++];
  if (peek() == '#') spec.alternate = ++at > 0;
  if (peek() == '0' && !has_fill) {
    ++at;
    spec.fill.assign(1, '0');
    spec.zero = spec.align == 0;
  }
  take_number(&spec.width);
  if (is_one_of(peek(), ",_")) spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    size_t precision = 0;
    if (!take_number(&precision))
      return fail(StatusCode::kInvalidArgument, "a format specification has no precision behind '.'");
    spec.precision = static_cast<int>(precision);
  }
  if (spec.width > kMaxWidth || spec.precision > static_cast<int>(kMaxWidth))
    return fail(StatusCode::kLimit, "a width or precision in a format is more than {}", kMaxWidth);
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) {
    return fail(StatusCode::kInvalidArgument, "'{}' is no format specification", text.substr(0, 100));
  }
  return spec;
}

Status append_formatted(Runtime& runtime, TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if (is_plain(spec)) return append_str(runtime, out, value);
  if (value.is(Kind::kText)) return append_text(runtime, out, value.as_text(), spec);
  if (!value.is_number()) {
    return fail(StatusCode::kInvalidArgument, "a {} takes no format specification", value.type_name());
  }
  const bool is_float_type = is_one_of(spec.type, "eEfFgG%") || (spec.type == 'n' && value.is(Kind::kFloat));
  const bool is_integer_type = is_one_of(spec.type, "bcdoxXn");
  if (spec.type == 'n' && spec.grouping != 0)
    return fail(StatusCode::kInvalidArgument, "'{}' does not go with the format type 'n'", spec.grouping);
  if (is_float_type || (spec.type == 0 && value.is(Kind::kFloat))) return append_float(out, value, spec);
  if (value.is(Kind::kFloat) || (spec.type != 0 && !is_integer_type)) return wrong_type(spec, value);
  return append_integer(out, value, spec);
}

}  // namespace butter::jinja
