#include "text/jinja_value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_loop.h"

namespace butter::jinja {
namespace {

constexpr size_t kMaxKeyNodes = 10'000;

Status append_hash_key(const Value& value, size_t& nodes, std::string& key) {
  if (++nodes > kMaxKeyNodes)
    return fail(StatusCode::kLimit, "a dict key has more than {} parts", kMaxKeyNodes);
  switch (value.kind()) {
    case Kind::kUndefined:
      key += "u";
      return {};
    case Kind::kNone:
      key += "0";
      return {};
    case Kind::kBool:
    case Kind::kInt:
      key += fmt::format("i{};", value.as_int());
      return {};
    case Kind::kFloat: {
      const double number = value.as_float();
      // 2^63 as a double is the first one that is too large.
      if (std::floor(number) == number && std::fabs(number) < 9223372036854775808.0) {
        key += fmt::format("i{};", static_cast<int64_t>(number));
      } else {
        key += fmt::format("f{};", std::bit_cast<uint64_t>(number));
      }
      return {};
    }
    case Kind::kText:
      // A lone text is the common key: no length needed in front of it.
      key += nodes == 1 ? std::string("s") : fmt::format("s{}:", value.bytes().size());
      key += value.bytes();
      return {};
    case Kind::kSequence:
      if (value.as_sequence().flavour != Sequence::Flavour::kTuple) break;
      key += fmt::format("t{}:", value.as_sequence().items.size());
      for (const Value& item : value.as_sequence().items) BUTTER_TRY(append_hash_key(item, nodes, key));
      return {};
    default:
      break;
  }
  return fail(StatusCode::kInvalidArgument, "a value of type {} cannot be a dict key or an element of a set",
              value.type_name());
}

}  // namespace

Value Value::undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

Value Value::text(std::string bytes) {
  Text text;
  text.bytes = std::move(bytes);
  return text;
}

Value Value::content(std::string bytes) {
  return Text::of_content(std::move(bytes));
}

Value Value::list(std::vector<Value> items) {
  return Sequence::make(Sequence::Flavour::kList, std::move(items));
}

Value Value::dict(std::vector<std::pair<std::string, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : entries) {
    // A text is always a key.
    static_cast<void>(dict->set(Value::text(std::move(key)), std::move(value)));
  }
  return std::shared_ptr<const Dict>(std::move(dict));
}

bool Value::is_same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return as_bool() == other.as_bool();
    case Kind::kInt:
      return as_int() == other.as_int();
    case Kind::kFloat:
      return as_float() == other.as_float();
    case Kind::kText:
      return bytes() == other.bytes();
    case Kind::kSequence:
      return &as_sequence() == &other.as_sequence();
    case Kind::kDict:
      return &as_dict() == &other.as_dict();
    case Kind::kNamespace:
      return as_namespace() == other.as_namespace();
    case Kind::kLoop:
      return &as_loop() == &other.as_loop();
    case Kind::kMacro:
      return as_macro() == other.as_macro();
    case Kind::kMethod:
      return &as_method() == &other.as_method();
    case Kind::kFunction:
      return as_function() == other.as_function();
    case Kind::kHelper:
      return &as_helper() == &other.as_helper();
  }
  return false;
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_float() != 0;
    case Kind::kText:
      return !bytes().empty();
    case Kind::kSequence:
      return as_sequence().flavour == Sequence::Flavour::kGenerator || !as_sequence().items.empty();
    case Kind::kDict:
      return !as_dict().entries().empty();
    default:
      return true;
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kSequence:
      return as_sequence().depth;
    case Kind::kDict:
      return as_dict().depth();
    case Kind::kMethod:
      return 1 + as_method().receiver.depth();
    case Kind::kHelper:
      return as_helper().depth;
    default:
      return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kHelper:
      return as_helper().what == Helper::What::kJoiner ? "Joiner" : "Cycler";
    case Kind::kSequence:
      break;
  }
  switch (as_sequence().flavour) {
    case Sequence::Flavour::kList:
      return "list";
    case Sequence::Flavour::kTuple:
      return "tuple";
    case Sequence::Flavour::kRange:
      return "range";
    case Sequence::Flavour::kKeys:
      return "dict_keys";
    case Sequence::Flavour::kValues:
      return "dict_values";
    case Sequence::Flavour::kItems:
      return "dict_items";
    case Sequence::Flavour::kGenerator:
      return "generator";
  }
  return "sequence";
}

std::shared_ptr<Sequence> Sequence::make(Flavour flavour, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->flavour = flavour;
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, 1 + item.depth());
  sequence->items = std::move(items);
  return sequence;
}

std::optional<Value> Sequence::attribute(std::string_view name) const {
  if (flavour == Flavour::kRange) {
    if (name == "start") return Value(range[0]);
    if (name == "stop") return Value(range[1]);
    if (name == "step") return Value(range[2]);
  }
  if (is_group && name == "grouper") return items[0];
  if (is_group && name == "list") return items[1];
  return std::nullopt;
}

std::shared_ptr<Helper> Helper::make(What what, std::vector<Value> items) {
  auto helper = std::make_shared<Helper>(Helper{what, std::move(items)});
  for (const Value& item : helper->items) helper->depth = std::max(helper->depth, 1 + item.depth());
  return helper;
}

std::optional<Value> Helper::attribute(std::string_view name) const {
  if (what == What::kCycler && name == "current") return items[at];
  return std::nullopt;
}

Status Dict::set(Value key, Value value) {
  BUTTER_ASSIGN(std::string encoded, hash_key(key));
  depth_ = std::max({depth_, 1 + key.depth(), 1 + value.depth()});
  const auto [place, is_new] = index_.try_emplace(std::move(encoded), entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
  return {};
}

Result<const Value*> Dict::find(const Value& key) const {
  BUTTER_ASSIGN(const std::string encoded, hash_key(key));
  const auto place = index_.find(encoded);
  return place == index_.end() ? nullptr : &entries_[place->second].second;
}

const Value* Dict::find(std::string_view key) const {
  std::string encoded = "s";
  encoded += key;
  const auto place = index_.find(encoded);
  return place == index_.end() ? nullptr : &entries_[place->second].second;
}

Result<std::string> hash_key(const Value& value) {
  std::string key;
  size_t nodes = 0;
  BUTTER_TRY(append_hash_key(value, nodes, key));
  return key;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

}  // namespace butter::jinja
