// The filters on texts.
#include <algorithm>

#include "text/jinja_filter_tables.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text_operations.h"
#include "text/jinja_unicode.h"

namespace butter::jinja {
namespace {

// soft_str(value): the text that the value is or prints as.
Result<Text> input_text(Call& call) {
  return to_text(call.runtime, call.input);
}

Result<Text> argument_text(Call& call, size_t i, std::string_view otherwise) {
  if (call[i] != nullptr) return to_text(call.runtime, *call[i]);
  Text text;
  text.bytes = otherwise;
  return text;
}

Result<Value> cased(Call& call, Case wanted) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  BUTTER_ASSIGN(Text result, with_case(call.runtime.budget(), text, wanted));
  return Value(std::move(result));
}
Result<Value> upper(Call& call) {
  return cased(call, Case::kUpper);
}
Result<Value> lower(Call& call) {
  return cased(call, Case::kLower);
}
Result<Value> capitalize(Call& call) {
  return cased(call, Case::kCapitalized);
}

// Unlike str.title(): words begin after white space and after - ( { [ <.
Result<Value> title(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  TextBuilder builder(call.runtime.budget());
  const auto is_break = [&](size_t i) {
    const CodePoint c = code_point_at(text.bytes, i);
    return c.valid && (is_python_space(c.value) ||
                       (c.value < 0x80 && std::string_view("-({[<").find(static_cast<char>(c.value)) !=
                                              std::string_view::npos));
  };
  for (size_t begin = 0; begin < text.bytes.size() && !builder.full();) {
    const bool breaks = is_break(begin);
    size_t end = begin;
    while (end < text.bytes.size() && is_break(end) == breaks) end += code_point_at(text.bytes, end).length;
    TextBuilder word_builder(call.runtime.budget());
    word_builder.append(text, begin, end);
    BUTTER_ASSIGN(const Text word, word_builder.finish());
    BUTTER_ASSIGN(const Text changed, with_case(call.runtime.budget(), word, Case::kCapitalized));
    builder.append(changed);
    begin = end;
  }
  return call.runtime.make(builder);
}

Result<Value> trim(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  BUTTER_ASSIGN(Text result, strip_text(call.runtime, text, true, true, call[0]));
  return Value(std::move(result));
}

Result<Value> replace(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  BUTTER_ASSIGN(const Text from, argument_text(call, 0, ""));
  BUTTER_ASSIGN(const Text to, argument_text(call, 1, ""));
  int64_t count = -1;
  if (call.given(2)) {
    BUTTER_ASSIGN(count, call.integer(2, -1));
  }
  BUTTER_ASSIGN(Text result, replace_text(call.runtime, text, from, to, count));
  result.markup = false;
  return Value(std::move(result));
}

Result<Value> string(Call& call) {
  if (call.input.is(Kind::kText)) return call.input;
  BUTTER_ASSIGN(Text text, input_text(call));
  return Value(std::move(text));
}

Result<Value> safe(Call& call) {
  BUTTER_ASSIGN(Text text, input_text(call));
  text.markup = true;
  return Value(std::move(text));
}

Result<Value> escape(Call& call) {
  BUTTER_ASSIGN(Text text, input_text(call));
  if (text.markup) return Value(std::move(text));
  BUTTER_ASSIGN(Text escaped, escape_text(call.runtime, text));
  return Value(std::move(escaped));
}

Result<Value> indent(Call& call) {
  if (!call.input.is(Kind::kText)) {
    return fail(StatusCode::kInvalidArgument, "it indents a str, found {}", call.input.type_name());
  }
  Text margin;
  if (call[0] != nullptr && call[0]->is(Kind::kText)) {
    margin = call[0]->as_text();
  } else {
    BUTTER_ASSIGN(const int64_t width, call.integer(0, 4));
    if (width > static_cast<int64_t>(call.runtime.limits().max_repeated_bytes)) {
      return fail(StatusCode::kLimit, "a width of {} is more than max_repeated_bytes", width);
    }
    margin.bytes.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = call.truth(2, false);
  const Text& text = call.input.as_text();
  TextBuilder builder(call.runtime.budget());
  if (call.truth(1, false)) builder.append(margin);
  size_t at = 0;
  bool first = true;
  // The text with one line break behind it, cut into lines: the last line may be empty.
  while (true) {
    const LineEnd line = next_line(text.bytes, at);
    if (!first) {
      builder.append("\n");
      if (blank || line.end > at) builder.append(margin);
    }
    builder.append(text, at, line.end);
    first = false;
    BUTTER_TRY(builder.status());
    // The added line break completes a carriage return at the very end.
    const bool joined = line.next == text.bytes.size() && line.next > line.end && text.bytes.back() == '\r';
    if (line.end == line.next || joined) break;
    at = line.next;
  }
  BUTTER_ASSIGN(Text result, builder.finish());
  result.markup = text.markup;
  return Value(std::move(result));
}

Result<Value> forceescape(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  BUTTER_ASSIGN(Text escaped, escape_text(call.runtime, text));
  return Value(std::move(escaped));
}

Result<Value> center(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  BUTTER_ASSIGN(const int64_t width, call.integer(0, 80));
  BUTTER_ASSIGN(Text result, pad_text(call.runtime, text, width, Text{" ", {}, false}, false, false));
  return Value(std::move(result));
}

// '%' with the arguments: those by position, or those by name.
Result<Value> format(Call& call) {
  BUTTER_ASSIGN(Text text, input_text(call));
  const Arguments& arguments = call.arguments;
  if (!arguments.positional.empty() && !arguments.named.empty())
    return fail(StatusCode::kInvalidArgument, "it takes values by position or by name, not both");
  if (arguments.named.empty()) {
    BUTTER_ASSIGN(const Value values, call.runtime.make_tuple(arguments.positional));
    return format_text(call.runtime, Value(std::move(text)), values);
  }
  Dict dict;
  for (const auto& [name, value] : arguments.named) BUTTER_TRY(dict.set(Value::text(name), value));
  BUTTER_ASSIGN(const Value values, call.runtime.make(std::move(dict)));
  return format_text(call.runtime, Value(std::move(text)), values);
}

Result<Value> truncate(Call& call) {
  BUTTER_ASSIGN(const int64_t length, call.integer(0, 255));
  BUTTER_ASSIGN(const Text end, argument_text(call, 2, "..."));
  BUTTER_ASSIGN(const int64_t leeway, call.integer(3, 5));
  const auto end_length = static_cast<int64_t>(count_code_points(end.bytes));
  if (length < end_length || leeway < 0) {
    return fail(StatusCode::kInvalidArgument,
                "a length of at least {} and a leeway of at least 0 are expected", end_length);
  }
  BUTTER_ASSIGN(const int64_t size, length_of(call.input));
  if (size <= length || size - length <= leeway) return call.input;
  // What is short enough stays as it is, a list too.
  if (!call.input.is(Kind::kText))
    return fail(StatusCode::kInvalidArgument, "it truncates a str, found {}", call.input.type_name());
  const Text& text = call.input.as_text();
  BUTTER_TRY(call.runtime.budget().use_steps(1 + static_cast<int64_t>(text.bytes.size() / 16)));
  const std::vector<size_t> offsets = code_point_offsets(text.bytes);
  size_t cut = offsets[static_cast<size_t>(length - end_length)];
  if (!call.truth(1, false)) {
    const size_t space = std::string_view(text.bytes).substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out(call.runtime.budget());
  out.append(text, 0, cut);
  out.append(end);
  BUTTER_ASSIGN(Text result, out.finish());
  result.markup = text.markup;
  return Value(std::move(result));
}

// Runs of letters, digits and underscores.
Result<Value> wordcount(Call& call) {
  BUTTER_ASSIGN(const Text text, input_text(call));
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool is_word = c.valid && (is_alphanumeric(c.value) || c.value == '_');
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    i += c.length;
  }
  return Value(words);
}

constexpr Builtin kTextFilters[] = {
    {"capitalize", capitalize},
    {"center", center, {"width"}},
    {"e", escape},
    {"escape", escape},
    {"forceescape", forceescape},
    {"format", format, {}, 0, Passing::kAny},
    {"indent", indent, {"width", "first", "blank"}},
    {"lower", lower},
    {"replace", replace, {"old", "new", "count"}, 2},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"trim", trim, {"chars"}},
    {"truncate", truncate, {"length", "killwords", "end", "leeway"}},
    {"upper", upper},
    {"wordcount", wordcount},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace butter::jinja
