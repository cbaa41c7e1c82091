// Value: what a template computes with; the part of Python's objects that chat templates use.
//
// A Value is cheap to copy: texts, lists and dicts are shared and never change once made, as in jinja2's
// immutable sandbox. Only namespaces, loops, generators, joiners and cyclers have state; namespaces and
// macros belong to the rendering that made them, so a Value that may hold one must not outlive it. Not for
// use by several threads at once, except values made of texts, numbers, lists and dicts, which are constant.
//
// Every list and dict knows its nesting depth (1 for a flat one), so that nothing that walks or frees a
// value recurses deeper than Limits::max_value_depth, which the evaluator checks where values are made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/status.h"
#include "text/jinja_text.h"

namespace butter::jinja {

class Value;
class Dict;
struct Sequence;
struct Namespace;
struct Macro;
struct Method;
struct Helper;
class Loop;

// A name or attribute that is not there. Prints as nothing, is false and empty; anything else is an error.
struct Undefined {
  std::shared_ptr<const std::string> why;  // one clause: "'x' is undefined"
};
struct None {};
// range and the others of the globals table, by name.
struct Function {
  std::string_view name;
};

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kMethod,
  kFunction,
  kHelper
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}     // NOLINT(google-explicit-constructor)
  Value(int64_t value) : data_(value) {}  // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}   // NOLINT(google-explicit-constructor)
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  Value(std::shared_ptr<Sequence> value) : data_(std::move(value)) {}         // NOLINT
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}       // NOLINT
  Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}             // NOLINT
  Value(std::shared_ptr<const Method> value) : data_(std::move(value)) {}     // NOLINT
  Value(std::shared_ptr<Helper> value) : data_(std::move(value)) {}           // NOLINT
  Value(Namespace* value) : data_(value) {}                                   // NOLINT
  Value(const Macro* value) : data_(value) {}                                 // NOLINT
  Value(Function value) : data_(value) {}                                     // NOLINT
  Value(Undefined value) : data_(std::move(value)) {}                         // NOLINT
  Value(const char*) = delete;  // would become a bool: say text() or content()

  static Value undefined(std::string why);
  // A text that the template's author or the model's files wrote: special tokens in it are special.
  static Value text(std::string bytes);
  // A text from elsewhere: special tokens in it are words.
  static Value content(std::string bytes);
  static Value list(std::vector<Value> items);
  // Keys are given in order; a key that comes again replaces the value.
  static Value dict(std::vector<std::pair<std::string, Value>> entries);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind wanted) const { return kind() == wanted; }
  // bool, int or float.
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  // Each asks for the right kind (as_int also takes bool, as_float any number).
  const Undefined& as_undefined() const { return std::get<Undefined>(data_); }
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is(Kind::kBool) ? int64_t{as_bool()} : std::get<int64_t>(data_); }
  double as_float() const {
    return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  const Text& as_text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& bytes() const { return as_text().bytes; }
  Sequence& as_sequence() const { return *std::get<std::shared_ptr<Sequence>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Loop& as_loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }
  const Method& as_method() const { return *std::get<std::shared_ptr<const Method>>(data_); }
  Helper& as_helper() const { return *std::get<std::shared_ptr<Helper>>(data_); }
  Namespace* as_namespace() const { return std::get<Namespace*>(data_); }
  const Macro* as_macro() const { return std::get<const Macro*>(data_); }
  std::string_view as_function() const { return std::get<Function>(data_).name; }

  // The same object, as Python's "is" sees it (small ints and equal texts count as the same).
  bool is_same(const Value& other) const;
  // Python's truth of the value.
  bool truthy() const;
  // How deep lists and dicts nest in it; 0 for a plain value.
  int depth() const;
  // Python's name of its type, for messages: "int", "str", "NoneType".
  std::string_view type_name() const;

 private:
  // In the order of Kind.
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<Sequence>,
               std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<Loop>, const Macro*,
               std::shared_ptr<const Method>, Function, std::shared_ptr<Helper>>
      data_;
};

// Everything that is iterated in order. What differs between the flavours is how it prints and what it
// allows: a view has no index, a generator can be walked once and has no length.
struct Sequence {
  enum class Flavour { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
  Flavour flavour = Flavour::kList;
  std::vector<Value> items;
  int depth = 1;
  int64_t range[3] = {0, 0, 1};  // start, stop, step of a range
  bool is_group = false;         // a tuple of groupby: its two are also .grouper and .list
  size_t consumed = 0;           // items of a generator that are gone

  static std::shared_ptr<Sequence> make(Flavour flavour, std::vector<Value> items);
  // start, stop and step of a range; those of a group.
  std::optional<Value> attribute(std::string_view name) const;
  bool is_indexable() const {
    return flavour == Flavour::kList || flavour == Flavour::kTuple || flavour == Flavour::kRange;
  }
};

// A mapping that keeps the order of insertion.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // An error if the key cannot be hashed (a list, a dict). A key that is there keeps its place.
  Status set(Value key, Value value);
  // nullptr if absent; an error if the key cannot be hashed.
  Result<const Value*> find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;  // by the key's encoding
  int depth_ = 1;
};

// A text that is equal for equal keys: 1, 1.0 and true are one key. An error for unhashable values.
Result<std::string> hash_key(const Value& value);

// joiner(separator): callable, gives nothing the first time and then the separator. cycler(items...): gives
// its items in turn.
struct Helper {
  enum class What { kJoiner, kCycler } what;
  std::vector<Value> items;  // of a joiner: the separator; never empty
  size_t at = 0;             // of a cycler: the current one; of a joiner: how often it was asked, up to 1
  int depth = 1;

  static std::shared_ptr<Helper> make(What what, std::vector<Value> items);
  std::optional<Value> attribute(std::string_view name) const;  // current
};

// namespace(): the one object whose attributes a template may set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

}  // namespace butter::jinja
