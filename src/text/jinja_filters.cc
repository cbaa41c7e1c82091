// The filters: {{ value | name(arguments) }}. Semantics are jinja2 3.1's with autoescape off, and tojson's
// are those of the environment in which chat templates are published.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "text/jinja_filter_tables.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text_operations.h"
#include "text/jinja_unicode.h"

namespace butter::jinja {
namespace {

using Flavour = Sequence::Flavour;

// ---- attributes: 'name', 3, 'author.name' ----

std::vector<Value> path_parts(const std::string& path) {
  std::vector<Value> parts;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool digits =
        !part.empty() && part[0] != '-' && stop == part.data() + part.size() && error == std::errc();
    parts.push_back(digits ? Value(number) : Value::text(part));
    begin = end + 1;
  }
  return parts;
}

Result<Value> walk_path(Runtime& runtime, Value item, const Value& path, const Value* otherwise) {
  std::vector<Value> parts;
  BUTTER_TRY(charge_key(runtime, path));
  if (path.is(Kind::kText)) {
    parts = path_parts(path.bytes());
  } else if (!path.is(Kind::kNone)) {
    parts.push_back(path);
  }
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(parts.size())));
  for (const Value& part : parts) {
    BUTTER_ASSIGN(Value next, get_item(runtime, item, part));
    item = next.is(Kind::kUndefined) && otherwise != nullptr ? *otherwise : std::move(next);
  }
  return item;
}

Result<Value> ignoring_case(Runtime& runtime, Value value) {
  if (!value.is(Kind::kText)) return value;
  BUTTER_ASSIGN(Text lower, with_case(runtime.budget(), value.as_text(), Case::kLower));
  return Value(std::move(lower));
}

// What to sort, compare or tell apart an item by.
Result<Value> key_of(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr) {
    BUTTER_ASSIGN(key, walk_path(runtime, item, *attribute, nullptr));
  }
  if (case_sensitive) return key;
  return ignoring_case(runtime, std::move(key));
}

// ---- sequences ----

Result<Value> join(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  Text separator;
  if (call[0] != nullptr) {
    BUTTER_ASSIGN(separator, to_text(call.runtime, *call[0]));
  }
  TextBuilder builder(call.runtime.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) builder.append(separator);
    Value item = items[i];
    if (call.given(1)) {
      BUTTER_ASSIGN(item, walk_path(call.runtime, items[i], *call[1], nullptr));
    }
    BUTTER_TRY(append_str(call.runtime, builder, item));
  }
  return call.runtime.make(builder);
}

Result<Value> length(Call& call) {
  BUTTER_TRY(call.runtime.budget().use_steps(
      1 + (call.input.is(Kind::kText) ? static_cast<int64_t>(call.input.bytes().size() / 16) : 0)));
  BUTTER_ASSIGN(const int64_t count, length_of(call.input));
  return Value(count);
}

Result<Value> first(Call& call) {
  if (call.input.is(Kind::kSequence) && call.input.as_sequence().flavour == Flavour::kGenerator) {
    Sequence& generator = call.input.as_sequence();
    if (generator.consumed < generator.items.size()) return generator.items[generator.consumed++];
    return Value::undefined("there is no first item in an empty sequence");
  }
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  if (items.empty()) return Value::undefined("there is no first item in an empty sequence");
  return items.front();
}

Status must_be_reversible(const Value& value) {
  if (value.is(Kind::kSequence) && value.as_sequence().flavour == Flavour::kGenerator) {
    return fail(StatusCode::kInvalidArgument, "a {} cannot be read from its end", value.type_name());
  }
  return {};
}

Result<Value> last(Call& call) {
  BUTTER_TRY(must_be_reversible(call.input));
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  if (items.empty()) return Value::undefined("there is no last item in an empty sequence");
  return items.back();
}

Result<Value> list(Call& call) {
  BUTTER_ASSIGN(std::vector<Value> items, items_of(call.runtime, call.input));
  return call.runtime.make_list(std::move(items));
}

Result<Value> reverse(Call& call) {
  if (call.input.is(Kind::kText)) {
    return get_slice(call.runtime, call.input, Value(), Value(), Value(int64_t{-1}));
  }
  BUTTER_ASSIGN(std::vector<Value> items, items_of(call.runtime, call.input));
  std::reverse(items.begin(), items.end());
  return call.runtime.make(Flavour::kGenerator, std::move(items));
}

Result<Value> sum(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  Value total = call[1] != nullptr ? *call[1] : Value(int64_t{0});
  if (total.is(Kind::kText)) return fail(StatusCode::kInvalidArgument, "it does not add up texts; join does");
  for (const Value& item : items) {
    Value value = item;
    if (call.given(0)) {
      BUTTER_ASSIGN(value, walk_path(call.runtime, item, *call[0], nullptr));
    }
    BUTTER_ASSIGN(total, binary(call.runtime, BinaryOp::kAdd, total, value));
  }
  return total;
}

Result<Value> extreme(Call& call, bool greatest) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  if (items.empty()) return Value::undefined("there is no extreme item in an empty sequence");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value* attribute = call.given(1) ? call[1] : nullptr;
    BUTTER_ASSIGN(Value key, key_of(call.runtime, items[i], attribute, call.truth(0, false)));
    bool better = i == 0;
    if (!better) {
      BUTTER_ASSIGN(better,
                    compare(call.runtime, greatest ? CompareOp::kGreater : CompareOp::kLess, key, best_key));
    }
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}
Result<Value> min(Call& call) {
  return extreme(call, false);
}
Result<Value> max(Call& call) {
  return extreme(call, true);
}

Result<Value> reordered(Runtime& runtime, const std::vector<Value>& items, const std::vector<Value>& keys,
                        bool reversed) {
  BUTTER_ASSIGN(const std::vector<size_t> order, sorted_order(runtime, keys, reversed));
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return runtime.make_list(std::move(sorted));
}

// Sort keys are lists, one element for each attribute ('age,name'), compared element by element.
Result<Value> sort(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  std::vector<Value> attributes;
  if (call.given(2) && call[2]->is(Kind::kText)) {
    const std::string& names = call[2]->bytes();
    for (size_t begin = 0; begin <= names.size();) {
      const size_t end = std::min(names.find(',', begin), names.size());
      attributes.push_back(Value::text(names.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    attributes.push_back(call.given(2) ? *call[2] : Value());
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Value& attribute : attributes) {
      BUTTER_ASSIGN(Value part, key_of(call.runtime, item, &attribute, call.truth(1, false)));
      key.push_back(std::move(part));
    }
    BUTTER_ASSIGN(Value made, call.runtime.make_list(std::move(key)));
    keys.push_back(std::move(made));
  }
  return reordered(call.runtime, items, keys, call.truth(0, false));
}

Result<Value> unique(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  std::unordered_set<std::string> seen;
  std::vector<Value> kept;
  for (const Value& item : items) {
    const Value* attribute = call.given(1) ? call[1] : nullptr;
    BUTTER_ASSIGN(const Value key, key_of(call.runtime, item, attribute, call.truth(0, false)));
    BUTTER_ASSIGN(std::string encoded, hash_key(key));
    BUTTER_TRY(call.runtime.budget().use_bytes(encoded.size()));
    if (seen.insert(std::move(encoded)).second) kept.push_back(item);
  }
  return call.runtime.make(Flavour::kGenerator, std::move(kept));
}

Result<Value> batch(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  BUTTER_ASSIGN(const int64_t size, call.integer(0, 0));
  std::vector<Value> batches;
  std::vector<Value> current;
  const auto close = [&]() -> Status {
    BUTTER_ASSIGN(Value made, call.runtime.make_list(std::move(current)));
    batches.push_back(std::move(made));
    current.clear();
    return {};
  };
  for (const Value& item : items) {
    if (static_cast<int64_t>(current.size()) == size) BUTTER_TRY(close());
    current.push_back(item);
  }
  if (!current.empty()) {
    const int64_t missing = size - static_cast<int64_t>(current.size());
    if (call.given(1) && missing > 0) {
      BUTTER_TRY(call.runtime.budget().use_steps(missing));
      BUTTER_TRY(call.runtime.budget().use_bytes(static_cast<size_t>(missing) * sizeof(Value)));
      current.insert(current.end(), static_cast<size_t>(missing), *call[1]);
    }
    BUTTER_TRY(close());
  }
  return call.runtime.make(Flavour::kGenerator, std::move(batches));
}

// So many lists of about the same length; the first ones are longer by one.
Result<Value> slice(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  BUTTER_ASSIGN(const int64_t slices, call.integer(0, 0));
  if (slices == 0) return fail(StatusCode::kInvalidArgument, "it makes one list or more");
  if (slices < 0) return call.runtime.make(Flavour::kGenerator, {});
  BUTTER_TRY(call.runtime.budget().use_steps(slices));
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> lists;
  for (int64_t i = 0, begin = 0; i < slices; ++i) {
    const bool is_longer = i < size % slices;
    const int64_t end = begin + size / slices + (is_longer ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (call.given(1) && !is_longer) part.push_back(*call[1]);
    BUTTER_ASSIGN(Value list, call.runtime.make_list(std::move(part)));
    lists.push_back(std::move(list));
    begin = end;
  }
  return call.runtime.make(Flavour::kGenerator, std::move(lists));
}

// Items by what they have in common: pairs of that and of their list, sorted.
Result<Value> groupby(Call& call) {
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  const Value* const otherwise = call.given(1) ? call[1] : nullptr;
  std::vector<Value> labels, keys;
  for (const Value& item : items) {
    BUTTER_ASSIGN(Value label, walk_path(call.runtime, item, *call[0], otherwise));
    Value key = label;
    if (!call.truth(2, false)) {
      BUTTER_ASSIGN(key, ignoring_case(call.runtime, label));
    }
    labels.push_back(std::move(label));
    keys.push_back(std::move(key));
  }
  BUTTER_ASSIGN(const std::vector<size_t> order, sorted_order(call.runtime, keys, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> group;
    size_t end = begin;
    for (bool same = true; same && end < order.size();) {
      group.push_back(items[order[end++]]);
      if (end == order.size()) break;
      BUTTER_ASSIGN(same, equal(call.runtime, keys[order[end]], keys[order[begin]]));
    }
    BUTTER_ASSIGN(Value list, call.runtime.make_list(std::move(group)));
    BUTTER_ASSIGN(Value pair, call.runtime.make_tuple({labels[order[begin]], std::move(list)}));
    pair.as_sequence().is_group = true;
    groups.push_back(std::move(pair));
    begin = end;
  }
  return call.runtime.make_list(std::move(groups));
}

// The attribute, and never an item of that name.
Result<Value> attr(Call& call) {
  if (call.input.is(Kind::kUndefined))
    return fail(StatusCode::kInvalidArgument, "{}", *call.input.as_undefined().why);
  if (!call[0]->is(Kind::kText))
    return fail(StatusCode::kInvalidArgument, "the name of an attribute is a str, found {}",
                call[0]->type_name());
  return get_own_attribute(call.runtime, call.input, call[0]->bytes());
}

// ---- filters that apply filters and tests ----

const Value* named(const Arguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<ptrdiff_t>(count));
  return rest;
}

Result<Value> map(Call& call) {
  const Arguments& arguments = call.arguments;
  const Value* attribute = named(arguments, "attribute");
  std::vector<Value> mapped;
  if (!call.input.truthy()) return call.runtime.make(Flavour::kGenerator, {});
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  if (arguments.positional.empty() && attribute != nullptr) {
    const Value* otherwise = named(arguments, "default");
    if (arguments.named.size() > (otherwise != nullptr ? 2u : 1u)) {
      return fail(StatusCode::kInvalidArgument, "it takes attribute and default, and nothing else by name");
    }
    if (otherwise != nullptr && otherwise->is(Kind::kNone)) otherwise = nullptr;
    for (const Value& item : items) {
      BUTTER_ASSIGN(Value value, walk_path(call.runtime, item, *attribute, otherwise));
      mapped.push_back(std::move(value));
    }
    return call.runtime.make(Flavour::kGenerator, std::move(mapped));
  }
  if (arguments.positional.empty()) {
    return fail(StatusCode::kInvalidArgument, "it needs the name of a filter, or attribute=");
  }
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : items) {
    BUTTER_ASSIGN(Value value, call_filter(call.runtime, arguments.positional[0], item, rest));
    mapped.push_back(std::move(value));
  }
  return call.runtime.make(Flavour::kGenerator, std::move(mapped));
}

Result<Value> select_where(Call& call, bool wanted, bool by_attribute) {
  const Arguments& arguments = call.arguments;
  if (!call.input.truthy()) return call.runtime.make(Flavour::kGenerator, {});
  const size_t leading = by_attribute ? 1 : 0;
  if (arguments.positional.size() < leading) {
    return fail(StatusCode::kInvalidArgument, "it needs the name of an attribute");
  }
  const bool has_test = arguments.positional.size() > leading;
  const Arguments rest = has_test ? without_first(arguments, leading + 1) : Arguments{};
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(call.runtime, call.input));
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      BUTTER_ASSIGN(subject, walk_path(call.runtime, item, arguments.positional[0], nullptr));
    }
    bool passes = subject.truthy();
    if (has_test) {
      BUTTER_ASSIGN(const Value result,
                    call_test(call.runtime, arguments.positional[leading], subject, rest));
      passes = result.truthy();
    }
    if (passes == wanted) kept.push_back(item);
  }
  return call.runtime.make(Flavour::kGenerator, std::move(kept));
}
Result<Value> select(Call& call) {
  return select_where(call, true, false);
}
Result<Value> reject(Call& call) {
  return select_where(call, false, false);
}
Result<Value> selectattr(Call& call) {
  return select_where(call, true, true);
}
Result<Value> rejectattr(Call& call) {
  return select_where(call, false, true);
}

// ---- dicts ----

Result<std::vector<Value>> pairs_of(Runtime& runtime, const Dict& dict) {
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(dict.entries().size())));
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries()) {
    BUTTER_ASSIGN(Value pair, runtime.make_tuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Result<Value> items(Call& call) {
  if (call.input.is(Kind::kUndefined)) return call.runtime.make(Flavour::kGenerator, {});
  if (!call.input.is(Kind::kDict)) {
    return fail(StatusCode::kInvalidArgument, "it takes a dict, found {}", call.input.type_name());
  }
  BUTTER_ASSIGN(std::vector<Value> pairs, pairs_of(call.runtime, call.input.as_dict()));
  return call.runtime.make(Flavour::kGenerator, std::move(pairs));
}

Result<Value> dictsort(Call& call) {
  if (!call.input.is(Kind::kDict)) {
    return fail(StatusCode::kInvalidArgument, "it takes a dict, found {}", call.input.type_name());
  }
  bool by_value = false;
  if (call[1] != nullptr) {
    const bool known = call[1]->is(Kind::kText) && (call[1]->bytes() == "key" || call[1]->bytes() == "value");
    if (!known) return fail(StatusCode::kInvalidArgument, "it sorts by 'key' or by 'value'");
    by_value = call[1]->bytes() == "value";
  }
  BUTTER_ASSIGN(const std::vector<Value> pairs, pairs_of(call.runtime, call.input.as_dict()));
  std::vector<Value> keys;
  for (const Value& pair : pairs) {
    BUTTER_ASSIGN(Value key, key_of(call.runtime, pair.as_sequence().items[by_value ? 1 : 0], nullptr,
                                    call.truth(0, false)));
    keys.push_back(std::move(key));
  }
  return reordered(call.runtime, pairs, keys, call.truth(2, false));
}

// ---- numbers ----

Result<Value> absolute(Call& call) {
  if (call.input.is(Kind::kFloat)) return Value(std::fabs(call.input.as_float()));
  if (call.input.is_integral() && call.input.as_int() >= 0) return Value(call.input.as_int());
  return negate(call.input);
}

// int(text, base); nullopt where Python raises ValueError.
Result<std::optional<int64_t>> parse_integer(std::string_view text, int64_t base) {
  const Span span = stripped(text, true, true);
  text = text.substr(span.begin, span.end - span.begin);
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](char letter, int64_t its_base) {
    return (base == 0 || base == its_base) && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  bool prefixed = true;
  if (prefix('x', 16)) {
    base = 16;
  } else if (prefix('o', 8)) {
    base = 8;
  } else if (prefix('b', 2)) {
    base = 2;
  } else {
    prefixed = false;
  }
  if (prefixed) text.remove_prefix(text[2] == '_' ? 3 : 2);
  const bool decimal_by_default = base == 0;
  if (base == 0) base = 10;
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') return std::nullopt;
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  if (decimal_by_default && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos)
    return std::nullopt;
  if (negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    return fail(StatusCode::kLimit, "the int needs more than 64 bits");
  }
  return value;
}

// float(text); nullopt where Python raises ValueError.
std::optional<double> parse_float(std::string_view text) {
  const Span span = stripped(text, true, true);
  text = text.substr(span.begin, span.end - span.begin);
  if (!text.empty() && text[0] == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text[0] == '-') return std::nullopt;
  }
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](size_t j) { return j < text.size() && text[j] >= '0' && text[j] <= '9'; };
    if (text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (text[i] == '(') return std::nullopt;
    digits += text[i];
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  // Too large or too small: strtod says which.
  if (error == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
  return value;
}

Result<std::optional<int64_t>> integer_of(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (!(std::fabs(number) < 9223372036854775808.0)) {
    return fail(StatusCode::kLimit, "the int needs more than 64 bits");
  }
  return static_cast<int64_t>(number);
}

Result<Value> integer(Call& call) {
  const Value otherwise = call[0] != nullptr ? *call[0] : Value(int64_t{0});
  BUTTER_ASSIGN(const int64_t base, call.integer(1, 10));
  std::optional<int64_t> value;
  BUTTER_TRY(charge_key(call.runtime, call.input));
  if (call.input.is_integral()) return Value(call.input.as_int());
  if (call.input.is(Kind::kUndefined))
    return fail(StatusCode::kInvalidArgument, "{}", *call.input.as_undefined().why);
  if (call.input.is(Kind::kFloat)) {
    if (std::isinf(call.input.as_float())) return fail(StatusCode::kInvalidArgument, "infinity is no int");
    BUTTER_ASSIGN(value, integer_of(call.input.as_float()));
  } else if (call.input.is(Kind::kText)) {
    BUTTER_ASSIGN(value, parse_integer(call.input.bytes(), base));
    if (!value) {
      if (const std::optional<double> number = parse_float(call.input.bytes())) {
        BUTTER_ASSIGN(value, integer_of(*number));
      }
    }
  }
  return value ? Value(*value) : otherwise;
}

Result<Value> floating(Call& call) {
  BUTTER_TRY(charge_key(call.runtime, call.input));
  if (call.input.is_number()) return Value(call.input.as_float());
  if (call.input.is(Kind::kUndefined))
    return fail(StatusCode::kInvalidArgument, "{}", *call.input.as_undefined().why);
  if (call.input.is(Kind::kText)) {
    if (const std::optional<double> number = parse_float(call.input.bytes())) return Value(*number);
  }
  return call[0] != nullptr ? *call[0] : Value(0.0);
}

double round_half_even(double number, int64_t precision) {
  if (!std::isfinite(number) || precision > 330) return number;
  if (precision < 0) {
    if (precision < -308) return std::copysign(0.0, number);
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(number / scale) * scale;
  }
  // The C library rounds the exact decimal value, half to even, as Python's round() does.
  char buffer[800];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), number);
  return std::strtod(buffer, nullptr);
}

Result<Value> round_integer(int64_t number, int64_t precision) {
  if (precision >= 0) return Value(number);
  if (precision < -18) return Value(int64_t{0});
  int64_t scale = 1;
  for (int64_t i = 0; i < -precision; ++i) scale *= 10;
  const int64_t rest = ((number % scale) + scale) % scale;
  const int64_t low = number - rest;
  const bool low_is_even = (low / scale) % 2 == 0;
  const bool up = rest > scale - rest || (rest == scale - rest && !low_is_even);
  int64_t result = low;
  if (up && __builtin_add_overflow(low, scale, &result)) {
    return fail(StatusCode::kLimit, "the int needs more than 64 bits");
  }
  return Value(result);
}

Result<Value> round(Call& call) {
  if (!call.input.is_number()) {
    return fail(StatusCode::kInvalidArgument, "it rounds numbers, found {}", call.input.type_name());
  }
  BUTTER_ASSIGN(const int64_t precision, call.integer(0, 0));
  const std::string method = call[1] == nullptr ? "common" : call[1]->is(Kind::kText) ? call[1]->bytes() : "";
  if (method == "common") {
    if (call.input.is_integral()) return round_integer(call.input.as_int(), precision);
    return Value(round_half_even(call.input.as_float(), precision));
  }
  if (method != "ceil" && method != "floor") {
    return fail(StatusCode::kInvalidArgument, "the method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.input.as_float() * scale;
  if (!std::isfinite(scaled)) return fail(StatusCode::kInvalidArgument, "the number is too large to round");
  // 0.0 added: Python goes through an int, which has no negative zero.
  return Value(((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / scale);
}

// ---- the rest ----

Result<Value> otherwise(Call& call) {
  const bool missing = call.input.is(Kind::kUndefined) || (call.truth(1, false) && !call.input.truthy());
  if (!missing) return call.input;
  return call[0] != nullptr ? *call[0] : Value::text("");
}

Result<Value> tojson(Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.truth(0, false);
  style.sort_keys = call.truth(3, false);
  if (call.given(1)) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    if (call[1]->is(Kind::kText)) {
      style.indent = call[1]->bytes();
    } else {
      BUTTER_ASSIGN(const int64_t width, call.integer(1, 0));
      if (width > 1000) return fail(StatusCode::kLimit, "an indent of {} is more than 1000", width);
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (call.given(2)) {
    const bool pair = call[2]->is(Kind::kSequence) && call[2]->as_sequence().items.size() == 2 &&
                      call[2]->as_sequence().items[0].is(Kind::kText) &&
                      call[2]->as_sequence().items[1].is(Kind::kText);
    if (!pair) return fail(StatusCode::kInvalidArgument, "separators must be a pair of str");
    style.item_separator = call[2]->as_sequence().items[0].bytes();
    style.key_separator = call[2]->as_sequence().items[1].bytes();
  }
  TextBuilder builder(call.runtime.budget());
  BUTTER_TRY(append_json(call.runtime, builder, call.input, style));
  return call.runtime.make(builder);
}

constexpr Builtin kFilters[] = {
    {"abs", absolute},
    {"attr", attr, {"name"}, 1},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"count", length},
    {"d", otherwise, {"default_value", "boolean"}},
    {"default", otherwise, {"default_value", "boolean"}},
    {"dictsort", dictsort, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"float", floating, {"default"}},
    {"groupby", groupby, {"attribute", "default", "case_sensitive"}, 1},
    {"int", integer, {"default", "base"}},
    {"items", items},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map, {}, 0, Passing::kAny},
    {"max", max, {"case_sensitive", "attribute"}},
    {"min", min, {"case_sensitive", "attribute"}},
    {"reject", reject, {}, 0, Passing::kAny},
    {"rejectattr", rejectattr, {}, 0, Passing::kAny},
    {"reverse", reverse},
    {"round", round, {"precision", "method"}},
    {"select", select, {}, 0, Passing::kAny},
    {"selectattr", selectattr, {}, 0, Passing::kAny},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"tojson", tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const std::span<const Builtin> table : {std::span<const Builtin>(kFilters), text_filters()}) {
    const auto row = std::ranges::find(table, name, &Builtin::name);
    if (row != table.end()) return &*row;
  }
  return nullptr;
}

}  // namespace butter::jinja
