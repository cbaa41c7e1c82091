// The tests: {{ value is name(argument) }}.
#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace butter::jinja {
namespace {

Result<Value> defined(Call& call) {
  return Value(!call.input.is(Kind::kUndefined));
}
Result<Value> undefined(Call& call) {
  return Value(call.input.is(Kind::kUndefined));
}
Result<Value> none(Call& call) {
  return Value(call.input.is(Kind::kNone));
}
Result<Value> boolean(Call& call) {
  return Value(call.input.is(Kind::kBool));
}
Result<Value> is_true(Call& call) {
  return Value(call.input.is(Kind::kBool) && call.input.as_bool());
}
Result<Value> is_false(Call& call) {
  return Value(call.input.is(Kind::kBool) && !call.input.as_bool());
}
Result<Value> integer(Call& call) {
  return Value(call.input.is(Kind::kInt));
}
Result<Value> floating(Call& call) {
  return Value(call.input.is(Kind::kFloat));
}
Result<Value> number(Call& call) {
  return Value(call.input.is_number());
}
Result<Value> string(Call& call) {
  return Value(call.input.is(Kind::kText));
}
Result<Value> mapping(Call& call) {
  return Value(call.input.is(Kind::kDict));
}
Result<Value> escaped(Call& call) {
  return Value(call.input.is(Kind::kText) && call.input.as_text().markup);
}

Result<Value> sequence(Call& call) {
  const Value& value = call.input;
  if (value.is(Kind::kSequence)) return Value(value.as_sequence().is_indexable());
  // An undefined name has a length, and an index that fails only when it is used.
  return Value(value.is(Kind::kText) || value.is(Kind::kDict) || value.is(Kind::kUndefined));
}

Result<Value> iterable(Call& call) {
  switch (call.input.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kSequence:
    case Kind::kDict:
    case Kind::kLoop:
      return Value(true);
    default:
      return Value(false);
  }
}

Result<Value> callable(Call& call) {
  switch (call.input.kind()) {
    case Kind::kUndefined:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kLoop:
    case Kind::kFunction:
      return Value(true);
    case Kind::kHelper:
      return Value(call.input.as_helper().what == Helper::What::kJoiner);
    default:
      return Value(false);
  }
}

Result<Value> rest_is(Call& call, int64_t divisor, int64_t wanted) {
  BUTTER_ASSIGN(const Value rest, binary(call.runtime, BinaryOp::kModulo, call.input, Value(divisor)));
  BUTTER_ASSIGN(const bool same, equal(call.runtime, rest, Value(wanted)));
  return Value(same);
}
Result<Value> odd(Call& call) {
  return rest_is(call, 2, 1);
}
Result<Value> even(Call& call) {
  return rest_is(call, 2, 0);
}

Result<Value> divisibleby(Call& call) {
  BUTTER_ASSIGN(const Value rest, binary(call.runtime, BinaryOp::kModulo, call.input, *call[0]));
  BUTTER_ASSIGN(const bool same, equal(call.runtime, rest, Value(int64_t{0})));
  return Value(same);
}

Result<Value> sameas(Call& call) {
  BUTTER_TRY(charge_key(call.runtime, call.input));
  return Value(call.input.is_same(*call[0]));
}

template <CompareOp op>
Result<Value> compares(Call& call) {
  BUTTER_ASSIGN(const bool result, compare(call.runtime, op, call.input, *call[0]));
  return Value(result);
}

// Some letter has a case, and none has the other one.
Result<Value> has_case(Call& call, Case wanted) {
  BUTTER_ASSIGN(const Text text, to_text(call.runtime, call.input));
  bool some = false;
  for (size_t i = 0; i < text.bytes.size(); i += code_point_at(text.bytes, i).length) {
    const CodePoint c = code_point_at(text.bytes, i);
    some = some || (c.valid && is_cased(c.value));
  }
  BUTTER_ASSIGN(const Text converted, with_case(call.runtime.budget(), text, wanted));
  return Value(some && converted.bytes == text.bytes);
}
Result<Value> upper(Call& call) {
  return has_case(call, Case::kUpper);
}
Result<Value> lower(Call& call) {
  return has_case(call, Case::kLower);
}

Result<Value> filter(Call& call) {
  return Value(call.input.is(Kind::kText) && find_filter(call.input.bytes()) != nullptr);
}
Result<Value> test(Call& call) {
  return Value(call.input.is(Kind::kText) && find_test(call.input.bytes()) != nullptr);
}

constexpr Passing kByPosition = Passing::kByPosition;

constexpr Builtin kTests[] = {
    {"!=", compares<CompareOp::kNotEqual>, {"other"}, 1, kByPosition},
    {"<", compares<CompareOp::kLess>, {"other"}, 1, kByPosition},
    {"<=", compares<CompareOp::kLessEqual>, {"other"}, 1, kByPosition},
    {"==", compares<CompareOp::kEqual>, {"other"}, 1, kByPosition},
    {">", compares<CompareOp::kGreater>, {"other"}, 1, kByPosition},
    {">=", compares<CompareOp::kGreaterEqual>, {"other"}, 1, kByPosition},
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisibleby, {"num"}, 1},
    {"eq", compares<CompareOp::kEqual>, {"other"}, 1, kByPosition},
    {"equalto", compares<CompareOp::kEqual>, {"other"}, 1, kByPosition},
    {"escaped", escaped},
    {"even", even},
    {"false", is_false},
    {"filter", filter},
    {"float", floating},
    {"ge", compares<CompareOp::kGreaterEqual>, {"other"}, 1, kByPosition},
    {"greaterthan", compares<CompareOp::kGreater>, {"other"}, 1, kByPosition},
    {"gt", compares<CompareOp::kGreater>, {"other"}, 1, kByPosition},
    {"in", compares<CompareOp::kIn>, {"seq"}, 1},
    {"integer", integer},
    {"iterable", iterable},
    {"le", compares<CompareOp::kLessEqual>, {"other"}, 1, kByPosition},
    {"lessthan", compares<CompareOp::kLess>, {"other"}, 1, kByPosition},
    {"lower", lower},
    {"lt", compares<CompareOp::kLess>, {"other"}, 1, kByPosition},
    {"mapping", mapping},
    {"ne", compares<CompareOp::kNotEqual>, {"other"}, 1, kByPosition},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", sameas, {"other"}, 1},
    {"sequence", sequence},
    {"string", string},
    {"test", test},
    {"true", is_true},
    {"undefined", undefined},
    {"upper", upper},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  for (const Builtin& row : kTests) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace butter::jinja
