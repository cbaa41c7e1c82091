#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "cli/terminal.h"

namespace butter::cli {

void print_json(const nlohmann::ordered_json& value) {
  write_out(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace butter::cli
