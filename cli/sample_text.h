// The texts that `butter eval` measures on where the user names none: public-domain texts of three kinds,
// which are installed with the program.
#pragma once

#include <string>
#include <vector>

#include "butter/eval.h"

namespace butter::cli {

// `source` is a file, or "sample". Throws Failure where a text is missing, empty or no UTF-8.
std::vector<NamedText> read_eval_texts(const std::string& source);

}  // namespace butter::cli
