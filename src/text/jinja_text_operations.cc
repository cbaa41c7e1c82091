#include "text/jinja_text_operations.h"

#include <algorithm>

namespace butter::jinja {

Status charge_search(Runtime& runtime, std::string_view text, std::string_view needle) {
  const auto blocks = [](std::string_view bytes) { return static_cast<int64_t>(bytes.size() / 64 + 1); };
  return runtime.budget().use_steps(blocks(text) * blocks(needle));
}

Result<Text> strip_text(Runtime& runtime, const Text& text, bool left, bool right, const Value* characters) {
  Span span;
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(text.bytes.size() / 16)));
  if (characters == nullptr || characters->is(Kind::kNone)) {
    span = stripped(text.bytes, left, right);
  } else if (!characters->is(Kind::kText)) {
    return fail(StatusCode::kInvalidArgument, "the characters to strip must be a str, found {}",
                characters->type_name());
  } else {
    BUTTER_TRY(charge_search(runtime, text.bytes, characters->bytes()));
    const std::string_view set = characters->bytes();
    span = stripped(text.bytes, left, right, &set);
  }
  TextBuilder builder(runtime.budget());
  builder.append(text, span.begin, span.end);
  BUTTER_ASSIGN(Text result, builder.finish());
  result.markup = text.markup;
  return result;
}

Result<Text> replace_text(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                          int64_t count) {
  BUTTER_TRY(charge_search(runtime, text.bytes, from.bytes));
  TextBuilder out(runtime.budget());
  size_t at = 0;
  bool replaced = false;
  const auto wanted = [&] { return count != 0 && !out.full(); };
  if (from.bytes.empty()) {
    // Between all characters, and at both ends.
    for (; wanted() && at < text.bytes.size(); --count) {
      const size_t next = at + code_point_at(text.bytes, at).length;
      out.append(to);
      out.append(text, at, next);
      at = next;
    }
    if (wanted()) out.append(to);
  }
  while (!from.bytes.empty() && wanted()) {
    const size_t found = text.bytes.find(from.bytes, at);
    if (found == std::string::npos) break;
    BUTTER_TRY(runtime.budget().use_steps(1));
    out.append(text, at, found);
    out.append(to);
    at = found + from.bytes.size();
    replaced = true;
    --count;
  }
  out.append(text, at, text.bytes.size());
  BUTTER_ASSIGN(Text result, out.finish());
  if (replaced && !from.content.empty()) return Text::of_content(std::move(result.bytes));
  return result;
}

Result<Text> pad_text(Runtime& runtime, const Text& text, int64_t width, const Text& fill, bool only_before,
                      bool only_behind) {
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(text.bytes.size() / 16)));
  const auto count = static_cast<int64_t>(count_code_points(text.bytes));
  const int64_t missing = std::max<int64_t>(width - count, 0);
  if (missing > static_cast<int64_t>(runtime.limits().max_repeated_bytes)) {
    return fail(StatusCode::kLimit, "{} characters to fill up with are more than max_repeated_bytes",
                missing);
  }
  // The odd one goes before, if the width is odd too, as in Python.
  const int64_t half = missing / 2 + (missing & width & 1);
  const int64_t before = only_before ? missing : only_behind ? 0 : half;
  TextBuilder out(runtime.budget());
  for (int64_t i = 0; i < before && !out.full(); ++i) out.append(fill);
  out.append(text);
  for (int64_t i = before; i < missing && !out.full(); ++i) out.append(fill);
  BUTTER_ASSIGN(Text result, out.finish());
  result.markup = text.markup;
  return result;
}

Result<Text> escape_text(Runtime& runtime, const Text& text) {
  TextBuilder out(runtime.budget());
  SpanCursor cursor(text);
  size_t begin = 0;
  for (size_t i = 0; i < text.bytes.size() && !out.full(); ++i) {
    std::string_view escape;
    switch (text.bytes[i]) {
      case '&':
        escape = "&amp;";
        break;
      case '<':
        escape = "&lt;";
        break;
      case '>':
        escape = "&gt;";
        break;
      case '"':
        escape = "&#34;";
        break;
      case '\'':
        escape = "&#39;";
        break;
      default:
        continue;
    }
    out.append(text, begin, i);
    out.append(escape, cursor.is_content(i));
    begin = i + 1;
  }
  out.append(text, begin, text.bytes.size());
  BUTTER_ASSIGN(Text result, out.finish());
  result.markup = true;
  return result;
}

LineEnd next_line(std::string_view bytes, size_t begin) {
  for (size_t i = begin; i < bytes.size();) {
    const CodePoint c = code_point_at(bytes, i);
    const char32_t v = c.valid ? c.value : 'x';
    if (v == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n') return {i, i + 2};
    const bool breaks =
        (v >= 10 && v <= 13) || (v >= 28 && v <= 30) || v == 0x85 || v == 0x2028 || v == 0x2029;
    if (breaks) return {i, i + c.length};
    i += c.length;
  }
  return {bytes.size(), bytes.size()};
}

}  // namespace butter::jinja
