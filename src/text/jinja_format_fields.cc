#include "text/jinja_format_fields.h"

#include <charconv>
#include <optional>

#include "text/jinja_format_spec.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace butter::jinja {
namespace {

constexpr int kMaxDepth = 2;  // a specification may have fields, and those none

class FieldFormatter {
 public:
  FieldFormatter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  Status append(const Text& format, int depth, TextBuilder& out) {
    if (depth > kMaxDepth)
      return fail(StatusCode::kInvalidArgument, "fields are nested too deep in a format");
    const std::string& bytes = format.bytes;
    size_t at = 0, begin = 0;
    while (true) {
      at = bytes.find_first_of("{}", at);
      if (at == std::string::npos) break;
      BUTTER_TRY(runtime_.budget().use_steps(1));
      const bool is_doubled = at + 1 < bytes.size() && bytes[at + 1] == bytes[at];
      if (is_doubled) {
        out.append(format, begin, at + 1);
        begin = at += 2;
        continue;
      }
      if (bytes[at] == '}')
        return fail(StatusCode::kInvalidArgument, "a format has a '}}' without a '{{' before it");
      out.append(format, begin, at);
      BUTTER_ASSIGN(const size_t end, end_of_field(bytes, at + 1));
      TextBuilder field(runtime_.budget());
      field.append(format, at + 1, end);
      BUTTER_ASSIGN(const Text text, field.finish());
      BUTTER_TRY(append_field(text, depth, out));
      begin = at = end + 1;
    }
    out.append(format, begin, bytes.size());
    return out.status();
  }

 private:
  static Result<size_t> end_of_field(const std::string& bytes, size_t begin) {
    int open = 1;
    bool in_index = false;
    bool in_spec = false;
    for (size_t i = begin; i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (in_index && !in_spec) {
        in_index = c != ']';
        continue;
      }
      in_index = c == '[';
      in_spec |= c == ':' || c == '!';
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return i;
    }
    return fail(StatusCode::kInvalidArgument, "a format has a '{{' without a '}}' behind it");
  }

  // name!conversion:specification
  Status append_field(const Text& field, int depth, TextBuilder& out) {
    const std::string& bytes = field.bytes;
    size_t name_end = 0;
    for (bool in_index = false; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      in_index = in_index ? c != ']' : c == '[';
      if (!in_index && (c == ':' || c == '!')) break;
      if (!in_index && c == '{') return fail(StatusCode::kInvalidArgument, "a field's name has a '{{' in it");
    }
    BUTTER_ASSIGN(Value value, value_of(std::string_view(bytes).substr(0, name_end)));
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      at += 2;
      if (at < bytes.size() && bytes[at] != ':')
        return fail(StatusCode::kInvalidArgument, "a conversion in a format is one letter");
      BUTTER_ASSIGN(value, converted(value, conversion));
    }
    TextBuilder builder(runtime_.budget());
    if (at < bytes.size()) {
      TextBuilder source(runtime_.budget());
      source.append(field, at + 1, bytes.size());
      BUTTER_ASSIGN(const Text spec_format, source.finish());
      BUTTER_TRY(append(spec_format, depth + 1, builder));
    }
    BUTTER_ASSIGN(const Text spec_text, builder.finish());
    BUTTER_ASSIGN(FormatSpec spec, FormatSpec::parse(spec_text.bytes));
    spec.fill_is_content = !spec_text.content.empty();
    return append_formatted(runtime_, out, value, spec);
  }

  Result<Value> converted(const Value& value, char conversion) {
    if (conversion == 's') {
      BUTTER_ASSIGN(Text text, to_text(runtime_, value));
      return Value(std::move(text));
    }
    if (conversion != 'r') {
      return fail(conversion == 'a' ? StatusCode::kUnsupported : StatusCode::kInvalidArgument,
                  "the conversion '!{}' is not supported; !s and !r are",
                  conversion >= 0x20 && conversion < 0x7F ? std::string(1, conversion) : "");
    }
    TextBuilder out(runtime_.budget());
    BUTTER_TRY(append_repr(runtime_, out, value));
    return runtime_.make(out);
  }

  // first.attribute[index]...
  Result<Value> value_of(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    BUTTER_ASSIGN(Value value, argument(name.substr(0, first_end)));
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      BUTTER_TRY(runtime_.budget().use_steps(1));
      if (rest[0] == '.') {
        const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) return fail(StatusCode::kInvalidArgument, "a field's name has an empty attribute");
        BUTTER_ASSIGN(value, get_attribute(runtime_, value, rest.substr(1, end - 1)));
        rest.remove_prefix(end);
        continue;
      }
      const size_t end = rest.find(']');
      if (rest[0] != '[' || end == std::string_view::npos || end == 1)
        return fail(StatusCode::kInvalidArgument,
                    "a field's name has an index that is empty or does not end");
      const std::string_view index = rest.substr(1, end - 1);
      const std::optional<int64_t> number = number_of(index);
      BUTTER_ASSIGN(value,
                    get_item(runtime_, value, number ? Value(*number) : Value::text(std::string(index))));
      rest.remove_prefix(end + 1);
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[')
        return fail(StatusCode::kInvalidArgument, "only '.' or '[' may follow ']' in a field's name");
    }
    return value;
  }

  static std::optional<int64_t> number_of(std::string_view text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number =
        !text.empty() && text[0] != '-' && error == std::errc() && end == text.data() + text.size();
    return is_number ? std::optional<int64_t>(number) : std::nullopt;
  }

  Result<Value> argument(std::string_view name) {
    const std::optional<int64_t> number = number_of(name);
    if (!name.empty() && !number) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      return fail(StatusCode::kInvalidArgument, "a format asks for '{}', which is not given",
                  name.substr(0, 100));
    }
    const bool is_counted = name.empty();
    if (counts_ && *counts_ != is_counted)
      return fail(StatusCode::kInvalidArgument, "a format has fields with numbers and without");
    counts_ = is_counted;
    const int64_t at = is_counted ? next_++ : *number;
    if (at >= static_cast<int64_t>(arguments_.positional.size())) {
      return fail(StatusCode::kInvalidArgument, "a format asks for value {}, and {} are given", at,
                  arguments_.positional.size());
    }
    return arguments_.positional[static_cast<size_t>(at)];
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  std::optional<bool> counts_;  // whether fields are numbered by their order
};

}  // namespace

Result<Value> format_fields(Runtime& runtime, const Text& format, const Arguments& arguments) {
  if (format.markup) {
    return fail(StatusCode::kUnsupported, "it is not supported on a text made by 'safe' or 'escape'");
  }
  TextBuilder out(runtime.budget());
  BUTTER_TRY(FieldFormatter(runtime, arguments).append(format, 1, out));
  return runtime.make(out);
}

}  // namespace butter::jinja
