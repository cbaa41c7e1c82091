#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja_loop.h"
#include "text/jinja_print.h"
#include "text/jinja_text_operations.h"

namespace butter::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

Status overflow(BinaryOp op) {
  return fail(StatusCode::kLimit, "the int result of '{}' needs more than 64 bits",
              kSymbols[static_cast<int>(op)]);
}

Status undefined_error(const Value& value) {
  return fail(StatusCode::kInvalidArgument, "{}", *value.as_undefined().why);
}

Status wrong_types(std::string_view symbol, const Value& left, const Value& right) {
  if (left.is(Kind::kUndefined)) return undefined_error(left);
  if (right.is(Kind::kUndefined)) return undefined_error(right);
  return fail(StatusCode::kInvalidArgument, "'{}' does not take {} and {}", symbol, left.type_name(),
              right.type_name());
}

// ---- arithmetic ----

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

double floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      return fail(overflow(BinaryOp::kPower).error());
    exponent >>= 1;
    if (exponent == 0) return Value(result);
    if (__builtin_mul_overflow(base, base, &base)) return fail(overflow(BinaryOp::kPower).error());
  }
}

Result<Value> integers(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflowed = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflowed = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSubtract:
      overflowed = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMultiply:
      overflowed = __builtin_mul_overflow(a, b, &result);
      break;
    // The wider type holds both exactly, so that the quotient is rounded once, as Python does it.
    case BinaryOp::kDivide:
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::kFloorDivide:
      if (b == -1) {
        overflowed = __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        result = (a - floor_modulo(a, b)) / b;
      }
      break;
    case BinaryOp::kModulo:
      result = floor_modulo(a, b);
      break;
    case BinaryOp::kPower:
      return integer_power(a, b);
  }
  if (overflowed) return fail(overflow(op).error());
  return Value(result);
}

Result<Value> floats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kDivide:
      return Value(a / b);
    case BinaryOp::kFloorDivide:
      return Value(floor_divide(a, b));
    case BinaryOp::kModulo:
      return Value(floor_modulo(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (a < 0 && std::floor(b) != b && std::isfinite(a) && std::isfinite(b)) {
    return fail(StatusCode::kUnsupported, "a negative number to a power that is no int is a complex number");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return fail(StatusCode::kLimit, "the float result of '**' is too large");
  }
  return Value(result);
}

Result<Value> numbers(BinaryOp op, const Value& left, const Value& right) {
  const bool divides = op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && right.as_float() == 0) {
    return fail(StatusCode::kInvalidArgument, "'{}' by zero", kSymbols[static_cast<int>(op)]);
  }
  if (op == BinaryOp::kPower && left.as_float() == 0 && right.as_float() < 0) {
    return fail(StatusCode::kInvalidArgument, "zero to a negative power");
  }
  const bool integral = left.is_integral() && right.is_integral();
  if (integral && !(op == BinaryOp::kPower && right.as_int() < 0))
    return integers(op, left.as_int(), right.as_int());
  return floats(op, left.as_float(), right.as_float());
}

// ---- texts and lists ----

Result<Value> add_texts(Runtime& runtime, const Text& left, const Text& right) {
  TextBuilder builder(runtime.budget());
  const bool markup = left.markup || right.markup;
  for (const Text* part : {&left, &right}) {
    if (markup && !part->markup) {
      BUTTER_ASSIGN(const Text escaped, escape_text(runtime, *part));
      builder.append(escaped);
    } else {
      builder.append(*part);
    }
  }
  BUTTER_TRY(runtime.budget().use_bytes(sizeof(Text)));
  BUTTER_ASSIGN(Text text, builder.finish());
  text.markup = markup;
  return Value(std::move(text));
}

Result<Value> add_sequences(Runtime& runtime, const Sequence& left, const Sequence& right) {
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(left.items.size() + right.items.size())));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return runtime.make(left.flavour, std::move(items));
}

Result<Value> repeat(Runtime& runtime, const Value& value, int64_t times) {
  const size_t unit =
      value.is(Kind::kText) ? value.bytes().size() : value.as_sequence().items.size() * sizeof(Value);
  if (times > 0 && unit > 0 && static_cast<uint64_t>(times) > runtime.limits().max_repeated_bytes / unit) {
    return fail(StatusCode::kLimit, "a {} times {} takes more than {} bytes (max_repeated_bytes)",
                value.type_name(), times, runtime.limits().max_repeated_bytes);
  }
  if (unit == 0) times = 0;
  if (value.is(Kind::kText)) {
    TextBuilder builder(runtime.budget());
    for (int64_t i = 0; i < times; ++i) builder.append(value.as_text());
    BUTTER_ASSIGN(Text text, builder.finish());
    text.markup = value.as_text().markup;
    return Value(std::move(text));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.as_sequence().items.begin(), value.as_sequence().items.end());
  }
  return runtime.make(value.as_sequence().flavour, std::move(items));
}

bool is_repeatable(const Value& value) {
  if (value.is(Kind::kText)) return true;
  return value.is(Kind::kSequence) && (value.as_sequence().flavour == Sequence::Flavour::kList ||
                                       value.as_sequence().flavour == Sequence::Flavour::kTuple);
}

bool can_concatenate(const Value& left, const Value& right) {
  return is_repeatable(left) && is_repeatable(right) && left.is(Kind::kSequence) &&
         right.is(Kind::kSequence) && left.as_sequence().flavour == right.as_sequence().flavour;
}

// ---- comparison ----

// -1, 0, 1; nullopt if one is not a number (nan). Exact also between ints and floats.
std::optional<int> order_numbers(const Value& left, const Value& right) {
  const auto exact = [](const Value& v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.as_float()) : static_cast<long double>(v.as_int());
  };
  const long double a = exact(left);
  const long double b = exact(right);
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return a < b ? -1 : a > b ? 1 : 0;
}

Result<bool> equal_sequences(Runtime& runtime, const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  if (left.flavour != right.flavour) return false;
  if (left.flavour != Sequence::Flavour::kList && left.flavour != Sequence::Flavour::kTuple &&
      left.flavour != Sequence::Flavour::kRange) {
    if (left.flavour == Sequence::Flavour::kGenerator || left.flavour == Sequence::Flavour::kValues)
      return false;
    return fail(StatusCode::kUnsupported, "dict views cannot be compared; make them lists first");
  }
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    BUTTER_ASSIGN(const bool same, equal(runtime, left.items[i], right.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& runtime, const Dict& left, const Dict& right) {
  if (&left == &right) return true;
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    BUTTER_ASSIGN(const Value* other, right.find(key));
    if (other == nullptr) return false;
    BUTTER_ASSIGN(const bool same, equal(runtime, value, *other));
    if (!same) return false;
  }
  return true;
}

Result<bool> less_sequences(Runtime& runtime, const Sequence& left, const Sequence& right) {
  const size_t common = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < common; ++i) {
    BUTTER_ASSIGN(const bool same, equal(runtime, left.items[i], right.items[i]));
    if (!same) return less(runtime, left.items[i], right.items[i]);
  }
  return left.items.size() < right.items.size();
}

// left < right, or left > right if `symbol` says so: the same code with the operands exchanged.
Result<bool> ordered(Runtime& runtime, std::string_view symbol, const Value& left, const Value& right,
                     bool or_equal) {
  DepthGuard guard(runtime.depth(), runtime.limits().max_eval_depth);
  if (!guard.ok()) return fail(runtime.too_deep().error());
  BUTTER_TRY(runtime.budget().use_steps(1));
  if (left.is_number() && right.is_number()) {
    const std::optional<int> order = order_numbers(left, right);
    return order.has_value() && (*order < 0 || (or_equal && *order == 0));
  }
  if (left.is(Kind::kText) && right.is(Kind::kText)) {
    // The order of UTF-8 bytes is the order of code points.
    BUTTER_TRY(charge_key(runtime, left));
    const int order = left.bytes().compare(right.bytes());
    return order < 0 || (or_equal && order == 0);
  }
  if (can_concatenate(left, right)) {
    if (or_equal) {
      BUTTER_ASSIGN(const bool greater, less_sequences(runtime, right.as_sequence(), left.as_sequence()));
      return !greater;
    }
    return less_sequences(runtime, left.as_sequence(), right.as_sequence());
  }
  return fail(wrong_types(symbol, left, right).error());
}

// ---- subscripts ----

std::string shown(std::string_view name) {
  return std::string(name.substr(0, 100));
}

Value no_such(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", value.type_name(), shown(name)));
}

Result<std::optional<Value>> find_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is(Kind::kLoop)) {
    BUTTER_ASSIGN(std::optional<Value> found, value.as_loop().attribute(name));
    if (found) return found;
  }
  if (value.is(Kind::kNamespace)) {
    BUTTER_TRY(
        runtime.budget().use_steps(static_cast<int64_t>(value.as_namespace()->attributes.size() / 16)));
    if (const Value* found = value.as_namespace()->find(name)) return *found;
  }
  if (value.is(Kind::kSequence)) {
    if (std::optional<Value> found = value.as_sequence().attribute(name)) return found;
  }
  if (value.is(Kind::kHelper)) {
    if (std::optional<Value> found = value.as_helper().attribute(name)) return found;
  }
  if (const Builtin* row = find_method(value, name)) {
    return Value(std::shared_ptr<const Method>(std::make_shared<Method>(Method{value, row})));
  }
  if (is_unsupported_method(value, name)) {
    return fail(StatusCode::kUnsupported, "the method or attribute '{}' of {} is not supported", name,
                value.type_name());
  }
  return std::nullopt;
}

// Python's place of index i in a sequence of that many; nullopt if outside.
std::optional<size_t> place_of(int64_t i, size_t count) {
  const int64_t size = static_cast<int64_t>(count);
  if (i < -size || i >= size) return std::nullopt;
  return static_cast<size_t>(i < 0 ? i + size : i);
}

// The item, or nullopt where Python raises LookupError or TypeError.
Result<std::optional<Value>> find_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) {
    BUTTER_TRY(charge_key(runtime, key));
    const auto found = value.as_dict().find(key);
    // A list as key is a TypeError in Python, which jinja2 turns into undefined.
    if (!found || *found == nullptr) return std::nullopt;
    return **found;
  }
  if (!key.is_integral()) return std::nullopt;
  if (value.is(Kind::kSequence) && value.as_sequence().is_indexable()) {
    const auto place = place_of(key.as_int(), value.as_sequence().items.size());
    if (!place) return std::nullopt;
    return value.as_sequence().items[*place];
  }
  if (value.is(Kind::kText)) {
    BUTTER_TRY(runtime.budget().use_steps(1 + static_cast<int64_t>(value.bytes().size() / 16)));
    const auto place = place_of(key.as_int(), count_code_points(value.bytes()));
    if (!place) return std::nullopt;
    size_t offset = 0;
    for (size_t i = 0; i < *place; ++i) offset += code_point_at(value.bytes(), offset).length;
    BUTTER_ASSIGN(Value c, runtime.make_slice(value.as_text(), offset,
                                              offset + code_point_at(value.bytes(), offset).length));
    return c;
  }
  return std::nullopt;
}

struct SlicePlan {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t count;
};

Result<SlicePlan> plan_slice(int64_t size, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is_integral() && !part->is(Kind::kNone)) {
      return fail(StatusCode::kInvalidArgument, "a slice is made of ints or none, found {}",
                  part->type_name());
    }
  }
  const int64_t stride = step.is(Kind::kNone) ? 1 : step.as_int();
  if (stride == 0) return fail(StatusCode::kInvalidArgument, "a slice cannot have step 0");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto clip = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::kNone)) return otherwise;
    const int64_t i = v.as_int();
    if (i >= 0) return std::min(i, high);
    return i < -size ? low : std::max(i + size, low);
  };
  const int64_t first = clip(start, stride > 0 ? low : high);
  const int64_t end = clip(stop, stride > 0 ? high : low);
  const uint64_t distance = stride > 0 ? static_cast<uint64_t>(std::max<int64_t>(end - first, 0))
                                       : static_cast<uint64_t>(std::max<int64_t>(first - end, 0));
  const uint64_t width =
      stride > 0 ? static_cast<uint64_t>(stride) : uint64_t{0} - static_cast<uint64_t>(stride);
  const uint64_t count = distance == 0 ? 0 : (distance - 1) / width + 1;
  return SlicePlan{first, end, stride, static_cast<int64_t>(count)};
}

Result<Value> slice_text(Runtime& runtime, const Text& text, const SlicePlan& plan,
                         const std::vector<size_t>& offsets) {
  if (plan.step == 1 || plan.count == 0) {
    const size_t begin = plan.count == 0 ? 0 : offsets[static_cast<size_t>(plan.start)];
    const size_t end = plan.count == 0 ? 0 : offsets[static_cast<size_t>(plan.start + plan.count)];
    return runtime.make_slice(text, begin, end);
  }
  TextBuilder builder(runtime.budget());
  for (int64_t i = 0, at = plan.start; i < plan.count; ++i, at += plan.step) {
    builder.append(text, offsets[static_cast<size_t>(at)], offsets[static_cast<size_t>(at) + 1]);
    if (i + 1 == plan.count) break;
  }
  BUTTER_ASSIGN(Text result, builder.finish());
  result.markup = text.markup;
  return Value(std::move(result));
}

}  // namespace

Result<Value> binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return numbers(op, left, right);
  if (op == BinaryOp::kAdd && left.is(Kind::kText) && right.is(Kind::kText)) {
    return add_texts(runtime, left.as_text(), right.as_text());
  }
  if (op == BinaryOp::kAdd && can_concatenate(left, right)) {
    return add_sequences(runtime, left.as_sequence(), right.as_sequence());
  }
  if (op == BinaryOp::kMultiply && is_repeatable(left) && right.is_integral()) {
    return repeat(runtime, left, right.as_int());
  }
  if (op == BinaryOp::kMultiply && is_repeatable(right) && left.is_integral()) {
    return repeat(runtime, right, left.as_int());
  }
  if (op == BinaryOp::kModulo && left.is(Kind::kText)) {
    return format_text(runtime, left, right);
  }
  return fail(wrong_types(kSymbols[static_cast<int>(op)], left, right).error());
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value(-value.as_float());
  if (value.is(Kind::kUndefined)) return fail(undefined_error(value).error());
  if (!value.is_integral())
    return fail(StatusCode::kInvalidArgument, "'-' does not take {}", value.type_name());
  return integers(BinaryOp::kSubtract, 0, value.as_int());
}

Result<Value> unary_plus(const Value& value) {
  if (value.is(Kind::kFloat)) return value;
  if (value.is(Kind::kUndefined)) return fail(undefined_error(value).error());
  if (!value.is_integral())
    return fail(StatusCode::kInvalidArgument, "'+' does not take {}", value.type_name());
  return Value(value.as_int());
}

Result<bool> equal(Runtime& runtime, const Value& left, const Value& right) {
  DepthGuard guard(runtime.depth(), runtime.limits().max_eval_depth);
  if (!guard.ok()) return fail(runtime.too_deep().error());
  BUTTER_TRY(runtime.budget().use_steps(1));
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kSequence:
      return equal_sequences(runtime, left.as_sequence(), right.as_sequence());
    case Kind::kDict:
      return equal_dicts(runtime, left.as_dict(), right.as_dict());
    default:
      BUTTER_TRY(charge_key(runtime, left));
      return left.is_same(right);
  }
}

Result<bool> less(Runtime& runtime, const Value& left, const Value& right) {
  return ordered(runtime, "<", left, right, false);
}

Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  const auto negated = [](Result<bool> result) -> Result<bool> {
    if (!result) return result;
    return !*result;
  };
  switch (op) {
    case CompareOp::kEqual:
      return equal(runtime, left, right);
    case CompareOp::kNotEqual:
      return negated(equal(runtime, left, right));
    case CompareOp::kLess:
      return ordered(runtime, "<", left, right, false);
    case CompareOp::kLessEqual:
      return ordered(runtime, "<=", left, right, true);
    case CompareOp::kGreater:
      return ordered(runtime, ">", right, left, false);
    case CompareOp::kGreaterEqual:
      return ordered(runtime, ">=", right, left, true);
    case CompareOp::kIn:
      return contains(runtime, right, left);
    case CompareOp::kNotIn:
      return negated(contains(runtime, right, left));
  }
  return false;
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is(Kind::kText)) {
    if (!item.is(Kind::kText)) {
      return fail(StatusCode::kInvalidArgument, "'in' looks for a str in a str, found {}", item.type_name());
    }
    BUTTER_TRY(charge_search(runtime, container.bytes(), item.bytes()));
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    BUTTER_TRY(charge_key(runtime, item));
    BUTTER_ASSIGN(const Value* found, container.as_dict().find(item));
    return found != nullptr;
  }
  if (container.is(Kind::kUndefined)) return false;
  if (!container.is(Kind::kSequence)) {
    return fail(StatusCode::kInvalidArgument, "'in' does not look into a {}", container.type_name());
  }
  BUTTER_ASSIGN(const std::vector<Value> items, items_of(runtime, container));
  for (const Value& other : items) {
    // Identity comes first, as in Python: nan is in [nan].
    if (item.is(Kind::kFloat) && item.is_same(other)) return true;
    BUTTER_ASSIGN(const bool same, equal(runtime, item, other));
    if (same) return true;
  }
  return false;
}

Status charge_key(Runtime& runtime, const Value& key) {
  return runtime.budget().use_steps(key.is(Kind::kText) ? static_cast<int64_t>(key.bytes().size() / 64) : 0);
}

Result<std::vector<Value>> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kSequence: {
      Sequence& sequence = value.as_sequence();
      items.assign(sequence.items.begin() + static_cast<ptrdiff_t>(sequence.consumed), sequence.items.end());
      if (sequence.flavour == Sequence::Flavour::kGenerator) sequence.consumed = sequence.items.size();
      break;
    }
    case Kind::kDict:
      for (const auto& [key, item] : value.as_dict().entries()) items.push_back(key);
      break;
    case Kind::kText: {
      const std::string& bytes = value.bytes();
      for (size_t i = 0; i < bytes.size();) {
        const size_t length = code_point_at(bytes, i).length;
        BUTTER_ASSIGN(Value c, runtime.make_slice(value.as_text(), i, i + length));
        items.push_back(std::move(c));
        i += length;
      }
      break;
    }
    default:
      return fail(StatusCode::kInvalidArgument, "a {} cannot be iterated", value.type_name());
  }
  BUTTER_TRY(runtime.budget().use_steps(static_cast<int64_t>(items.size())));
  return items;
}

Result<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<int64_t>(count_code_points(value.bytes()));
    case Kind::kDict:
      return static_cast<int64_t>(value.as_dict().entries().size());
    case Kind::kLoop:
      return value.as_loop().length();
    case Kind::kSequence:
      if (value.as_sequence().flavour == Sequence::Flavour::kGenerator) break;
      return static_cast<int64_t>(value.as_sequence().items.size());
    default:
      break;
  }
  return fail(StatusCode::kInvalidArgument, "a {} has no length", value.type_name());
}

Result<Value> get_own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (!name.starts_with('_')) {
    BUTTER_ASSIGN(std::optional<Value> found, find_attribute(runtime, value, name));
    if (found) return *std::move(found);
  }
  return no_such(value, name);
}

Result<Value> get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) return fail(undefined_error(value).error());
  if (!name.starts_with('_')) {
    BUTTER_ASSIGN(std::optional<Value> found, find_attribute(runtime, value, name));
    if (found) return *std::move(found);
  }
  if (value.is(Kind::kDict)) {
    if (const Value* item = value.as_dict().find(name)) return *item;
  }
  return no_such(value, name);
}

Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) return fail(undefined_error(value).error());
  BUTTER_ASSIGN(std::optional<Value> item, find_item(runtime, value, key));
  if (item) return *std::move(item);
  if (!key.is(Kind::kText)) {
    return Value::undefined(key.is_integral()
                                ? fmt::format("{} object has no element {}", value.type_name(), key.as_int())
                                : fmt::format("{} object has no element of that key", value.type_name()));
  }
  if (!key.bytes().starts_with('_')) {
    BUTTER_ASSIGN(std::optional<Value> found, find_attribute(runtime, value, key.bytes()));
    if (found) return *std::move(found);
  }
  return no_such(value, key.bytes());
}

Result<Value> get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                        const Value& step) {
  if (value.is(Kind::kUndefined)) return fail(undefined_error(value).error());
  if (value.is(Kind::kText)) {
    BUTTER_TRY(runtime.budget().use_steps(1 + static_cast<int64_t>(value.bytes().size() / 16)));
    const std::vector<size_t> offsets = code_point_offsets(value.bytes());
    BUTTER_ASSIGN(const SlicePlan plan,
                  plan_slice(static_cast<int64_t>(offsets.size()) - 1, start, stop, step));
    return slice_text(runtime, value.as_text(), plan, offsets);
  }
  if (!value.is(Kind::kSequence) || !value.as_sequence().is_indexable()) {
    return fail(StatusCode::kInvalidArgument, "a {} cannot be sliced", value.type_name());
  }
  const Sequence& sequence = value.as_sequence();
  BUTTER_ASSIGN(const SlicePlan plan,
                plan_slice(static_cast<int64_t>(sequence.items.size()), start, stop, step));
  BUTTER_TRY(runtime.budget().use_steps(plan.count));
  std::vector<Value> items;
  for (int64_t i = 0; i < plan.count; ++i)
    items.push_back(sequence.items[static_cast<size_t>(plan.start + i * plan.step)]);
  BUTTER_ASSIGN(Value made, runtime.make(sequence.flavour, std::move(items)));
  if (sequence.flavour == Sequence::Flavour::kRange) {
    const auto& [first, stop_of_range, stride] = sequence.range;
    int64_t(&range)[3] = made.as_sequence().range;
    bool fits = !__builtin_mul_overflow(stride, plan.step, &range[2]);
    fits &= !__builtin_mul_overflow(plan.start, stride, &range[0]) &&
            !__builtin_add_overflow(range[0], first, &range[0]);
    fits &= !__builtin_mul_overflow(plan.stop, stride, &range[1]) &&
            !__builtin_add_overflow(range[1], first, &range[1]);
    if (!fits) return fail(StatusCode::kLimit, "the range needs more than 64 bits");
  }
  return made;
}

Result<std::vector<size_t>> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<size_t> merged(keys.size());
  // A merge sort from the bottom up: comparing can fail, and keys that equal each other stay in order.
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          BUTTER_ASSIGN(take_right, reverse ? less(runtime, a, b) : less(runtime, b, a));
        }
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace butter::jinja
