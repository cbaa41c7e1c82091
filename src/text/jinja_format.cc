// printf-style formatting of texts: '%s: %d' % (name, count).
#include <cmath>
#include <cstdio>

#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace butter::jinja {
namespace {

constexpr size_t kMaxWidth = 1000;

struct Directive {
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

  Result<Value> next_argument() {
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
      case 'x':
      case 'X':
      case 'o':
        return put_integer(directive);
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
    BUTTER_ASSIGN(const Value value, next_argument());
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

  template <typename Number>
  void put_number(const Directive& directive, const char* size, char conversion, Number number) {
    std::string pattern = "%" + directive.flags;
    if (directive.width > 0) pattern += fmt::format("{}", directive.width);
    if (directive.precision >= 0) pattern += fmt::format(".{}", directive.precision);
    pattern += size;
    pattern += conversion;
    char buffer[2 * kMaxWidth + 400];
    const int length = std::snprintf(buffer, sizeof(buffer), pattern.c_str(), number);
    if (length > 0) out_.append(std::string_view(buffer, static_cast<size_t>(length)));
  }

  Status put_integer(const Directive& directive) {
    BUTTER_ASSIGN(const Value value, next_argument());
    const char c = directive.conversion;
    const bool decimal = c == 'd' || c == 'i';
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
    if (!decimal && (number < 0 || directive.flags.find('#') != std::string::npos)) {
      return fail(StatusCode::kUnsupported, "'%{}' of a negative number or with '#' is not supported", c);
    }
    put_number(directive, "l", decimal ? 'd' : c, static_cast<long>(number));
    return {};
  }

  Status put_float(const Directive& directive) {
    BUTTER_ASSIGN(const Value value, next_argument());
    if (!value.is_number()) {
      return fail(StatusCode::kInvalidArgument, "'%{}' takes a number, found {}", directive.conversion,
                  value.type_name());
    }
    put_number(directive, "", directive.conversion, value.as_float());
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
