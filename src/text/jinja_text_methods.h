// The methods of str: rows of the method table.
#pragma once

#include <span>

#include "text/jinja_builtins.h"

namespace butter::jinja {

std::span<const Builtin> text_methods();

}  // namespace butter::jinja
