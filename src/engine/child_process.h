// A child process whose last words on stderr are kept: for the one program that Butter runs, pip.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace butter {

struct ChildResult {
  int exit_status = 0;  // 128 + signal where a signal ended it
  std::string errors;   // the end of what it wrote to stderr
};

// Runs arguments[0], found on the PATH, without a shell, with `environment` added to this process's. stdin
// and stdout are /dev/null. `on_tick` is called about ten times a second; where it returns false the child is
// ended and the result is kCancelled. kNotFound where there is no such program.
Result<ChildResult> run_child(const std::vector<std::string>& arguments,
                              const std::vector<std::pair<std::string, std::string>>& environment,
                              const std::function<bool()>& on_tick);

}  // namespace butter
