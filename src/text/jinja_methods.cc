// The methods: {{ value.name(arguments) }}, by the type of the value.
#include <algorithm>
#include <optional>
#include <span>

#include "text/jinja_builtins.h"
#include "text/jinja_loop.h"
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

// ---- str ----

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

Result<Value> rsplit(Call& call) {
  BUTTER_ASSIGN(int64_t most, call.integer(1, -1));
  if (!call.given(0)) {
    if (most < 0) return split_at_spaces(call, most);
    return fail(StatusCode::kUnsupported, "a count without a separator is not supported");
  }
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
  if (text.markup)
    return fail(StatusCode::kUnsupported, "it is not supported on a text made by 'safe' or 'escape'");
  BUTTER_ASSIGN(Text result, replace_text(call.runtime, text, *from, *to, count));
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

// ---- list, tuple, range ----

Result<Value> sequence_count(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  int64_t found = 0;
  for (const Value& item : items) {
    BUTTER_ASSIGN(const bool same, equal(call.runtime, item, *call[0]));
    found += same ? 1 : 0;
  }
  return Value(found);
}

Result<Value> sequence_index(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  for (size_t i = 0; i < items.size(); ++i) {
    BUTTER_ASSIGN(const bool same, equal(call.runtime, items[i], *call[0]));
    if (same) return Value(static_cast<int64_t>(i));
  }
  return fail(StatusCode::kInvalidArgument, "the value is not in the {}", call.input.type_name());
}

// ---- dict ----

Result<Value> view(Call& call, Flavour flavour) {
  const auto& entries = call.input.as_dict().entries();
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(entries.size())));
  std::vector<Value> items;
  for (const auto& [key, value] : entries) {
    if (flavour == Flavour::kItems) {
      BUTTER_ASSIGN(Value pair, call.runtime.make_tuple({key, value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(flavour == Flavour::kKeys ? key : value);
    }
  }
  return call.runtime.make(flavour, std::move(items));
}
Result<Value> dict_items(Call& call) {
  return view(call, Flavour::kItems);
}
Result<Value> dict_keys(Call& call) {
  return view(call, Flavour::kKeys);
}
Result<Value> dict_values(Call& call) {
  return view(call, Flavour::kValues);
}

Result<Value> dict_get(Call& call) {
  BUTTER_TRY(charge_key(call.runtime, *call[0]));
  BUTTER_ASSIGN(const Value* found, call.input.as_dict().find(*call[0]));
  if (found != nullptr) return *found;
  return call[1] != nullptr ? *call[1] : Value();
}

Result<Value> dict_copy(Call& call) {
  return call.input;
}

// ---- loop ----

Result<Value> loop_cycle(Call& call) {
  const std::vector<Value>& choices = call.arguments.positional;
  if (choices.empty() || !call.arguments.named.empty()) {
    return fail(StatusCode::kInvalidArgument, "it needs values to choose from, by position");
  }
  return choices[static_cast<size_t>(call.input.as_loop().index0()) % choices.size()];
}

Result<Value> loop_changed(Call& call) {
  if (!call.arguments.named.empty())
    return fail(StatusCode::kInvalidArgument, "it takes its values by position");
  if (call.input.as_loop().ended()) return fail(StatusCode::kUnsupported, "the loop has ended");
  BUTTER_ASSIGN(Value seen, call.runtime.make_tuple(call.arguments.positional));
  std::optional<Value>& last = call.input.as_loop().last_changed();
  bool same = false;
  if (last) {
    BUTTER_ASSIGN(same, equal(call.runtime, *last, seen));
  }
  if (!same) last = std::move(seen);
  return Value(!same);
}

constexpr Passing kByPosition = Passing::kByPosition;

constexpr Builtin kTextMethods[] = {
    {"capitalize", capitalize},
    {"count", count, {"sub"}, 1, kByPosition},
    {"endswith", endswith, {"suffix", "start", "end"}, 1, kByPosition},
    {"find", find, {"sub", "start", "end"}, 1, kByPosition},
    {"index", index, {"sub", "start", "end"}, 1, kByPosition},
    {"join", join, {"iterable"}, 1, kByPosition},
    {"lower", lower},
    {"lstrip", lstrip, {"chars"}, 0, kByPosition},
    {"removeprefix", removeprefix, {"prefix"}, 1, kByPosition},
    {"removesuffix", removesuffix, {"suffix"}, 1, kByPosition},
    {"replace", replace, {"old", "new", "count"}, 2, kByPosition},
    {"rfind", rfind, {"sub", "start", "end"}, 1, kByPosition},
    {"rsplit", rsplit, {"sep", "maxsplit"}},
    {"rstrip", rstrip, {"chars"}, 0, kByPosition},
    {"split", split, {"sep", "maxsplit"}},
    {"splitlines", splitlines, {"keepends"}},
    {"startswith", startswith, {"prefix", "start", "end"}, 1, kByPosition},
    {"strip", strip, {"chars"}, 0, kByPosition},
    {"title", title},
    {"upper", upper},
};

constexpr Builtin kSequenceMethods[] = {
    {"count", sequence_count, {"value"}, 1, kByPosition},
    {"index", sequence_index, {"value"}, 1, kByPosition},
};

constexpr Builtin kDictMethods[] = {
    {"copy", dict_copy},     {"get", dict_get, {"key", "default"}, 1, kByPosition},
    {"items", dict_items},   {"keys", dict_keys},
    {"values", dict_values},
};

constexpr Builtin kLoopMethods[] = {
    {"changed", loop_changed, {}, 0, Passing::kAny},
    {"cycle", loop_cycle, {}, 0, Passing::kAny},
};

// Python's other methods and attributes. The ones that would change a list or a dict are refused by the
// sandbox in which templates are published, so they are in no published template either.
constexpr std::string_view kOtherText[] = {
    "casefold",    "center",  "encode",     "expandtabs", "format",       "format_map", "isalnum",
    "isalpha",     "isascii", "isdecimal",  "isdigit",    "isidentifier", "islower",    "isnumeric",
    "isprintable", "isspace", "istitle",    "isupper",    "ljust",        "maketrans",  "partition",
    "rindex",      "rjust",   "rpartition", "swapcase",   "translate",    "zfill"};
constexpr std::string_view kOtherList[] = {"append", "clear",  "copy",    "extend", "insert",
                                           "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kOtherRange[] = {"start", "step", "stop"};
constexpr std::string_view kOtherView[] = {"isdisjoint", "mapping"};
constexpr std::string_view kOtherGenerator[] = {"close", "send", "throw"};
constexpr std::string_view kOtherDict[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kOtherNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kOtherMacro[] = {"arguments",     "caller",          "catch_kwargs",
                                            "catch_varargs", "explicit_caller", "name"};

std::span<const Builtin> methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kText:
      return kTextMethods;
    case Kind::kDict:
      return kDictMethods;
    case Kind::kLoop:
      return kLoopMethods;
    case Kind::kSequence:
      if (value.as_sequence().is_indexable()) return kSequenceMethods;
      return {};
    default:
      return {};
  }
}

std::span<const std::string_view> other_names_of(Flavour flavour) {
  switch (flavour) {
    case Flavour::kList:
      return kOtherList;
    case Flavour::kTuple:
      return {};
    case Flavour::kRange:
      return kOtherRange;
    case Flavour::kGenerator:
      return kOtherGenerator;
    default:
      return kOtherView;
  }
}

std::span<const std::string_view> other_names_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kText:
      return kOtherText;
    case Kind::kSequence:
      return other_names_of(value.as_sequence().flavour);
    case Kind::kDict:
      return kOtherDict;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return kOtherNumber;
    case Kind::kMacro:
      return kOtherMacro;
    default:
      return {};
  }
}

}  // namespace

const Builtin* find_method(const Value& receiver, std::string_view name) {
  for (const Builtin& row : methods_of(receiver)) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool is_unsupported_method(const Value& receiver, std::string_view name) {
  const auto names = other_names_of(receiver);
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace butter::jinja
