// JSON to Values: tools and documents as they come from a client, contexts of tests.
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace butter::jinja {

// Whose words the strings of a JSON text are.
enum class Provenance {
  kTemplate,  // the model's files': special tokens in them are special
  kContent,   // a client's: special tokens in them are words
};

// Nested no deeper than max_value_depth of `limits`, and with as many values as max_steps at most; ints must
// fit 64 bits. Object keys are strings of the same provenance.
Result<Value> value_from_json(std::string_view json, Provenance provenance, const Limits& limits = {});

}  // namespace butter::jinja
