// What --stats and /stats say of an answer.
#pragma once

#include <string>

#include "butter/session.h"

namespace butter::cli {

// Two lines: speed, and the cache beside a raw one of the same positions.
std::string statistics_of(const GenerateResult& result);

}  // namespace butter::cli
