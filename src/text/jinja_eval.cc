#include "text/jinja_eval.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "text/jinja_loop.h"
#include "text/jinja_print.h"

namespace butter::jinja {

class Scope;

// A macro as a value: its definition and the scope whose names its body sees. Owned by the evaluator.
struct Macro {
  const MacroDefinition* definition;
  Scope* scope;  // null once that scope has ended
};

// Names of one block. A name that is set here hides the outer one until the block ends.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}
  ~Scope() {
    for (Macro* macro : macros_) macro->scope = nullptr;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Adds the number of names that it looks at to `looked_at`.
  const Value* find(std::string_view name, size_t& looked_at) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      for (const auto& [key, value] : scope->names_) {
        ++looked_at;
        if (key == name) return &value;
      }
    }
    return nullptr;
  }
  size_t size() const { return names_.size(); }
  void set(std::string_view name, Value value) {
    for (auto& [key, old] : names_) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    names_.emplace_back(name, std::move(value));
  }
  void adopt(Macro* macro) { macros_.push_back(macro); }

 private:
  Scope* parent_;
  std::vector<std::pair<std::string_view, Value>> names_;  // names live in the program or the environment
  std::vector<Macro*> macros_;
};

namespace {

// What a statement asks of the loop around it.
enum class Flow { kNext, kBreak, kContinue };

tl::unexpected<Error> at_line(int line, const Error& error) {
  return fail(error.within(fmt::format("template line {}", line)));
}

// An error that comes from a value or a builtin, and so has no line yet.
template <typename T>
Result<T> with_line(int line, Result<T> result) {
  if (!result) return at_line(line, result.error());
  return result;
}

class Evaluator {
 public:
  Evaluator(const Environment& environment, const Limits& limits)
      : runtime_(limits, environment.now),
        output_(runtime_.budget()),
        out_(&output_),
        root_(nullptr),
        scope_(&root_) {
    for (const auto& [name, value] : environment.variables) root_.set(name, value);
  }

  Result<Text> run(const Program& program) {
    BUTTER_TRY(run_body(program.body));
    return output_.finish();
  }

 private:
  // Makes a scope the current one for as long as it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Evaluator& evaluator, Scope* parent)
        : evaluator_(evaluator), previous_(evaluator.scope_), scope_(parent) {
      evaluator_.scope_ = &scope_;
    }
    ~ScopeGuard() { evaluator_.scope_ = previous_; }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Evaluator& evaluator_;
    Scope* previous_;
    Scope scope_;
  };

  // Sends output to a text of its own for as long as it lives.
  class Capture {
   public:
    explicit Capture(Evaluator& evaluator)
        : evaluator_(evaluator), previous_(evaluator.out_), builder_(evaluator.runtime_.budget()) {
      evaluator_.out_ = &builder_;
    }
    ~Capture() { evaluator_.out_ = previous_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Result<Value> finish() { return evaluator_.runtime_.make(builder_); }

   private:
    Evaluator& evaluator_;
    TextBuilder* previous_;
    TextBuilder builder_;
  };

  Status use_steps(int64_t count, int line) {
    if (Status status = runtime_.budget().use_steps(count); !status) return at_line(line, status.error());
    return {};
  }
  // Names are few: looking through sixteen of them is cheaper than a step. A template with more pays for
  // them.
  Status use_names(size_t looked_at, int line) {
    return use_steps(static_cast<int64_t>(looked_at / 16), line);
  }

  Result<const Value*> find_name(std::string_view name, int line) {
    size_t looked_at = 0;
    const Value* value = scope_->find(name, looked_at);
    BUTTER_TRY(use_names(looked_at, line));
    return value;
  }
  // ---- statements ----

  Result<Flow> run_body(const Body& body) {
    for (const Statement& statement : body) {
      BUTTER_ASSIGN(const Flow flow, run(statement));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Result<Flow> run_scoped(const Body& body) {
    ScopeGuard scope(*this, scope_);
    return run_body(body);
  }

  Result<Flow> run(const Statement& statement) {
    DepthGuard guard(runtime_.depth(), runtime_.limits().max_eval_depth);
    if (!guard.ok()) return at_line(statement.line, runtime_.too_deep().error());
    BUTTER_TRY(use_steps(1, statement.line));
    return std::visit([&](const auto& node) { return run(node, statement.line); }, statement.node);
  }

  Result<Flow> run(const Data& node, int line) {
    out_->append(node.text.as_text());
    if (out_->full()) return at_line(line, out_->status().error());
    return Flow::kNext;
  }

  Result<Flow> run(const Output& node, int line) {
    for (const ExpressionPtr& expression : node.values) {
      BUTTER_ASSIGN(const Value value, evaluate(*expression));
      if (Status status = append_str(runtime_, *out_, value); !status) return at_line(line, status.error());
    }
    return Flow::kNext;
  }

  Result<Flow> run(const If& node, int) {
    for (const Branch& branch : node.branches) {
      if (branch.test) {
        BUTTER_ASSIGN(const Value test, evaluate(*branch.test));
        if (!test.truthy()) continue;
      }
      return run_body(branch.body);
    }
    return Flow::kNext;
  }

  Result<Flow> run(const For& node, int line) {
    BUTTER_ASSIGN(const Value source, evaluate(*node.items));
    return run_loop(node, source, 0, line);
  }

  Result<Flow> run_loop(const For& node, const Value& source, int64_t depth0, int line) {
    BUTTER_ASSIGN(std::vector<Value> items, with_line(line, items_of(runtime_, source)));
    Loop::Filter filter;
    if (node.filter) {
      filter = [this, &node, outer = scope_](const Value& item) { return passes(node, item, outer); };
    }
    const auto loop = std::make_shared<Loop>(std::move(items), std::move(filter), depth0);
    loops_.push_back({loop.get(), &node, scope_});
    struct End {
      std::vector<OpenLoop>& loops;
      Loop& loop;
      ~End() {
        loops.pop_back();
        loop.end();
      }
    } end{loops_, *loop};
    bool completed = false;
    while (true) {
      BUTTER_ASSIGN(const bool more, loop->advance());
      if (!more) break;
      BUTTER_ASSIGN(const Flow flow, run_iteration(node, loop));
      if (flow == Flow::kBreak) break;
      // jinja2 notes a completed body, not a loop that began: a continue does not count.
      completed = completed || flow == Flow::kNext;
    }
    if (completed) return Flow::kNext;
    return run_scoped(node.otherwise);
  }

  // loop(items): the text of the loop's body over other items.
  Result<Value> call_loop(const Loop& loop, const Arguments& arguments, int line) {
    const auto open = std::ranges::find(loops_, &loop, &OpenLoop::loop);
    if (open == loops_.end()) {
      return at_line(line, Error(StatusCode::kUnsupported, "a loop is called after it has ended"));
    }
    if (!open->node->is_recursive) {
      return at_line(line, Error(StatusCode::kInvalidArgument, "a loop is called that is not 'recursive'"));
    }
    if (arguments.positional.size() != 1 || !arguments.named.empty()) {
      return at_line(
          line, Error(StatusCode::kInvalidArgument, "a loop is called with what it goes over, and no more"));
    }
    const OpenLoop called = *open;
    ScopeGuard scope(*this, called.outer);
    Capture capture(*this);
    BUTTER_TRY(run_loop(*called.node, arguments.positional[0], loop.depth0() + 1, line));
    return with_line(line, capture.finish());
  }

  Result<Flow> run_iteration(const For& node, const std::shared_ptr<Loop>& loop) {
    ScopeGuard scope(*this, scope_);
    scope_->set("loop", loop);
    BUTTER_TRY(assign(node.target, loop->current()));
    return run_body(node.body);
  }

  Result<bool> passes(const For& node, const Value& item, Scope* outer) {
    ScopeGuard scope(*this, outer);
    BUTTER_TRY(assign(node.target, item));
    BUTTER_ASSIGN(const Value wanted, evaluate(*node.filter));
    return wanted.truthy();
  }

  Result<Flow> run(const Set& node, int) {
    BUTTER_ASSIGN(Value value, evaluate(*node.value));
    BUTTER_TRY(assign(node.target, std::move(value)));
    return Flow::kNext;
  }

  Result<Flow> run(const SetBlock& node, int line) {
    Value text;
    BUTTER_ASSIGN(const Flow flow, capture_scoped(node.body, line, text));
    if (flow != Flow::kNext) return flow;
    BUTTER_ASSIGN(text, apply(node.filters, line, std::move(text)));
    BUTTER_TRY(assign(node.target, std::move(text)));
    return Flow::kNext;
  }

  Result<Flow> run(const FilterBlock& node, int line) {
    Value text;
    BUTTER_ASSIGN(const Flow flow, capture_scoped(node.body, line, text));
    if (flow != Flow::kNext) return flow;
    BUTTER_ASSIGN(text, apply(node.filters, line, std::move(text)));
    if (!text.is(Kind::kText)) {
      return at_line(line, Error(StatusCode::kInvalidArgument,
                                 fmt::format("the filters of a filter block must give a str, found {}",
                                             text.type_name())));
    }
    out_->append(text.as_text());
    if (out_->full()) return at_line(line, out_->status().error());
    return Flow::kNext;
  }

  Result<Flow> capture_scoped(const Body& body, int line, Value& text) {
    Capture capture(*this);
    BUTTER_ASSIGN(const Flow flow, run_scoped(body));
    BUTTER_ASSIGN(text, with_line(line, capture.finish()));
    return flow;
  }

  Result<Value> apply(const std::vector<Filter>& filters, int line, Value value) {
    for (const Filter& filter : filters) {
      BUTTER_ASSIGN(const Arguments arguments, evaluate(filter.arguments, line));
      BUTTER_ASSIGN(value, with_line(line, call_builtin(runtime_, *filter.row, "filter", value, arguments)));
    }
    return value;
  }

  Result<Flow> run(const With& node, int) {
    std::vector<Value> values;
    for (const auto& [target, expression] : node.bindings) {
      BUTTER_ASSIGN(Value value, evaluate(*expression));
      values.push_back(std::move(value));
    }
    ScopeGuard scope(*this, scope_);
    for (size_t i = 0; i < values.size(); ++i)
      BUTTER_TRY(assign(node.bindings[i].first, std::move(values[i])));
    return run_body(node.body);
  }

  Result<const Macro*> define(const MacroDefinition& definition, int line) {
    if (Status status = runtime_.budget().use_bytes(sizeof(Macro) + sizeof(Macro*)); !status) {
      return at_line(line, status.error());
    }
    Macro* macro = &macros_.emplace_back(Macro{&definition, scope_});
    scope_->adopt(macro);
    return macro;
  }

  Result<Flow> run(const MacroDefinition& node, int line) {
    BUTTER_ASSIGN(const Macro* macro, define(node, line));
    scope_->set(node.name, macro);
    return Flow::kNext;
  }

  Result<Flow> run(const CallBlock& node, int line) {
    const auto& call = std::get<CallExpression>(node.call->node);
    // A scope for the caller, so that macros made in a loop do not add up.
    ScopeGuard scope(*this, scope_);
    BUTTER_ASSIGN(const Macro* caller, define(node.caller, line));
    BUTTER_ASSIGN(const Value callee, evaluate(*call.callee));
    BUTTER_ASSIGN(Arguments arguments, evaluate(call.arguments, line));
    arguments.named.emplace_back("caller", caller);
    BUTTER_ASSIGN(const Value result, this->call(callee, arguments, line));
    if (Status status = append_str(runtime_, *out_, result); !status) return at_line(line, status.error());
    return Flow::kNext;
  }

  Result<Flow> run(const Generation& node, int) { return run_scoped(node.body); }
  Result<Flow> run(const Break&, int) { return Flow::kBreak; }
  Result<Flow> run(const Continue&, int) { return Flow::kContinue; }

  Status assign(const Target& target, Value value) {
    switch (target.kind) {
      case Target::Kind::kName:
        BUTTER_TRY(use_names(scope_->size(), target.line));
        scope_->set(target.name, std::move(value));
        return {};
      case Target::Kind::kAttribute: {
        BUTTER_ASSIGN(const Value* space, find_name(target.name, target.line));
        if (space == nullptr || !space->is(Kind::kNamespace)) {
          return fail(StatusCode::kInvalidArgument,
                      "template line {}: attributes can be set on a namespace only, and '{}' is {}",
                      target.line, target.name, space == nullptr ? "undefined" : space->type_name());
        }
        BUTTER_TRY(use_names(space->as_namespace()->attributes.size(), target.line));
        if (Status status = runtime_.budget().use_bytes(sizeof(Value)); !status)
          return at_line(target.line, status.error());
        space->as_namespace()->set(target.attribute, std::move(value));
        return {};
      }
      case Target::Kind::kTuple:
        break;
    }
    BUTTER_ASSIGN(std::vector<Value> parts, with_line(target.line, items_of(runtime_, value)));
    if (parts.size() != target.parts.size()) {
      return fail(StatusCode::kInvalidArgument, "template line {}: {} values are assigned to {} names",
                  target.line, parts.size(), target.parts.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) BUTTER_TRY(assign(target.parts[i], std::move(parts[i])));
    return {};
  }

  // ---- expressions ----

  Result<Value> evaluate(const Expression& expression) {
    DepthGuard guard(runtime_.depth(), runtime_.limits().max_eval_depth);
    if (!guard.ok()) return at_line(expression.line, runtime_.too_deep().error());
    BUTTER_TRY(use_steps(1, expression.line));
    return std::visit([&](const auto& node) { return evaluate(node, expression.line); }, expression.node);
  }

  Result<Value> evaluate(const Literal& node, int) { return node.value; }

  Result<Value> evaluate(const Name& node, int line) {
    BUTTER_ASSIGN(const Value* value, find_name(node.name, line));
    if (value != nullptr) return *value;
    if (const Builtin* row = find_function(node.name)) return Value(Function{row->name});
    if (is_unsupported_function(node.name)) {
      return at_line(line, Error(StatusCode::kUnsupported,
                                 fmt::format("the function '{}' is not supported", node.name)));
    }
    return Value::undefined(fmt::format("'{}' is undefined", std::string_view(node.name).substr(0, 100)));
  }

  Result<Value> evaluate(const SequenceLiteral& node, int line) {
    std::vector<Value> items;
    items.reserve(node.items.size());
    for (const ExpressionPtr& item : node.items) {
      BUTTER_ASSIGN(Value value, evaluate(*item));
      items.push_back(std::move(value));
    }
    return with_line(line, runtime_.make(node.flavour, std::move(items)));
  }

  Result<Value> evaluate(const DictLiteral& node, int line) {
    Dict dict;
    for (const auto& [key_expression, value_expression] : node.entries) {
      BUTTER_ASSIGN(Value key, evaluate(*key_expression));
      BUTTER_ASSIGN(Value value, evaluate(*value_expression));
      if (Status status = dict.set(std::move(key), std::move(value)); !status)
        return at_line(line, status.error());
    }
    return with_line(line, runtime_.make(std::move(dict)));
  }

  Result<Value> evaluate(const Attribute& node, int line) {
    BUTTER_ASSIGN(const Value object, evaluate(*node.object));
    return with_line(line, get_attribute(runtime_, object, node.name));
  }

  Result<Value> evaluate(const Item& node, int line) {
    BUTTER_ASSIGN(const Value object, evaluate(*node.object));
    BUTTER_ASSIGN(const Value key, evaluate(*node.key));
    return with_line(line, get_item(runtime_, object, key));
  }

  Result<Value> evaluate_or_none(const ExpressionPtr& expression) {
    if (!expression) return Value();
    return evaluate(*expression);
  }

  Result<Value> evaluate(const Slice& node, int line) {
    BUTTER_ASSIGN(const Value object, evaluate(*node.object));
    BUTTER_ASSIGN(const Value start, evaluate_or_none(node.start));
    BUTTER_ASSIGN(const Value stop, evaluate_or_none(node.stop));
    BUTTER_ASSIGN(const Value step, evaluate_or_none(node.step));
    return with_line(line, get_slice(runtime_, object, start, stop, step));
  }

  Result<Arguments> evaluate(const ArgumentList& list, int line) {
    Arguments arguments;
    for (const ExpressionPtr& expression : list.positional) {
      BUTTER_ASSIGN(Value value, evaluate(*expression));
      arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, expression] : list.named) {
      BUTTER_ASSIGN(Value value, evaluate(*expression));
      arguments.named.emplace_back(name, std::move(value));
    }
    if (list.more_positional) {
      BUTTER_ASSIGN(const Value more, evaluate(*list.more_positional));
      BUTTER_ASSIGN(const std::vector<Value> items, with_line(line, items_of(runtime_, more)));
      arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
    }
    if (list.more_named) BUTTER_TRY(add_named(*list.more_named, line, arguments));
    return arguments;
  }

  Status add_named(const Expression& expression, int line, Arguments& arguments) {
    BUTTER_ASSIGN(const Value more, evaluate(expression));
    if (!more.is(Kind::kDict)) {
      return fail(StatusCode::kInvalidArgument, "template line {}: '**' takes a dict, found {}", line,
                  more.type_name());
    }
    const auto& entries = more.as_dict().entries();
    const size_t written = arguments.named.size();
    BUTTER_TRY(use_steps(static_cast<int64_t>(entries.size() * (1 + written)), line));
    for (const auto& [key, value] : entries) {
      if (!key.is(Kind::kText)) {
        return fail(StatusCode::kInvalidArgument, "template line {}: names behind '**' must be str, found {}",
                    line, key.type_name());
      }
      for (size_t i = 0; i < written; ++i) {
        if (arguments.named[i].first != key.bytes()) continue;
        return fail(StatusCode::kInvalidArgument, "template line {}: the argument '{}' is given twice", line,
                    arguments.named[i].first);
      }
      arguments.named.emplace_back(key.bytes(), value);
    }
    return {};
  }

  Result<Value> evaluate(const CallExpression& node, int line) {
    BUTTER_ASSIGN(const Value callee, evaluate(*node.callee));
    BUTTER_ASSIGN(const Arguments arguments, evaluate(node.arguments, line));
    return call(callee, arguments, line);
  }

  Result<Value> call(const Value& callee, const Arguments& arguments, int line) {
    switch (callee.kind()) {
      case Kind::kMacro:
        return call_macro(*callee.as_macro(), arguments, line);
      case Kind::kFunction: {
        const Builtin& row = *find_function(callee.as_function());
        return with_line(line, call_builtin(runtime_, row, "function", Value(), arguments));
      }
      case Kind::kMethod: {
        const Method& method = callee.as_method();
        return with_line(line, call_builtin(runtime_, *method.row, "method", method.receiver, arguments));
      }
      case Kind::kUndefined:
        return at_line(line, Error(StatusCode::kInvalidArgument, *callee.as_undefined().why));
      case Kind::kLoop:
        return call_loop(callee.as_loop(), arguments, line);
      case Kind::kHelper:
        if (callee.as_helper().what != Helper::What::kJoiner) break;
        if (std::exchange(callee.as_helper().at, 1) == 0) return Value::text("");
        return callee.as_helper().items[0];
      default:
        break;
    }
    return at_line(line, Error(StatusCode::kInvalidArgument,
                               fmt::format("a value of type {} cannot be called", callee.type_name())));
  }

  // Arguments by parameter: a value, or nothing where the default is wanted.
  struct BoundMacro {
    std::vector<std::optional<Value>> values;
    std::vector<Value> varargs;
    Dict kwargs;
    std::optional<Value> caller;
  };

  Result<BoundMacro> bind(const MacroDefinition& definition, const Arguments& arguments, int line) {
    BoundMacro bound;
    const size_t count = definition.parameters.size();
    bound.values.resize(count);
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      if (i < count) {
        bound.values[i] = arguments.positional[i];
      } else if (definition.takes_varargs) {
        bound.varargs.push_back(arguments.positional[i]);
      } else {
        return at_line(line, Error(StatusCode::kInvalidArgument,
                                   fmt::format("macro '{}' takes at most {} arguments, found {}",
                                               definition.name, count, arguments.positional.size())));
      }
    }
    for (const auto& [name, value] : arguments.named)
      BUTTER_TRY(bind_named(definition, name, value, line, bound));
    return bound;
  }

  Status bind_named(const MacroDefinition& definition, const std::string& name, const Value& value, int line,
                    BoundMacro& bound) {
    for (size_t i = 0; i < definition.parameters.size(); ++i) {
      if (definition.parameters[i].first != name || bound.values[i]) continue;
      bound.values[i] = value;
      return {};
    }
    if (name == "caller" && definition.takes_caller && !bound.caller) {
      bound.caller = value;
      return {};
    }
    if (definition.takes_kwargs) return bound.kwargs.set(Value::text(name), value);
    return at_line(line,
                   Error(StatusCode::kInvalidArgument,
                         fmt::format("macro '{}' has no argument named '{}' left", definition.name, name)));
  }

  Result<Value> call_macro(const Macro& macro, const Arguments& arguments, int line) {
    const MacroDefinition& definition = *macro.definition;
    if (macro.scope == nullptr) {
      return at_line(
          line, Error(StatusCode::kUnsupported,
                      fmt::format("macro '{}' is called after the block it was made in", definition.name)));
    }
    BUTTER_ASSIGN(BoundMacro bound, bind(definition, arguments, line));
    ScopeGuard scope(*this, macro.scope);
    for (size_t i = 0; i < definition.parameters.size(); ++i) {
      const auto& [name, otherwise] = definition.parameters[i];
      if (bound.values[i]) {
        scope_->set(name, *std::move(bound.values[i]));
      } else if (otherwise) {
        BUTTER_ASSIGN(Value value, evaluate(*otherwise));
        scope_->set(name, std::move(value));
      } else {
        scope_->set(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
      }
    }
    if (definition.takes_caller) {
      scope_->set("caller",
                  bound.caller ? *std::move(bound.caller) : Value::undefined("no caller is defined"));
    }
    if (definition.takes_kwargs) {
      BUTTER_ASSIGN(Value kwargs, with_line(line, runtime_.make(std::move(bound.kwargs))));
      scope_->set("kwargs", std::move(kwargs));
    }
    if (definition.takes_varargs) {
      BUTTER_ASSIGN(Value varargs, with_line(line, runtime_.make_tuple(std::move(bound.varargs))));
      scope_->set("varargs", std::move(varargs));
    }
    Capture capture(*this);
    BUTTER_TRY(run_body(definition.body));
    return with_line(line, capture.finish());
  }

  Result<Value> evaluate(const Filter& node, int line) {
    BUTTER_ASSIGN(const Value input, evaluate(*node.input));
    BUTTER_ASSIGN(const Arguments arguments, evaluate(node.arguments, line));
    return with_line(line, call_builtin(runtime_, *node.row, "filter", input, arguments));
  }

  Result<Value> evaluate(const Test& node, int line) {
    BUTTER_ASSIGN(const Value input, evaluate(*node.input));
    BUTTER_ASSIGN(const Arguments arguments, evaluate(node.arguments, line));
    return with_line(line, call_builtin(runtime_, *node.row, "test", input, arguments));
  }

  Result<Value> evaluate(const Unary& node, int line) {
    BUTTER_ASSIGN(const Value operand, evaluate(*node.operand));
    switch (node.op) {
      case Unary::Op::kNot:
        return Value(!operand.truthy());
      case Unary::Op::kNegate:
        return with_line(line, negate(operand));
      case Unary::Op::kPlus:
        return with_line(line, unary_plus(operand));
    }
    return Value();
  }

  Result<Value> evaluate(const Arithmetic& node, int line) {
    BUTTER_ASSIGN(Value result, evaluate(*node.first));
    for (const auto& [op, expression] : node.rest) {
      BUTTER_ASSIGN(const Value operand, evaluate(*expression));
      BUTTER_ASSIGN(result, with_line(line, binary(runtime_, op, result, operand)));
    }
    return result;
  }

  Result<Value> evaluate(const Comparison& node, int line) {
    BUTTER_ASSIGN(Value left, evaluate(*node.first));
    for (const auto& [op, expression] : node.rest) {
      BUTTER_ASSIGN(Value right, evaluate(*expression));
      BUTTER_ASSIGN(const bool holds, with_line(line, compare(runtime_, op, left, right)));
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Result<Value> evaluate(const Concatenation& node, int line) {
    TextBuilder builder(runtime_.budget());
    for (const ExpressionPtr& part : node.parts) {
      BUTTER_ASSIGN(const Value value, evaluate(*part));
      if (Status status = append_str(runtime_, builder, value); !status) return at_line(line, status.error());
    }
    return with_line(line, runtime_.make(builder));
  }

  Result<Value> evaluate(const Logic& node, int) {
    Value value;
    for (const ExpressionPtr& operand : node.operands) {
      BUTTER_ASSIGN(value, evaluate(*operand));
      if (value.truthy() == node.is_or) break;
    }
    return value;
  }

  Result<Value> evaluate(const Conditional& node, int) {
    BUTTER_ASSIGN(const Value test, evaluate(*node.test));
    if (test.truthy()) return evaluate(*node.value);
    if (node.otherwise) return evaluate(*node.otherwise);
    return Value::undefined("an inline 'if' is false and has no 'else'");
  }

  // A loop that goes on, and the scope in which it began.
  struct OpenLoop {
    const Loop* loop;
    const For* node;
    Scope* outer;
  };

  Runtime runtime_;
  std::deque<Macro> macros_;
  std::vector<OpenLoop> loops_;
  TextBuilder output_;
  TextBuilder* out_;
  Scope root_;
  Scope* scope_;
};

}  // namespace

Result<Text> evaluate(const Program& program, const Environment& environment, const Limits& limits) {
  return Evaluator(environment, limits).run(program);
}

}  // namespace butter::jinja
