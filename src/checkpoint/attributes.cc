#include "checkpoint/attributes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "checkpoint/attribute_value.h"
#include "checkpoint/printable.h"

namespace butter {
namespace {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

AttributeValue whole(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return {static_cast<int64_t>(value)};
  return {value};
}

std::string describe_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return fmt::format("{}", value);
}

std::string describe_value(const AttributeValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(uint64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return describe_float(v); }
    std::string operator()(std::string_view v) const { return '"' + printable(v) + '"'; }
    std::string operator()(const AttributeStrings& v) const {
      return fmt::format("an array of {}", v.size());
    }
    std::string operator()(const PackedNumbers& v) const { return fmt::format("an array of {}", v.count); }
    std::string operator()(const AttributeList& v) const { return fmt::format("an array of {}", v.size()); }
    std::string operator()(const AttributeObject&) const { return "an object"; }
  };
  return std::visit(Visitor(), value.value);
}

std::optional<int64_t> as_int(const AttributeValue& value) {
  if (const auto* v = std::get_if<int64_t>(&value.value)) return *v;
  if (const auto* v = std::get_if<double>(&value.value)) {
    // Beyond 2^53 a double no longer says which whole number was meant.
    if (std::trunc(*v) == *v && std::abs(*v) <= 0x1p53) return static_cast<int64_t>(*v);
  }
  return std::nullopt;
}

std::optional<double> as_float(const AttributeValue& value) {
  if (const auto* v = std::get_if<double>(&value.value)) return *v;
  if (const auto* v = std::get_if<int64_t>(&value.value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&value.value)) return static_cast<double>(*v);
  return std::nullopt;
}

std::optional<bool> as_bool(const AttributeValue& value) {
  if (const auto* v = std::get_if<bool>(&value.value)) return *v;
  return std::nullopt;
}

// The elements of an array, each through `convert`; nothing if it is no array or an element is of
// another kind.
template <typename T>
std::optional<std::vector<T>> as_vector(const AttributeValue& value,
                                        std::optional<T> (*convert)(const AttributeValue&)) {
  std::vector<T> out;
  if (const auto* packed = std::get_if<PackedNumbers>(&value.value)) {
    out.reserve(static_cast<size_t>(packed->count));
    for (int64_t i = 0; i < packed->count; ++i) {
      const auto element = convert(number_value(packed->type, packed->data + i * number_bytes(packed->type)));
      if (!element) return std::nullopt;
      out.push_back(*element);
    }
    return out;
  }
  if (const auto* list = std::get_if<AttributeList>(&value.value)) {
    out.reserve(list->size());
    for (const AttributeValue& item : *list) {
      const auto element = convert(item);
      if (!element) return std::nullopt;
      out.push_back(*element);
    }
    return out;
  }
  return std::nullopt;
}

const std::shared_ptr<const AttributeDocument>& empty_document() {
  static const auto document = std::make_shared<const AttributeDocument>();
  return document;
}

}  // namespace

int number_bytes(NumberType type) {
  switch (type) {
    case NumberType::kU8:
    case NumberType::kI8:
    case NumberType::kBool:
      return 1;
    case NumberType::kU16:
    case NumberType::kI16:
      return 2;
    case NumberType::kU32:
    case NumberType::kI32:
    case NumberType::kF32:
      return 4;
    case NumberType::kU64:
    case NumberType::kI64:
    case NumberType::kF64:
      return 8;
  }
  return 1;
}

AttributeValue number_value(NumberType type, const std::byte* at) {
  switch (type) {
    case NumberType::kU8:
      return whole(load<uint8_t>(at));
    case NumberType::kI8:
      return {int64_t{load<int8_t>(at)}};
    case NumberType::kU16:
      return whole(load<uint16_t>(at));
    case NumberType::kI16:
      return {int64_t{load<int16_t>(at)}};
    case NumberType::kU32:
      return whole(load<uint32_t>(at));
    case NumberType::kI32:
      return {int64_t{load<int32_t>(at)}};
    case NumberType::kF32:
      return {double{load<float>(at)}};
    case NumberType::kBool:
      return {load<uint8_t>(at) != 0};
    case NumberType::kU64:
      return whole(load<uint64_t>(at));
    case NumberType::kI64:
      return {load<int64_t>(at)};
    case NumberType::kF64:
      return {load<double>(at)};
  }
  return {};
}

Status AttributeObject::index() {
  by_name.resize(members.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  const auto name = [this](uint32_t i) { return members[i].name; };
  std::sort(by_name.begin(), by_name.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  for (size_t i = 1; i < by_name.size(); ++i) {
    if (name(by_name[i - 1]) == name(by_name[i]))
      return fail(StatusCode::kCorrupt, "the key {} is there twice", printable(name(by_name[i])));
  }
  return {};
}

const AttributeValue* AttributeObject::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_name.begin(), by_name.end(), wanted,
                       [this](uint32_t i, std::string_view key) { return members[i].name < key; });
  return at != by_name.end() && members[*at].name == wanted ? &members[*at].value : nullptr;
}

std::string_view AttributeDocument::keep(std::string_view from) {
  if (from.empty()) return {};
  char* copy = static_cast<char*>(text.allocate(from.size(), 1));
  std::memcpy(copy, from.data(), from.size());
  return {copy, from.size()};
}

Attributes::Attributes() : Attributes(empty_document()) {}

Attributes::Attributes(std::shared_ptr<const AttributeDocument> document)
    : document_(std::move(document)), object_(&document_->root) {}

const std::string& Attributes::source() const {
  return document_->source;
}

std::string Attributes::full_name(std::string_view key) const {
  return prefix_ + printable(key);
}

const AttributeValue* Attributes::find(std::string_view key) const {
  const AttributeValue* value = object_->find(key);
  return value && !std::holds_alternative<std::monostate>(value->value) ? value : nullptr;
}

bool Attributes::has(std::string_view key) const {
  return object_->find(key) != nullptr;
}

bool Attributes::is_null(std::string_view key) const {
  return has(key) && find(key) == nullptr;
}

AttributeKind Attributes::kind(std::string_view key) const {
  const AttributeValue* found = find(key);
  if (!found) return AttributeKind::kAbsent;
  struct Visitor {
    AttributeKind operator()(std::monostate) const { return AttributeKind::kAbsent; }
    AttributeKind operator()(bool) const { return AttributeKind::kBool; }
    AttributeKind operator()(int64_t) const { return AttributeKind::kInt; }
    AttributeKind operator()(uint64_t) const { return AttributeKind::kInt; }
    AttributeKind operator()(double) const { return AttributeKind::kFloat; }
    AttributeKind operator()(std::string_view) const { return AttributeKind::kString; }
    AttributeKind operator()(const AttributeStrings&) const { return AttributeKind::kArray; }
    AttributeKind operator()(const PackedNumbers&) const { return AttributeKind::kArray; }
    AttributeKind operator()(const AttributeList&) const { return AttributeKind::kArray; }
    AttributeKind operator()(const AttributeObject&) const { return AttributeKind::kObject; }
  };
  return std::visit(Visitor(), found->value);
}

std::vector<std::string_view> Attributes::keys() const {
  std::vector<std::string_view> names;
  names.reserve(object_->members.size());
  for (const AttributeMember& member : object_->members) names.push_back(member.name);
  return names;
}

std::string Attributes::describe(std::string_view key) const {
  const AttributeValue* value = object_->find(key);
  return value ? describe_value(*value) : "nothing";
}

tl::unexpected<Error> Attributes::wrong(std::string_view key, std::string_view expected) const {
  const AttributeValue* value = object_->find(key);
  if (!value) {
    return fail(StatusCode::kNotFound, "{} is missing from {}; {} is expected", full_name(key),
                source().empty() ? "the configuration" : source(), expected);
  }
  return fail(StatusCode::kCorrupt, "{} is {}; {} is expected", full_name(key), describe_value(*value),
              expected);
}

Result<bool> Attributes::get_bool(std::string_view key) const {
  const AttributeValue* value = find(key);
  const auto found = value ? as_bool(*value) : std::nullopt;
  if (!found) return wrong(key, "true or false");
  return *found;
}

Result<bool> Attributes::get_bool_or(std::string_view key, bool otherwise) const {
  if (!find(key)) return otherwise;
  return get_bool(key);
}

Result<int64_t> Attributes::get_int(std::string_view key) const {
  const AttributeValue* value = find(key);
  const auto found = value ? as_int(*value) : std::nullopt;
  if (found) return *found;
  if (value && std::holds_alternative<uint64_t>(value->value))
    return wrong(key, "an integer up to 9223372036854775807");
  return wrong(key, "an integer");
}

Result<int64_t> Attributes::get_int_or(std::string_view key, int64_t otherwise) const {
  if (!find(key)) return otherwise;
  return get_int(key);
}

Result<int64_t> Attributes::require_int(std::string_view key, int64_t min, int64_t max) const {
  const AttributeValue* value = find(key);
  const auto found = value ? as_int(*value) : std::nullopt;
  if (!found || *found < min || *found > max)
    return wrong(key, fmt::format("an integer from {} to {}", min, max));
  return *found;
}

Result<int64_t> Attributes::require_int_or(std::string_view key, int64_t otherwise, int64_t min,
                                           int64_t max) const {
  if (!find(key)) return otherwise;
  return require_int(key, min, max);
}

Result<double> Attributes::get_float(std::string_view key) const {
  const AttributeValue* value = find(key);
  const auto found = value ? as_float(*value) : std::nullopt;
  if (!found) return wrong(key, "a number");
  return *found;
}

Result<double> Attributes::get_float_or(std::string_view key, double otherwise) const {
  if (!find(key)) return otherwise;
  return get_float(key);
}

Result<double> Attributes::require_float(std::string_view key, double min, double max) const {
  const AttributeValue* value = find(key);
  const auto found = value ? as_float(*value) : std::nullopt;
  // Written so that NaN fails.
  if (!found || !(*found >= min && *found <= max)) {
    return wrong(key, fmt::format("a number from {} to {}", describe_float(min), describe_float(max)));
  }
  return *found;
}

Result<double> Attributes::require_float_or(std::string_view key, double otherwise, double min,
                                            double max) const {
  if (!find(key)) return otherwise;
  return require_float(key, min, max);
}

Result<std::string_view> Attributes::get_string(std::string_view key) const {
  const AttributeValue* value = find(key);
  const auto* found = value ? std::get_if<std::string_view>(&value->value) : nullptr;
  if (!found) return wrong(key, "a string");
  return *found;
}

Result<std::string> Attributes::get_string_or(std::string_view key, std::string_view otherwise) const {
  if (!find(key)) return std::string(otherwise);
  return get_string(key).map([](std::string_view text) { return std::string(text); });
}

Result<std::span<const std::string_view>> Attributes::get_strings(std::string_view key) const {
  const AttributeValue* value = find(key);
  if (value) {
    if (const auto* found = std::get_if<AttributeStrings>(&value->value))
      return std::span<const std::string_view>(*found);
    // An empty JSON array is an array of anything.
    const auto* list = std::get_if<AttributeList>(&value->value);
    if (list && list->empty()) return std::span<const std::string_view>();
  }
  return wrong(key, "an array of strings");
}

Result<std::vector<int64_t>> Attributes::get_ints(std::string_view key) const {
  const AttributeValue* value = find(key);
  auto found = value ? as_vector<int64_t>(*value, as_int) : std::nullopt;
  if (!found) return wrong(key, "an array of integers");
  return *std::move(found);
}

Result<std::vector<double>> Attributes::get_floats(std::string_view key) const {
  const AttributeValue* value = find(key);
  auto found = value ? as_vector<double>(*value, as_float) : std::nullopt;
  if (!found) return wrong(key, "an array of numbers");
  return *std::move(found);
}

Result<std::vector<bool>> Attributes::get_bools(std::string_view key) const {
  const AttributeValue* value = find(key);
  auto found = value ? as_vector<bool>(*value, as_bool) : std::nullopt;
  if (!found) return wrong(key, "an array of true and false");
  return *std::move(found);
}

Result<std::vector<int64_t>> Attributes::get_int_or_ints(std::string_view key) const {
  const AttributeValue* value = find(key);
  if (value) {
    if (const auto one = as_int(*value)) return std::vector<int64_t>{*one};
    if (auto many = as_vector<int64_t>(*value, as_int)) return *std::move(many);
  }
  return wrong(key, "an integer or an array of integers");
}

Attributes Attributes::nested(std::string_view key, const AttributeObject& object) const {
  Attributes inner(document_);
  inner.object_ = &object;
  inner.prefix_ = full_name(key) + ".";
  return inner;
}

Result<Attributes> Attributes::get_object(std::string_view key) const {
  const AttributeValue* value = find(key);
  const auto* found = value ? std::get_if<AttributeObject>(&value->value) : nullptr;
  if (!found) return wrong(key, "an object");
  return nested(key, *found);
}

Result<Attributes> Attributes::get_object_or_empty(std::string_view key) const {
  static const AttributeObject kNothing;
  if (!find(key)) return nested(key, kNothing);
  return get_object(key);
}

}  // namespace butter
