// The parser: template source to syntax tree.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace butter::jinja {

// Errors name the construct and its line: what is not well formed, and what Butter does not do (an unknown
// tag, filter or test is an error here, also where it would never be reached).
Result<Program> parse_program(std::string_view source, const Limits& limits);

}  // namespace butter::jinja
