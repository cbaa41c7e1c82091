// The functions: {{ name(arguments) }}.
#include <algorithm>
#include <ctime>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace butter::jinja {
namespace {

Result<Value> range(Call& call) {
  if (call[0] == nullptr) return fail(StatusCode::kInvalidArgument, "it needs one to three ints");
  BUTTER_ASSIGN(const int64_t first, call.integer(0, 0));
  BUTTER_ASSIGN(const int64_t second, call.integer(1, 0));
  BUTTER_ASSIGN(const int64_t step, call.integer(2, 1));
  const int64_t start = call[1] != nullptr ? first : 0;
  const int64_t stop = call[1] != nullptr ? second : first;
  if (step == 0) return fail(StatusCode::kInvalidArgument, "its step cannot be 0");
  // In the unsigned type, where the distance of any two ints fits.
  const bool up = step > 0;
  uint64_t distance = 0;
  if (up && stop > start) distance = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
  if (!up && start > stop) distance = static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t width = up ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = distance == 0 ? 0 : (distance - 1) / width + 1;
  if (count > static_cast<uint64_t>(call.runtime.limits().max_range)) {
    return fail(StatusCode::kLimit, "it has {} items, more than {} (max_range)", count,
                call.runtime.limits().max_range);
  }
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(count)));
  std::vector<Value> items;
  int64_t at = start;
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(Value(at));
    if (i + 1 < count) at += step;
  }
  BUTTER_ASSIGN(Value made, call.runtime.make(Sequence::Flavour::kRange, std::move(items)));
  int64_t(&bounds)[3] = made.as_sequence().range;
  bounds[0] = start;
  bounds[1] = stop;
  bounds[2] = step;
  return made;
}

// What dict() and namespace() are made of: a dict or pairs, then names.
Result<Dict> entries_of(Call& call) {
  const Arguments& arguments = call.arguments;
  Dict dict;
  if (arguments.positional.size() > 1) {
    return fail(StatusCode::kInvalidArgument, "it takes one dict at most, found {}",
                arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::kUndefined)) return fail(StatusCode::kInvalidArgument, "{}", *from.as_undefined().why);
    if (from.is(Kind::kDict)) {
      dict = from.as_dict();
    } else {
      BUTTER_ASSIGN(const std::vector<Value> pairs, items_of(call.runtime, from));
      for (const Value& pair : pairs) {
        BUTTER_ASSIGN(const std::vector<Value> parts, items_of(call.runtime, pair));
        if (parts.size() != 2)
          return fail(StatusCode::kInvalidArgument, "it takes pairs, found {} items", parts.size());
        BUTTER_TRY(dict.set(parts[0], parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) BUTTER_TRY(dict.set(Value::text(name), value));
  return dict;
}

Result<Value> dict(Call& call) {
  BUTTER_ASSIGN(Dict made, entries_of(call));
  return call.runtime.make(std::move(made));
}

Result<Value> make_namespace(Call& call) {
  BUTTER_ASSIGN(const Dict dict, entries_of(call));
  const size_t count = dict.entries().size();
  BUTTER_TRY(call.runtime.budget().use_bytes(sizeof(Namespace) + count * 64));
  BUTTER_TRY(call.runtime.budget().use_steps(static_cast<int64_t>(count * count)));
  const Value space = call.runtime.make_namespace();
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is(Kind::kText))
      return fail(StatusCode::kInvalidArgument, "its names must be str, found {}", key.type_name());
    space.as_namespace()->set(key.bytes(), value);
  }
  return space;
}

Result<Value> raise_exception(Call& call) {
  BUTTER_ASSIGN(const Text message, to_text(call.runtime, *call[0]));
  return fail(StatusCode::kInvalidArgument, "the template refuses: {}",
              std::string_view(message.bytes).substr(0, 2000));
}

// The time as strftime() writes it.
Result<Value> strftime_now(Call& call) {
  constexpr size_t kMaxFormat = 256;
  if (!call[0]->is(Kind::kText) || call[0]->bytes().size() > kMaxFormat) {
    return fail(StatusCode::kInvalidArgument, "its format must be a str of at most {} bytes", kMaxFormat);
  }
  // A character in front: an empty result is a result, and not the failure that strftime also reports as 0.
  const std::string format = "." + call[0]->bytes();
  char buffer[16 * kMaxFormat];
  const std::tm now = call.runtime.now();
  const size_t length = std::strftime(buffer, sizeof(buffer), format.c_str(), &now);
  if (length == 0) return fail(StatusCode::kLimit, "its result is longer than {} bytes", sizeof(buffer));
  return Value::text(std::string(buffer + 1, length - 1));
}

Result<Value> make_helper(Call& call, Helper::What what, std::vector<Value> items) {
  BUTTER_TRY(call.runtime.budget().use_bytes(sizeof(Helper) + items.size() * sizeof(Value)));
  auto helper = Helper::make(what, std::move(items));
  if (helper->depth > call.runtime.limits().max_value_depth) {
    return fail(StatusCode::kLimit, "its values nest deeper than {} (max_value_depth)",
                call.runtime.limits().max_value_depth);
  }
  return Value(std::move(helper));
}

Result<Value> joiner(Call& call) {
  return make_helper(call, Helper::What::kJoiner, {call[0] != nullptr ? *call[0] : Value::text(", ")});
}

Result<Value> cycler(Call& call) {
  const std::vector<Value>& items = call.arguments.positional;
  if (items.empty() || !call.arguments.named.empty())
    return fail(StatusCode::kInvalidArgument, "it needs values to give in turn, by position");
  return make_helper(call, Helper::What::kCycler, items);
}

constexpr Builtin kFunctions[] = {
    {"cycler", cycler, {}, 0, Passing::kAny},
    {"dict", dict, {}, 0, Passing::kAny},
    {"joiner", joiner, {"sep"}},
    {"namespace", make_namespace, {}, 0, Passing::kAny},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"range", range, {"start", "stop", "step"}, 1, Passing::kByPosition},
    {"strftime_now", strftime_now, {"format"}, 1},
};

// What jinja2 and the published templates' environment have besides.
constexpr std::string_view kUnsupported[] = {"lipsum"};

}  // namespace

const Builtin* find_function(std::string_view name) {
  for (const Builtin& row : kFunctions) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool is_unsupported_function(std::string_view name) {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
}

}  // namespace butter::jinja
