// The table of filters on texts, which find_filter() looks through with its own.
#pragma once

#include <span>

#include "text/jinja_builtins.h"

namespace butter::jinja {

std::span<const Builtin> text_filters();

}  // namespace butter::jinja
