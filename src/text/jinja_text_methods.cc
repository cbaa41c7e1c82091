// The methods of str.
#include "text/jinja_text_methods.h"

#include <algorithm>
#include <optional>

#include "text/jinja_format_fields.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text_operations.h"
#include "text/jinja_unicode.h"

namespace butter::jinja {
namespace {

using Flavour = Sequence::Flavour;

Result<const Text*> text_argument(const Call& call, size_t i) {
  if (call[i] == nullptr || !call[i]->is(Kind::kText)) {
    return fail(StatusCode::kInvalidArgument, "argument {} must be a str, found {}", i + 1,
                call[i] == nullptr ? "nothing" : call[i]->type_name());
  }
  return &call[i]->as_text();
}

Result<Value> stripped_at(Call& call, bool left, bool right) {
  BUTTER_ASSIGN(Text result, strip_text(call.runtime, call.input.as_text(), left, right, call[0]));
  return Value(std::move(result));
}
Result<Value> strip(Call& call) {
  return stripped_at(call, true, true);
}
Result<Value> lstrip(Call& call) {
  return stripped_at(call, true, false);
}
Result<Value> rstrip(Call& call) {
  return stripped_at(call, false, true);
}

Result<Value> cased(Call& call, Case wanted) {
  BUTTER_ASSIGN(Text result, with_case(call.runtime.budget(), call.input.as_text(), wanted));
  return Value(std::move(result));
}
Result<Value> upper(Call& call) {
  return cased(call, Case::kUpper);
}
Result<Value> lower(Call& call) {
  return cased(call, Case::kLower);
}
Result<Value> title(Call& call) {
  return cased(call, Case::kTitle);
}
Result<Value> capitalize(Call& call) {
  return cased(call, Case::kCapitalized);
}

// Cuts a text into pieces, from either end, and collects them.
class Splitter {
 public:
  explicit Splitter(Call& call) : call_(call), text_(call.input.as_text()) {}

  Status add(size_t begin, size_t end) {
    BUTTER_TRY(call_.runtime.budget().use_steps(1));
    BUTTER_ASSIGN(Value piece, call_.runtime.make_slice(text_, begin, end));
    pieces_.push_back(std::move(piece));
    return {};
  }
  Result<Value> finish() { return call_.runtime.make_list(std::move(pieces_)); }
  Result<Value> finish_reversed() {
    std::reverse(pieces_.begin(), pieces_.end());
    return finish();
  }

 private:
  Call& call_;
  const Text& text_;
  std::vector<Value> pieces_;
};

bool is_space_at(const std::string& bytes, size_t offset) {
  const CodePoint c = code_point_at(bytes, offset);
  return c.valid && is_python_space(c.value);
}

Result<Value> split_at_spaces(Call& call, int64_t most) {
  const std::string& bytes = call.input.bytes();
  Splitter splitter(call);
  size_t at = 0;
  while (true) {
    at += stripped(std::string_view(bytes).substr(at), true, false).begin;
    if (at == bytes.size()) break;
    size_t end = at;
    while (end < bytes.size() && (most == 0 || !is_space_at(bytes, end)))
      end += code_point_at(bytes, end).length;
    BUTTER_TRY(splitter.add(at, end));
    if (most == 0) break;
    --most;
    at = end;
  }
  return splitter.finish();
}

Result<Value> split(Call& call) {
  BUTTER_ASSIGN(int64_t most, call.integer(1, -1));
  if (!call.given(0)) return split_at_spaces(call, most);
  BUTTER_ASSIGN(const Text* separator, text_argument(call, 0));
  if (separator->bytes.empty()) return fail(StatusCode::kInvalidArgument, "its separator is empty");
  const std::string& bytes = call.input.bytes();
  BUTTER_TRY(charge_search(call.runtime, bytes, separator->bytes));
  Splitter splitter(call);
  size_t at = 0;
  for (; most != 0; --most) {
    const size_t found = bytes.find(separator->bytes, at);
    if (found == std::string::npos) break;
    BUTTER_TRY(splitter.add(at, found));
    at = found + separator->bytes.size();
  }
  BUTTER_TRY(splitter.add(at, bytes.size()));
  return splitter.finish();
}

// The last `most` words, and before them what is left of the text.
Result<Value> rsplit_at_spaces(Call& call, int64_t most) {
  const std::string& bytes = call.input.bytes();
  std::vector<Span> words;
  for (size_t at = 0; at < bytes.size();) {
    size_t end = at;
    while (end < bytes.size() && !is_space_at(bytes, end)) end += code_point_at(bytes, end).length;
    if (end > at) words.push_back({at, end});
    at = end < bytes.size() ? end + code_point_at(bytes, end).length : end;
  }
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(bytes.size() / 16 + words.size())));
  Splitter splitter(call);
  size_t first = 0;
  if (most >= 0 && words.size() > static_cast<size_t>(most)) {
    first = words.size() - static_cast<size_t>(most);
    BUTTER_TRY(splitter.add(0, words[first - 1].end));
  }
  for (size_t i = first; i < words.size(); ++i) BUTTER_TRY(splitter.add(words[i].begin, words[i].end));
  return splitter.finish();
}

Result<Value> rsplit(Call& call) {
  BUTTER_ASSIGN(int64_t most, call.integer(1, -1));
  if (!call.given(0)) return rsplit_at_spaces(call, most);
  BUTTER_ASSIGN(const Text* separator, text_argument(call, 0));
  if (separator->bytes.empty()) return fail(StatusCode::kInvalidArgument, "its separator is empty");
  const std::string& bytes = call.input.bytes();
  const size_t width = separator->bytes.size();
  BUTTER_TRY(charge_search(call.runtime, bytes, separator->bytes));
  Splitter splitter(call);
  size_t end = bytes.size();
  for (; most != 0 && end >= width; --most) {
    const size_t found = bytes.rfind(separator->bytes, end - width);
    if (found == std::string::npos) break;
    BUTTER_TRY(splitter.add(found + width, end));
    end = found;
  }
  BUTTER_TRY(splitter.add(0, end));
  return splitter.finish_reversed();
}

Result<Value> splitlines(Call& call) {
  const std::string& bytes = call.input.bytes();
  const bool keep = call.truth(0, false);
  Splitter splitter(call);
  for (size_t at = 0; at < bytes.size();) {
    const LineEnd line = next_line(bytes, at);
    BUTTER_TRY(splitter.add(at, keep ? line.next : line.end));
    at = line.next;
  }
  return splitter.finish();
}

// The part of the text that [start, end) of code points selects, or nullopt if it is empty on the wrong side.
Result<std::optional<Span>> selected(Call& call, size_t start_at) {
  const std::string& bytes = call.input.bytes();
  if (!call.given(start_at) && !call.given(start_at + 1)) return Span{0, bytes.size()};
  BUTTER_TRY(call.runtime.budget().use_steps(1 + static_cast<int64_t>(bytes.size() / 16)));
  const std::vector<size_t> offsets = code_point_offsets(bytes);
  const int64_t size = static_cast<int64_t>(offsets.size()) - 1;
  int64_t begin = 0;
  int64_t end = size;
  if (call.given(start_at)) {
    BUTTER_ASSIGN(begin, call.integer(start_at, 0));
  }
  if (call.given(start_at + 1)) {
    BUTTER_ASSIGN(end, call.integer(start_at + 1, 0));
  }
  end = std::min(end, size);
  if (end < 0) end = end < -size ? 0 : end + size;
  if (begin < 0) begin = begin < -size ? 0 : begin + size;
  if (begin > end || begin > size) return std::nullopt;
  return Span{offsets[static_cast<size_t>(begin)], offsets[static_cast<size_t>(end)]};
}

Result<Value> has_end(Call& call, bool at_start) {
  BUTTER_ASSIGN(const std::optional<Span> span, selected(call, 1));
  const bool tuple = call[0]->is(Kind::kSequence) && call[0]->as_sequence().flavour == Flavour::kTuple;
  const std::vector<Value> single = {*call[0]};
  for (const Value& candidate : tuple ? call[0]->as_sequence().items : single) {
    if (!candidate.is(Kind::kText)) {
      return fail(StatusCode::kInvalidArgument, "argument 1 must be a str or a tuple of str, found {}",
                  candidate.type_name());
    }
    BUTTER_TRY(call.runtime.budget().use_steps(1 + static_cast<int64_t>(candidate.bytes().size() / 64)));
    if (!span) continue;
    const std::string_view part =
        std::string_view(call.input.bytes()).substr(span->begin, span->end - span->begin);
    if (at_start ? part.starts_with(candidate.bytes()) : part.ends_with(candidate.bytes()))
      return Value(true);
  }
  return Value(false);
}
Result<Value> startswith(Call& call) {
  return has_end(call, true);
}
Result<Value> endswith(Call& call) {
  return has_end(call, false);
}

Result<Value> replace(Call& call) {
  BUTTER_ASSIGN(const Text* from, text_argument(call, 0));
  BUTTER_ASSIGN(const Text* to, text_argument(call, 1));
  BUTTER_ASSIGN(const int64_t count, call.integer(2, -1));
  const Text& text = call.input.as_text();
  Text escaped = *to;
  if (text.markup && !to->markup) {
    BUTTER_ASSIGN(escaped, escape_text(call.runtime, *to));
  }
  BUTTER_ASSIGN(Text result, replace_text(call.runtime, text, *from, escaped, count));
  result.markup = text.markup;
  return Value(std::move(result));
}

Result<Value> found_at(Call& call, bool last, bool required) {
  BUTTER_ASSIGN(const Text* needle, text_argument(call, 0));
  BUTTER_ASSIGN(const std::optional<Span> span, selected(call, 1));
  const std::string_view bytes = call.input.bytes();
  BUTTER_TRY(charge_search(call.runtime, bytes, needle->bytes));
  if (span) {
    const std::string_view part = bytes.substr(span->begin, span->end - span->begin);
    const size_t found = last ? part.rfind(needle->bytes) : part.find(needle->bytes);
    if (found != std::string_view::npos) {
      return Value(static_cast<int64_t>(count_code_points(bytes.substr(0, span->begin + found))));
    }
  }
  if (required) return fail(StatusCode::kInvalidArgument, "the text is not found");
  return Value(int64_t{-1});
}
Result<Value> find(Call& call) {
  return found_at(call, false, false);
}
Result<Value> rfind(Call& call) {
  return found_at(call, true, false);
}
Result<Value> index(Call& call) {
  return found_at(call, false, true);
}
Result<Value> rindex(Call& call) {
  return found_at(call, true, true);
}

// What stands before the separator, the separator, and what stands behind it.
Result<Value> parted(Call& call, bool last) {
  BUTTER_ASSIGN(const Text* separator, text_argument(call, 0));
  if (separator->bytes.empty()) return fail(StatusCode::kInvalidArgument, "its separator is empty");
  const Text& text = call.input.as_text();
  BUTTER_TRY(charge_search(call.runtime, text.bytes, separator->bytes));
  const size_t found = last ? text.bytes.rfind(separator->bytes) : text.bytes.find(separator->bytes);
  const bool is_there = found != std::string::npos;
  const size_t begin = is_there ? found : last ? 0 : text.bytes.size();
  const size_t end = is_there ? found + separator->bytes.size() : begin;
  BUTTER_ASSIGN(Value before, call.runtime.make_slice(text, 0, begin));
  BUTTER_ASSIGN(Value middle, call.runtime.make_slice(text, begin, end));
  BUTTER_ASSIGN(Value behind, call.runtime.make_slice(text, end, text.bytes.size()));
  return call.runtime.make_tuple({std::move(before), std::move(middle), std::move(behind)});
}
Result<Value> partition(Call& call) {
  return parted(call, false);
}
Result<Value> rpartition(Call& call) {
  return parted(call, true);
}

Result<Value> count(Call& call) {
  BUTTER_ASSIGN(const Text* needle, text_argument(call, 0));
  const std::string& bytes = call.input.bytes();
  BUTTER_TRY(charge_search(call.runtime, bytes, needle->bytes));
  if (needle->bytes.empty()) return Value(static_cast<int64_t>(count_code_points(bytes) + 1));
  int64_t found = 0;
  for (size_t at = bytes.find(needle->bytes); at != std::string::npos;
       at = bytes.find(needle->bytes, at + needle->bytes.size())) {
    ++found;
  }
  return Value(found);
}

Result<Value> join(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, *call[0]));
  TextBuilder builder(call.runtime.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) {
      return fail(StatusCode::kInvalidArgument, "it joins str, found {} at item {}", items[i].type_name(), i);
    }
    if (i > 0) builder.append(call.input.as_text());
    builder.append(items[i].as_text());
    BUTTER_TRY(builder.status());
  }
  return call.runtime.make(builder);
}

Result<Value> removeprefix(Call& call) {
  BUTTER_ASSIGN(const Text* prefix, text_argument(call, 0));
  const Text& text = call.input.as_text();
  const bool found = text.bytes.starts_with(prefix->bytes);
  return call.runtime.make_slice(text, found ? prefix->bytes.size() : 0, text.bytes.size());
}

Result<Value> removesuffix(Call& call) {
  BUTTER_ASSIGN(const Text* suffix, text_argument(call, 0));
  const Text& text = call.input.as_text();
  const bool found = text.bytes.ends_with(suffix->bytes);
  return call.runtime.make_slice(text, 0, text.bytes.size() - (found ? suffix->bytes.size() : 0));
}

// ---- padding ----

enum class Side { kLeft, kRight, kBoth };

Result<Value> padded(Call& call, Side text_side) {
  BUTTER_ASSIGN(const int64_t width, call.integer(0, 0));
  const std::string space = " ";
  Text fill{space, {}, false};
  if (call[1] != nullptr) {
    BUTTER_ASSIGN(const Text* given, text_argument(call, 1));
    if (count_code_points(given->bytes) != 1)
      return fail(StatusCode::kInvalidArgument, "it is filled with one character");
    fill = *given;
  }
  BUTTER_ASSIGN(Text result, pad_text(call.runtime, call.input.as_text(), width, fill,
                                      text_side == Side::kRight, text_side == Side::kLeft));
  return Value(std::move(result));
}
Result<Value> center(Call& call) {
  return padded(call, Side::kBoth);
}
Result<Value> ljust(Call& call) {
  return padded(call, Side::kLeft);
}
Result<Value> rjust(Call& call) {
  return padded(call, Side::kRight);
}

// Zeros in front, behind a sign.
Result<Value> zfill(Call& call) {
  BUTTER_ASSIGN(const int64_t width, call.integer(0, 0));
  const Text& text = call.input.as_text();
  const bool is_signed = text.bytes.starts_with('+') || text.bytes.starts_with('-');
  TextBuilder rest(call.runtime.budget());
  rest.append(text, is_signed ? 1 : 0, text.bytes.size());
  BUTTER_ASSIGN(const Text digits, rest.finish());
  BUTTER_ASSIGN(const Text filled, pad_text(call.runtime, digits, width - (is_signed ? 1 : 0),
                                            Text{"0", {}, false}, true, false));
  TextBuilder out(call.runtime.budget());
  if (is_signed) out.append(text, 0, 1);
  out.append(filled);
  return call.runtime.make(out);
}

Result<Value> expandtabs(Call& call) {
  BUTTER_ASSIGN(const int64_t size, call.integer(0, 8));
  const Text& text = call.input.as_text();
  if (size > static_cast<int64_t>(call.runtime.limits().max_repeated_bytes))
    return fail(StatusCode::kLimit, "a width of {} is more than max_repeated_bytes", size);
  TextBuilder out(call.runtime.budget());
  SpanCursor cursor(text);
  int64_t column = 0;
  for (size_t i = 0; i < text.bytes.size() && !out.full();) {
    const size_t length = code_point_at(text.bytes, i).length;
    const char c = text.bytes[i];
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(std::string(static_cast<size_t>(spaces), ' '), cursor.is_content(i));
      column += spaces;
    } else {
      out.append(text, i, i + length);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    i += length;
  }
  return call.runtime.make(out);
}

// ---- what kind of characters ----

// Whether the text has some characters and all are of a kind.
template <bool (*is_of_kind)(char32_t)>
Result<Value> is_all(Call& call) {
  const std::string& bytes = call.input.bytes();
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(bytes.size() / 16)));
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = code_point_at(bytes, i);
    if (!c.valid || !is_of_kind(c.value)) return Value(false);
    i += c.length;
  }
  return Value(!bytes.empty());
}

Result<Value> isascii(Call& call) {
  return Value(
      std::ranges::all_of(call.input.bytes(), [](char c) { return static_cast<uint8_t>(c) < 0x80; }));
}
Result<Value> isprintable(Call& call) {
  if (call.input.bytes().empty()) return Value(true);
  return is_all<is_printable>(call);
}

// Some character has a case, and none the other one.
Result<Value> is_of_case(Call& call, bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)) {
  const std::string& bytes = call.input.bytes();
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(bytes.size() / 16)));
  bool some = false;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = code_point_at(bytes, i);
    if (c.valid && (is_other(c.value) || is_title(c.value))) return Value(false);
    some |= c.valid && is_wanted(c.value);
    i += c.length;
  }
  return Value(some);
}
Result<Value> isupper(Call& call) {
  return is_of_case(call, is_upper, is_lower);
}
Result<Value> islower(Call& call) {
  return is_of_case(call, is_lower, is_upper);
}

// Every run of letters that have a case begins with a capital, and has no other.
Result<Value> istitle(Call& call) {
  const std::string& bytes = call.input.bytes();
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(bytes.size() / 16)));
  bool some = false, after_letter = false;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = code_point_at(bytes, i);
    const bool is_capital = c.valid && (is_upper(c.value) || is_title(c.value));
    const bool is_small = c.valid && is_lower(c.value);
    if ((is_capital && after_letter) || (is_small && !after_letter)) return Value(false);
    some |= is_capital || is_small;
    after_letter = is_capital || is_small;
    i += c.length;
  }
  return Value(some);
}

Result<Value> swapcase(Call& call) {
  return cased(call, Case::kSwapped);
}

Result<Value> format(Call& call) {
  return format_fields(call.runtime, call.input.as_text(), call.arguments);
}

constexpr Passing kByPosition = Passing::kByPosition;

constexpr Builtin kTextMethods[] = {
    {"capitalize", capitalize},
    {"center", center, {"width", "fillchar"}, 1, kByPosition},
    {"count", count, {"sub"}, 1, kByPosition},
    {"endswith", endswith, {"suffix", "start", "end"}, 1, kByPosition},
    {"expandtabs", expandtabs, {"tabsize"}},
    {"find", find, {"sub", "start", "end"}, 1, kByPosition},
    {"format", format, {}, 0, Passing::kAny},
    {"index", index, {"sub", "start", "end"}, 1, kByPosition},
    {"isalnum", is_all<is_alphanumeric>},
    {"isalpha", is_all<is_alphabetic>},
    {"isascii", isascii},
    {"isdecimal", is_all<is_decimal>},
    {"isdigit", is_all<is_digit>},
    {"islower", islower},
    {"isnumeric", is_all<is_numeric>},
    {"isprintable", isprintable},
    {"isspace", is_all<is_python_space>},
    {"istitle", istitle},
    {"isupper", isupper},
    {"join", join, {"iterable"}, 1, kByPosition},
    {"ljust", ljust, {"width", "fillchar"}, 1, kByPosition},
    {"lower", lower},
    {"lstrip", lstrip, {"chars"}, 0, kByPosition},
    {"partition", partition, {"sep"}, 1, kByPosition},
    {"removeprefix", removeprefix, {"prefix"}, 1, kByPosition},
    {"removesuffix", removesuffix, {"suffix"}, 1, kByPosition},
    {"replace", replace, {"old", "new", "count"}, 2, kByPosition},
    {"rfind", rfind, {"sub", "start", "end"}, 1, kByPosition},
    {"rindex", rindex, {"sub", "start", "end"}, 1, kByPosition},
    {"rjust", rjust, {"width", "fillchar"}, 1, kByPosition},
    {"rpartition", rpartition, {"sep"}, 1, kByPosition},
    {"rsplit", rsplit, {"sep", "maxsplit"}},
    {"rstrip", rstrip, {"chars"}, 0, kByPosition},
    {"split", split, {"sep", "maxsplit"}},
    {"splitlines", splitlines, {"keepends"}},
    {"startswith", startswith, {"prefix", "start", "end"}, 1, kByPosition},
    {"strip", strip, {"chars"}, 0, kByPosition},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill, {"width"}, 1, kByPosition},
};

}  // namespace

std::span<const Builtin> text_methods() {
  return kTextMethods;
}

}  // namespace butter::jinja
