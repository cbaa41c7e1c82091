// Failure: why a command ends early: an exit status and one sentence for stderr.
//
// Commands throw it and main() alone catches it, so that a command reads as the story of what goes right. It
// never crosses the library: a callback that the library calls must not throw.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "butter/status.h"

namespace butter::cli {

constexpr int kExitOk = 0;
constexpr int kExitError = 1;     // the model, the machine or a value is not what was needed
constexpr int kExitUsage = 2;     // the command line itself does not read
constexpr int kExitSignal = 128;  // and the number of the signal

class Failure : public std::exception {
 public:
  Failure(int exit_status, std::string sentence)
      : exit_status_(exit_status), sentence_(std::move(sentence)) {}
  int exit_status() const { return exit_status_; }
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  int exit_status_;
  std::string sentence_;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(kExitError, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void refuse_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(kExitUsage, fmt::format(format, std::forward<Args>(args)...));
}

// The value of a Result, or its error as a Failure.
template <typename T>
T must(Result<T> result) {
  if (!result) throw Failure(kExitError, result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace butter::cli
