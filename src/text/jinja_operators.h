// What Python's operators do to Values: arithmetic, comparison, membership, subscripts.
#pragma once

#include <vector>

#include "text/jinja_builtins.h"

namespace butter::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// Ints are 64 bits wide: a result that needs more is an error. Division rounds down, as in Python.
Result<Value> binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);
Result<Value> unary_plus(const Value& value);

Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
Result<bool> equal(Runtime& runtime, const Value& left, const Value& right);
Result<bool> less(Runtime& runtime, const Value& left, const Value& right);
Result<bool> contains(Runtime& runtime, const Value& container, const Value& item);

// Charges the reading of a text key, or of a text that is compared.
Status charge_key(Runtime& runtime, const Value& key);

// The items that a for loop over the value sees; a generator is used up.
Result<std::vector<Value>> items_of(Runtime& runtime, const Value& value);
// len(value).
Result<int64_t> length_of(const Value& value);

// value.name: the attribute or method, else the item of that name, else undefined.
Result<Value> get_attribute(Runtime& runtime, const Value& value, std::string_view name);
// The attribute or method alone; undefined if there is none.
Result<Value> get_own_attribute(Runtime& runtime, const Value& value, std::string_view name);
// value[key]: the item, else the attribute of that name, else undefined.
Result<Value> get_item(Runtime& runtime, const Value& value, const Value& key);
// value[start:stop:step]; none for what is left out.
Result<Value> get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                        const Value& step);

// Places of the keys in ascending order; equal keys keep their order also when it is reversed.
Result<std::vector<size_t>> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse);

// "format % values" of texts.
Result<Value> format_text(Runtime& runtime, const Value& format, const Value& values);

}  // namespace butter::jinja
