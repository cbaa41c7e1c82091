// str.format(): '{} is {name!r:>8}'.format(a, name=b).
#pragma once

#include "text/jinja_builtins.h"

namespace butter::jinja {

Result<Value> format_fields(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace butter::jinja
