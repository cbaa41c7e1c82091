// The methods: {{ value.name(arguments) }}, by the type of the value.
#include <algorithm>
#include <optional>
#include <span>

#include "text/jinja_builtins.h"
#include "text/jinja_loop.h"
#include "text/jinja_operators.h"
#include "text/jinja_text_methods.h"

namespace butter::jinja {
namespace {

using Flavour = Sequence::Flavour;

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

// ---- cycler ----

Result<Value> cycler_next(Call& call) {
  Helper& cycler = call.input.as_helper();
  const Value current = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return current;
}

Result<Value> cycler_reset(Call& call) {
  call.input.as_helper().at = 0;
  return Value();
}

constexpr Builtin kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

// Python's other methods and attributes. The ones that would change a list or a dict are refused by the
// sandbox in which templates are published, so they are in no published template either.
constexpr std::string_view kOtherText[] = {"casefold",     "encode",    "format_map",
                                           "isidentifier", "maketrans", "translate"};
constexpr std::string_view kOtherList[] = {"append", "clear",  "copy",    "extend", "insert",
                                           "pop",    "remove", "reverse", "sort"};
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
      return text_methods();
    case Kind::kDict:
      return kDictMethods;
    case Kind::kLoop:
      return kLoopMethods;
    case Kind::kHelper:
      if (value.as_helper().what == Helper::What::kCycler) return kCyclerMethods;
      return {};
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
    case Flavour::kRange:
      return {};
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
