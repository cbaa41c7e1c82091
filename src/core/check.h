// BUTTER_CHECK: what only a bug in Butter can cause. Input errors are Results (core/status.h).
#pragma once

namespace butter {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace butter

#define BUTTER_CHECK(condition)                                               \
  do {                                                                        \
    if (!(condition)) ::butter::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
