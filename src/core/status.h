// Status and Result<T>: how everything that a user, a file or a peer can cause is reported.
//
// A message is one sentence that names the thing (file, tensor, option), what was found and what was
// expected. The library never prints and never aborts on input; what only a bug can cause is a
// BUTTER_CHECK (core/check.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace butter {

enum class StatusCode {
  kInvalidArgument,  // an option or a request is wrong
  kNotFound,         // a file, a model, a tensor is missing
  kCorrupt,          // a file contradicts itself or its format
  kUnsupported,      // well formed, and Butter does not do it
  kOutOfMemory,      // more bytes than the budget or the machine has
  kLimit,            // a bound that was asked for is reached (context, depth, steps)
  kCancelled,        // the caller asked to stop
  kNumeric,          // NaN or infinity where the step cannot go on
  kIo,               // the operating system refused a read, a write or a map
  kStale,            // a handle whose object is gone
};

// Short lower-case name of a code, for logs and JSON.
const char* status_code_name(StatusCode code);

// What went wrong. Value type; safe to move between threads.
class Error {
 public:
  Error(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error seen from one level up: "context: message".
  Error within(const std::string& context) const { return Error(code_, context + ": " + message_); }

 private:
  StatusCode code_;
  std::string message_;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// return fail(StatusCode::kCorrupt, "{} has {} rows; {} expected", name, found, wanted);
template <typename... Args>
tl::unexpected<Error> fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace butter

#define BUTTER_CONCAT_INNER(a, b) a##b
#define BUTTER_CONCAT(a, b) BUTTER_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression, if it has one.
#define BUTTER_TRY(expression)                                                       \
  do {                                                                               \
    if (auto butter_try_ = (expression); !butter_try_) {                             \
      return ::tl::unexpected<::butter::Error>(std::move(butter_try_).error());      \
    }                                                                                \
  } while (false)

// BUTTER_ASSIGN(auto x, make_x()); returns the error, or assigns the value.
#define BUTTER_ASSIGN(target, expression) \
  BUTTER_ASSIGN_INNER(BUTTER_CONCAT(butter_result_, __LINE__), target, expression)
#define BUTTER_ASSIGN_INNER(result, target, expression)                        \
  auto result = (expression);                                                  \
  if (!result) return ::tl::unexpected<::butter::Error>(std::move(result).error()); \
  target = std::move(*result)
