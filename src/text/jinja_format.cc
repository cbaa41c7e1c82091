// printf-style formatting of texts: '%s: %d' % (name, count).
#include <cmath>
#include <cstdio>
#include <optional>

#include "text/jinja_format_spec.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text_operations.h"

namespace butter::jinja {
namespace {

constexpr size_t kMaxWidth = 1000;

struct Directive {
  std::optional<std::string> key;  // of %(key)s
  std::string flags;
  size_t width = 0;
  int precision = -1;
  char conversion = 0;
};

class Formatter {
 public:
  Formatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), out_(runtime.budget()) {}

  Result<Value> run() {
    const bool is_tuple =
        values_.is(Kind::kSequence) && values_.as_sequence().flavour == Sequence::Flavour::kTuple;
    if (is_tuple) {
      arguments_ = values_.as_sequence().items;
    } else {
      arguments_.push_back(values_);
    }
    BUTTER_TRY(walk());
    // What has an index and is left over is not an error, as in Python.
    const bool may_be_left =
        !is_tuple && (values_.is(Kind::kDict) || values_.is(Kind::kSequence) || values_.is(Kind::kUndefined));
    if (next_ < arguments_.size() && !may_be_left) {
      return fail(StatusCode::kInvalidArgument, "'%' has {} values for {} places", arguments_.size(), next_);
    }
    return runtime_.make(out_);
  }

 private:
  Status walk() {
    const std::string& bytes = format_.bytes;
    size_t at = 0;
    while (true) {
      const size_t percent = bytes.find('%', at);
      if (percent == std::string::npos) break;
      out_.append(format_, at, percent);
      at = percent + 1;
      BUTTER_ASSIGN(const Directive directive, parse(at));
      BUTTER_TRY(put(directive));
      BUTTER_TRY(out_.status());
    }
    out_.append(format_, at, bytes.size());
    return out_.status();
  }

  // Reads the directive at `at`, and moves behind it.
  Result<Directive> parse(size_t& at) {
    const std::string& bytes = format_.bytes;
    const auto peek = [&] { return at < bytes.size() ? bytes[at] : '\0'; };
    const auto number = [&](size_t& value) {
      while (peek() >= '0' && peek() <= '9' && value <= kMaxWidth)
        value = value * 10 + static_cast<size_t>(bytes[at++] - '0');
      return value <= kMaxWidth;
    };
    Directive directive;
    if (peek() == '(') {
      const size_t begin = ++at;
      for (int open = 1; open > 0; ++at) {
        if (at >= bytes.size())
          return fail(StatusCode::kInvalidArgument, "a key in a format has no ')' behind it");
        open += bytes[at] == '(' ? 1 : bytes[at] == ')' ? -1 : 0;
      }
      directive.key = bytes.substr(begin, at - 1 - begin);
    }
    while (peek() != '\0' && std::string_view("-+ #0").find(peek()) != std::string_view::npos) {
      if (directive.flags.find(peek()) == std::string::npos) directive.flags += peek();
      ++at;
    }
    bool ok = number(directive.width);
    if (peek() == '.') {
      ++at;
      size_t precision = 0;
      ok = number(precision) && ok;
      directive.precision = static_cast<int>(precision);
    }
    if (!ok) return fail(StatusCode::kLimit, "a width or precision in a format is more than {}", kMaxWidth);
    directive.conversion = peek();
    ++at;
    return directive;
  }

  Result<Value> argument_of(const Directive& directive) {
    if (directive.key) {
      if (!values_.is(Kind::kDict))
        return fail(StatusCode::kInvalidArgument, "a format with keys takes a dict, found {}",
                    values_.type_name());
      const Value* const found = values_.as_dict().find(*directive.key);
      if (found != nullptr) return *found;
      return fail(StatusCode::kInvalidArgument, "a format asks for the key '{}', which is not there",
                  std::string_view(*directive.key).substr(0, 100));
    }
    if (next_ == arguments_.size()) {
      return fail(StatusCode::kInvalidArgument, "'%' has {} values, and its format needs more",
                  arguments_.size());
    }
    return arguments_[next_++];
  }

  Status put(const Directive& directive) {
    switch (directive.conversion) {
      case '%':
        out_.append("%");
        return {};
      case 's':
      case 'r':
        return put_text(directive);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return put_integer(directive);
      case 'c':
        return put_character(directive);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return put_float(directive);
      default:
        return fail(StatusCode::kUnsupported, "the format directive '%{}' is not supported",
                    directive.conversion >= 0x20 && directive.conversion < 0x7F
                        ? std::string(1, directive.conversion)
                        : "?");
    }
  }

  Status put_text(const Directive& directive) {
    BUTTER_ASSIGN(const Value value, argument_of(directive));
    TextBuilder builder(runtime_.budget());
    BUTTER_TRY(directive.conversion == 's' ? append_str(runtime_, builder, value)
                                           : append_repr(runtime_, builder, value));
    BUTTER_ASSIGN(const Text text, builder.finish());
    size_t end = text.bytes.size();
    size_t count = count_code_points(text.bytes);
    if (directive.precision >= 0 && static_cast<size_t>(directive.precision) < count) {
      count = static_cast<size_t>(directive.precision);
      end = code_point_offsets(text.bytes)[count];
    }
    const std::string padding(count < directive.width ? directive.width - count : 0, ' ');
    const bool left = directive.flags.find('-') != std::string::npos;
    if (!left) out_.append(padding);
    out_.append(text, 0, end);
    if (left) out_.append(padding);
    return {};
  }

  static bool has_flag(const Directive& directive, char flag) {
    return directive.flags.find(flag) != std::string::npos;
  }

  Status put_integer(const Directive& directive) {
    BUTTER_ASSIGN(const Value value, argument_of(directive));
    const char c = directive.conversion;
    const bool decimal = c == 'd' || c == 'i' || c == 'u';
    if (!value.is_number() || (value.is(Kind::kFloat) && !decimal)) {
      return fail(StatusCode::kInvalidArgument, "'%{}' takes a number, found {}", c, value.type_name());
    }
    int64_t number = 0;
    if (value.is(Kind::kFloat)) {
      if (!(std::fabs(value.as_float()) < 9223372036854775808.0)) {
        return fail(StatusCode::kInvalidArgument, "'%{}' takes a number that fits 64 bits", c);
      }
      number = static_cast<int64_t>(value.as_float());
    } else {
      number = value.as_int();
    }
    std::string digits = integer_digits(number, decimal ? 10 : c == 'o' ? 8 : 16, c == 'X');
    if (directive.precision > static_cast<int>(digits.size()))
      digits.insert(0, static_cast<size_t>(directive.precision) - digits.size(), '0');
    std::string before = number < 0                 ? "-"
                         : has_flag(directive, '+') ? "+"
                         : has_flag(directive, ' ') ? " "
                                                    : "";
    if (!decimal && has_flag(directive, '#')) before += fmt::format("0{}", c);
    const size_t size = before.size() + digits.size();
    const size_t missing = directive.width > size ? directive.width - size : 0;
    if (has_flag(directive, '-')) {
      digits.append(missing, ' ');
    } else if (has_flag(directive, '0')) {
      before.append(missing, '0');
    } else {
      before.insert(0, missing, ' ');
    }
    out_.append(before + digits);
    return {};
  }

  // A character, or the number of one.
  Status put_character(const Directive& directive) {
    BUTTER_ASSIGN(Value value, argument_of(directive));
    if (value.is_integral()) {
      const int64_t number = value.as_int();
      if (number < 0 || number >= 0x110000 || (number >= 0xD800 && number < 0xE000))
        return fail(StatusCode::kInvalidArgument, "'%c' takes the number of a character, found {}", number);
      value = Value::text(utf8_of(static_cast<char32_t>(number)));
    }
    if (!value.is(Kind::kText) || count_code_points(value.bytes()) != 1)
      return fail(StatusCode::kInvalidArgument, "'%c' takes one character or its number");
    BUTTER_ASSIGN(const Text padded,
                  pad_text(runtime_, value.as_text(), static_cast<int64_t>(directive.width),
                           Text{" ", {}, false}, !has_flag(directive, '-'), has_flag(directive, '-')));
    out_.append(padded);
    return {};
  }

  Status put_float(const Directive& directive) {
    BUTTER_ASSIGN(const Value value, argument_of(directive));
    if (!value.is_number()) {
      return fail(StatusCode::kInvalidArgument, "'%{}' takes a number, found {}", directive.conversion,
                  value.type_name());
    }
    std::string pattern = "%" + directive.flags;
    if (directive.width > 0) pattern += fmt::format("{}", directive.width);
    if (directive.precision >= 0) pattern += fmt::format(".{}", directive.precision);
    pattern += directive.conversion;
    char buffer[2 * kMaxWidth + 400];
    const int length = std::snprintf(buffer, sizeof(buffer), pattern.c_str(), value.as_float());
    if (length > 0) out_.append(std::string_view(buffer, static_cast<size_t>(length)));
    return {};
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& values_;
  TextBuilder out_;
  std::vector<Value> arguments_;
  size_t next_ = 0;
};

}  // namespace

Result<Value> format_text(Runtime& runtime, const Value& format, const Value& values) {
  if (format.as_text().markup) {
    return fail(StatusCode::kUnsupported, "'%' on a text made by 'safe' or 'escape' is not supported");
  }
  return Formatter(runtime, format.as_text(), values).run();
}

}  // namespace butter::jinja
