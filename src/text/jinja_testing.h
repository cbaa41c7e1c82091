// Templates as tests render them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_eval.h"

namespace butter::jinja {

// tests/data/jinja/cases.json.zst, parsed once: see generate.py there.
const nlohmann::ordered_json& golden_cases();

// 26 July 2024, 13:05:09, which generate.py has too.
std::tm test_time();

Result<Text> render(const std::string& source, std::vector<std::pair<std::string, Value>> variables = {},
                    const Limits& limits = {});
// The output, or the error's message behind "error: ".
std::string shown(const Result<Text>& text);
// The content bytes in [brackets]; the texts of tests have none of their own.
std::string marked(const Text& text);

}  // namespace butter::jinja
