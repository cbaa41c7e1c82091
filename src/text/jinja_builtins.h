// The filters, tests, functions and methods that templates call: tables of rows, name -> function.
//
// Adding one is adding a row to the table in jinja_filters.cc, jinja_tests.cc, jinja_functions.cc or
// jinja_methods.cc, and its cases to tests/data/jinja/generate.py.
#pragma once

#include <array>
#include <ctime>
#include <deque>
#include <string_view>

#include "text/jinja_value.h"

namespace butter::jinja {

// The state of one rendering that values and builtins need: budget, depth and the namespaces it made.
class Runtime {
 public:
  // `now` is what strftime_now() shows.
  Runtime(const Limits& limits, const std::tm& now) : budget_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  const Limits& limits() const { return budget_.limits(); }
  // Depth of whatever recurses over values and nodes; held by DepthGuard.
  int& depth() { return depth_; }
  Status too_deep() const;

  // New values, charged to the budget and within max_value_depth.
  Result<Value> make(Sequence::Flavour flavour, std::vector<Value> items);
  Result<Value> make_list(std::vector<Value> items) {
    return make(Sequence::Flavour::kList, std::move(items));
  }
  Result<Value> make_tuple(std::vector<Value> items) {
    return make(Sequence::Flavour::kTuple, std::move(items));
  }
  Result<Value> make(Dict dict);
  Result<Value> make(TextBuilder& builder);
  // Bytes [begin, end) of a text, with their spans.
  Result<Value> make_slice(const Text& text, size_t begin, size_t end);
  Value make_namespace() { return &namespaces_.emplace_back(); }

 private:
  Budget budget_;
  std::tm now_;
  int depth_ = 0;
  std::deque<Namespace> namespaces_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

inline constexpr size_t kMaxParameters = 4;

// One call of a builtin. `input` is what stands left of the filter, test or method.
struct Call {
  Runtime& runtime;
  const Value& input;
  const Arguments& arguments;                            // as written, for rows that take any
  std::array<const Value*, kMaxParameters> values = {};  // by parameter; nullptr where not given

  const Value* operator[](size_t i) const { return values[i]; }
  bool given(size_t i) const { return values[i] != nullptr && !values[i]->is(Kind::kNone); }
  bool truth(size_t i, bool otherwise) const { return values[i] ? values[i]->truthy() : otherwise; }
  // An error that names the parameter's place if it is given and no int.
  Result<int64_t> integer(size_t i, int64_t otherwise) const;
};

enum class Passing {
  kByName,      // f(a, b=1)
  kByPosition,  // f(a, b)
  kAny,         // the function looks at Call::arguments
};

struct Builtin {
  std::string_view name;
  Result<Value> (*function)(Call& call);
  std::array<std::string_view, kMaxParameters> parameters = {};
  size_t required = 0;
  Passing passing = Passing::kByName;
};

// A method taken from its object: 'a'.upper.
struct Method {
  Value receiver;
  const Builtin* row;
};

// nullptr if there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
const Builtin* find_method(const Value& receiver, std::string_view name);
// Whether jinja2 or Python has this name where Butter has not: a reason to stop rather than to call it
// undefined.
bool is_unsupported_function(std::string_view name);
bool is_unsupported_method(const Value& receiver, std::string_view name);

// Binds the arguments to the row's parameters and calls it. `what` is "filter", "test", "function", "method".
Result<Value> call_builtin(Runtime& runtime, const Builtin& row, std::string_view what, const Value& input,
                           const Arguments& arguments);
// By a name that the template computed: map('upper'), select('odd').
Result<Value> call_filter(Runtime& runtime, const Value& name, const Value& input,
                          const Arguments& arguments);
Result<Value> call_test(Runtime& runtime, const Value& name, const Value& input, const Arguments& arguments);

}  // namespace butter::jinja
