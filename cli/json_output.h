// One JSON object on stdout: what --json prints. Names keep their order; bytes that are no UTF-8 become
// U+FFFD.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace butter::cli {

void print_json(const nlohmann::ordered_json& value);

}  // namespace butter::cli
