#include "text/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_loop.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace butter::jinja {
namespace {

Status cannot_print(const Value& value) {
  return fail(StatusCode::kUnsupported, "a {} cannot be printed; make it a list or call it first",
              value.type_name());
}

// 'text', or "text" if it has single quotes only.
void append_text_repr(TextBuilder& out, const Text& text) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  if (text.markup) out.append("Markup(");
  out.append(std::string_view(&quote, 1));
  SpanCursor cursor(text);
  for (size_t i = 0; i < text.bytes.size() && !out.full();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool is_content = cursor.is_content(i);
    const char32_t v = c.value;
    if (!c.valid) {
      out.append(fmt::format("\\x{:02x}", static_cast<uint32_t>(v)), is_content);
    } else if (v == '\\' || v == static_cast<unsigned char>(quote)) {
      out.append(fmt::format("\\{}", static_cast<char>(v)), is_content);
    } else if (v == '\n' || v == '\r' || v == '\t') {
      out.append(v == '\n' ? "\\n" : v == '\r' ? "\\r" : "\\t", is_content);
    } else if (is_printable(v)) {
      out.append(std::string_view(text.bytes).substr(i, c.length), is_content);
    } else if (v < 0x100) {
      out.append(fmt::format("\\x{:02x}", static_cast<uint32_t>(v)), is_content);
    } else {
      out.append(v < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(v))
                             : fmt::format("\\U{:08x}", static_cast<uint32_t>(v)),
                 is_content);
    }
    i += c.length;
  }
  out.append(std::string_view(&quote, 1));
  if (text.markup) out.append(")");
}

Status append_items(Runtime& runtime, TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    BUTTER_TRY(append_repr(runtime, out, items[i]));
  }
  return {};
}

Status append_sequence_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  const Sequence& sequence = value.as_sequence();
  switch (sequence.flavour) {
    case Sequence::Flavour::kList:
      out.append("[");
      BUTTER_TRY(append_items(runtime, out, sequence.items));
      out.append("]");
      return {};
    case Sequence::Flavour::kTuple:
      out.append("(");
      BUTTER_TRY(append_items(runtime, out, sequence.items));
      out.append(sequence.items.size() == 1 ? ",)" : ")");
      return {};
    case Sequence::Flavour::kRange:
      out.append(fmt::format("range({}, {}", sequence.range[0], sequence.range[1]));
      if (sequence.range[2] != 1) out.append(fmt::format(", {}", sequence.range[2]));
      out.append(")");
      return {};
    case Sequence::Flavour::kGenerator:
      return cannot_print(value);
    default:
      out.append(value.type_name());
      out.append("([");
      BUTTER_TRY(append_items(runtime, out, sequence.items));
      out.append("])");
      return {};
  }
}

Status append_dict_repr(Runtime& runtime, TextBuilder& out, const Dict& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    BUTTER_TRY(append_repr(runtime, out, key));
    out.append(": ");
    BUTTER_TRY(append_repr(runtime, out, value));
  }
  out.append("}");
  return {};
}

Status append_namespace_repr(Runtime& runtime, TextBuilder& out, const Namespace& space) {
  out.append("<Namespace {");
  for (size_t i = 0; i < space.attributes.size(); ++i) {
    if (i > 0) out.append(", ");
    Text name;
    name.bytes = space.attributes[i].first;
    append_text_repr(out, name);
    out.append(": ");
    BUTTER_TRY(append_repr(runtime, out, space.attributes[i].second));
  }
  out.append("}>");
  return {};
}

void append_json_text(TextBuilder& out, const Text& text, bool ensure_ascii) {
  out.append("\"");
  SpanCursor cursor(text);
  for (size_t i = 0; i < text.bytes.size() && !out.full();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool is_content = cursor.is_content(i);
    const char32_t v = c.valid ? c.value : 0xFFFD;
    const auto escape = [](char32_t unit) { return fmt::format("\\u{:04x}", static_cast<uint32_t>(unit)); };
    if (v == '"' || v == '\\') {
      out.append(fmt::format("\\{}", static_cast<char>(v)), is_content);
    } else if (v == '\n' || v == '\r' || v == '\t' || v == '\f' || v == '\b') {
      out.append(v == '\n'   ? "\\n"
                 : v == '\r' ? "\\r"
                 : v == '\t' ? "\\t"
                 : v == '\f' ? "\\f"
                             : "\\b",
                 is_content);
    } else if (v < 0x20) {
      out.append(escape(v), is_content);
    } else if (!ensure_ascii || v < 0x7F) {
      out.append(v, is_content);
    } else if (v < 0x10000) {
      out.append(escape(v), is_content);
    } else {
      out.append(escape(0xD800 + ((v - 0x10000) >> 10)) + escape(0xDC00 + ((v - 0x10000) & 0x3FF)),
                 is_content);
    }
    i += c.length;
  }
  out.append("\"");
}

std::string json_number(const Value& value) {
  if (!value.is(Kind::kFloat)) return fmt::format("{}", value.as_int());
  const double number = value.as_float();
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return float_repr(number);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, TextBuilder& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  Status write(const Value& value, int level) {
    DepthGuard guard(runtime_.depth(), runtime_.limits().max_eval_depth);
    if (!guard.ok()) return runtime_.too_deep();
    BUTTER_TRY(runtime_.budget().use_steps(1));
    BUTTER_TRY(out_.status());
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null");
        return {};
      case Kind::kBool:
        out_.append(value.as_bool() ? "true" : "false");
        return {};
      case Kind::kInt:
      case Kind::kFloat:
        out_.append(json_number(value));
        return {};
      case Kind::kText:
        append_json_text(out_, value.as_text(), style_.ensure_ascii);
        return {};
      case Kind::kDict:
        return write_dict(value.as_dict(), level);
      case Kind::kSequence: {
        const Sequence::Flavour flavour = value.as_sequence().flavour;
        if (flavour == Sequence::Flavour::kList || flavour == Sequence::Flavour::kTuple) {
          return write_list(value.as_sequence().items, level);
        }
        break;
      }
      case Kind::kUndefined:
        return fail(StatusCode::kInvalidArgument, "{}", *value.as_undefined().why);
      default:
        break;
    }
    return fail(StatusCode::kInvalidArgument, "a value of type {} cannot be written as JSON",
                value.type_name());
  }

 private:
  void break_line(int level) {
    if (!style_.pretty) return;
    out_.append("\n");
    for (int i = 0; i < level && !out_.full(); ++i) out_.append(style_.indent);
  }

  Status write_list(const std::vector<Value>& items, int level) {
    out_.append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      break_line(level + 1);
      BUTTER_TRY(write(items[i], level + 1));
    }
    if (!items.empty()) break_line(level);
    out_.append("]");
    return {};
  }

  Status write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kText:
        append_json_text(out_, key.as_text(), style_.ensure_ascii);
        return {};
      case Kind::kNone:
        out_.append("\"null\"");
        return {};
      case Kind::kBool:
        out_.append(key.as_bool() ? "\"true\"" : "\"false\"");
        return {};
      case Kind::kInt:
      case Kind::kFloat:
        out_.append('"' + json_number(key) + '"');
        return {};
      default:
        return fail(StatusCode::kInvalidArgument, "a JSON key must be a str, a number or none, found {}",
                    key.type_name());
    }
  }

  Status write_dict(const Dict& dict, int level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) BUTTER_TRY(sort_by_key(entries));
    out_.append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      break_line(level + 1);
      BUTTER_TRY(write_key(entries[i]->first));
      out_.append(style_.key_separator);
      BUTTER_TRY(write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) break_line(level);
    out_.append("}");
    return {};
  }

  Status sort_by_key(std::vector<const Dict::Entry*>& entries) {
    std::vector<Value> keys;
    for (const Dict::Entry* entry : entries) keys.push_back(entry->first);
    BUTTER_ASSIGN(const std::vector<size_t> order, sorted_order(runtime_, keys, false));
    std::vector<const Dict::Entry*> sorted;
    for (const size_t i : order) sorted.push_back(entries[i]);
    entries = std::move(sorted);
    return {};
  }

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const bool negative = text.front() == '-';
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + 1;
  if (*digits_of_exponent == '+') ++digits_of_exponent;
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);

  const std::string_view sign = negative ? "-" : "";
  const size_t count = digits.size();
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits.substr(0, 1), count > 1 ? "." : "", digits.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (count <= whole) return fmt::format("{}{}{}.0", sign, digits, std::string(whole - count, '0'));
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

Status append_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  DepthGuard guard(runtime.depth(), runtime.limits().max_eval_depth);
  if (!guard.ok()) return runtime.too_deep();
  BUTTER_TRY(runtime.budget().use_steps(1));
  BUTTER_TRY(out.status());
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append("Undefined");
      return {};
    case Kind::kNone:
      out.append("None");
      return {};
    case Kind::kBool:
      out.append(value.as_bool() ? "True" : "False");
      return {};
    case Kind::kInt:
      out.append(fmt::format("{}", value.as_int()));
      return {};
    case Kind::kFloat:
      out.append(float_repr(value.as_float()));
      return {};
    case Kind::kText:
      append_text_repr(out, value.as_text());
      return {};
    case Kind::kSequence:
      return append_sequence_repr(runtime, out, value);
    case Kind::kDict:
      return append_dict_repr(runtime, out, value.as_dict());
    case Kind::kNamespace:
      return append_namespace_repr(runtime, out, *value.as_namespace());
    case Kind::kLoop: {
      BUTTER_ASSIGN(const int64_t length, value.as_loop().length());
      out.append(fmt::format("<LoopContext {}/{}>", value.as_loop().index0() + 1, length));
      return {};
    }
    default:
      return cannot_print(value);
  }
}

Status append_str(Runtime& runtime, TextBuilder& out, const Value& value) {
  if (value.is(Kind::kText)) {
    out.append(value.as_text());
  } else if (!value.is(Kind::kUndefined)) {
    BUTTER_TRY(append_repr(runtime, out, value));
  }
  return out.status();
}

Result<Text> to_text(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kText)) {
    BUTTER_TRY(runtime.budget().use_text(value.bytes().size()));
    return value.as_text();
  }
  TextBuilder builder(runtime.budget());
  BUTTER_TRY(append_str(runtime, builder, value));
  return builder.finish();
}

Status append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
  BUTTER_TRY(JsonWriter(runtime, out, style).write(value, 0));
  return out.status();
}

}  // namespace butter::jinja
