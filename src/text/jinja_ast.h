// The syntax tree of a template. Plain data, constant once parsed; the evaluator walks it.
//
// Chains of operators of one precedence (a + b - c) are one node, so that only nesting makes the tree deep;
// the parser bounds the nesting, and so the recursion of whoever walks or frees the tree.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"

namespace butter::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Body = std::vector<Statement>;

// ---- expressions ----

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
// A list or a tuple.
struct SequenceLiteral {
  Sequence::Flavour flavour;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object;
  ExpressionPtr key;
};
// Parts that are left out are null.
struct Slice {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;
};
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *expression, or null
  ExpressionPtr more_named;       // **expression, or null
};
struct CallExpression {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {
  ExpressionPtr input;  // null in {% filter %} and {% set x | f %}: the block's text
  const Builtin* row;
  ArgumentList arguments;
};
struct Test {
  ExpressionPtr input;
  const Builtin* row;
  ArgumentList arguments;
};
struct Unary {
  enum class Op { kNot, kNegate, kPlus } op;
  ExpressionPtr operand;
};
// first op operand op operand ..., from left to right.
struct Arithmetic {
  ExpressionPtr first;
  std::vector<std::pair<BinaryOp, ExpressionPtr>> rest;
};
// a < b <= c: true if every neighbour pair compares.
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
// a ~ b ~ c
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
// a and b and c; a or b or c: the value that decides.
struct Logic {
  bool is_or;
  std::vector<ExpressionPtr> operands;
};
// value if test else otherwise; `otherwise` may be null.
struct Conditional {
  ExpressionPtr test, value, otherwise;
};

struct Expression {
  int line;
  int depth;  // of the tree below, 1 for a leaf
  std::variant<Literal, Name, SequenceLiteral, DictLiteral, Attribute, Item, Slice, CallExpression, Filter,
               Test, Unary, Arithmetic, Comparison, Concatenation, Logic, Conditional>
      node;
};

// ---- statements ----

// What is assigned to: a name, namespace.attribute, or a tuple of targets.
struct Target {
  enum class Kind { kName, kAttribute, kTuple } kind = Kind::kName;
  int line = 1;
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

struct Data {
  Value text;
};
struct Output {
  std::vector<ExpressionPtr> values;
};
struct Branch {
  ExpressionPtr test;  // null for else
  Body body;
};
struct If {
  std::vector<Branch> branches;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr filter;  // may be null
  Body body;
  Body otherwise;
  bool is_recursive = false;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<Filter> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
};
struct FilterBlock {
  std::vector<Filter> filters;
  Body body;
};
// Parameters and body of {% macro %} and {% call %}.
struct MacroDefinition {
  std::string name;                                               // "caller" for the body of a call block
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with default, or null
  Body body;
  bool takes_varargs = false;  // the body speaks of varargs, kwargs, caller
  bool takes_kwargs = false;
  bool takes_caller = false;
};
struct CallBlock {
  ExpressionPtr call;  // a CallExpression
  MacroDefinition caller;
};
// {% generation %}: marks what a model said, for training; a scope of its own.
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Data, Output, If, For, Set, SetBlock, With, FilterBlock, MacroDefinition, CallBlock,
               Generation, Break, Continue>
      node;
};

// A parsed template.
struct Program {
  Body body;
};

}  // namespace butter::jinja
