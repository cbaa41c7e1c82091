// Scheme strings: "raw", "k=raw,v=raw": which row format keys and values are sealed into.
//
// One parsed type (KvScheme, kernels/kv_layout.h), one parser and one printer; a name that does not exist is
// an error that lists those that do.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "kernels/kv_layout.h"

namespace butter {

// `raw` is the type of raw rows, which the model and the device decide.
Result<KvScheme> parse_scheme(std::string_view text, DType raw);
std::string scheme_name(const KvScheme& scheme);

}  // namespace butter
