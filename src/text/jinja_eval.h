// The evaluator: a syntax tree and variables to text.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"

namespace butter::jinja {

struct Environment {
  std::vector<std::pair<std::string, Value>> variables;
  std::tm now = {};  // for strftime_now()
};

// Renders the program. The program and the values are only read: several threads may render one program at
// once, each with variables of its own or with shared ones of texts, numbers, lists and dicts.
// The text's content spans are the bytes that derive from Value::content() texts among the variables.
// Errors name the line of the template.
//
// Scopes are jinja2's: a name that a loop, a macro, a with, a filter or a set block sets is gone when it
// ends, and an if has no scope of its own. One difference: jinja2 decides when it compiles which scope a name
// belongs to, so that a variable of the environment is undefined to an inner block that stands before an
// assignment to that name in the outer one; here it has its value until it is assigned.
Result<Text> evaluate(const Program& program, const Environment& environment, const Limits& limits);

}  // namespace butter::jinja
