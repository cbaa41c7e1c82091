// fail() and the macros that pass errors on; the types are public (butter/status.h).
//
// What only a bug can cause is not a Status but a BUTTER_CHECK (core/check.h).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "butter/status.h"

namespace butter {

// return fail(StatusCode::kCorrupt, "{} has {} rows; {} expected", name, found, wanted);
template <typename... Args>
tl::unexpected<Error> fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace butter

#define BUTTER_CONCAT_INNER(a, b) a##b
#define BUTTER_CONCAT(a, b) BUTTER_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression, if it has one.
#define BUTTER_TRY(expression)                                                  \
  do {                                                                          \
    if (auto butter_try_ = (expression); !butter_try_) {                        \
      return ::tl::unexpected<::butter::Error>(std::move(butter_try_).error()); \
    }                                                                           \
  } while (false)

// BUTTER_ASSIGN(auto x, make_x()); returns the error, or assigns the value.
#define BUTTER_ASSIGN(target, expression) \
  BUTTER_ASSIGN_INNER(BUTTER_CONCAT(butter_result_, __LINE__), target, expression)
#define BUTTER_ASSIGN_INNER(result, target, expression)                             \
  auto result = (expression);                                                       \
  if (!result) return ::tl::unexpected<::butter::Error>(std::move(result).error()); \
  target = std::move(*result)
