// Status and Result<T>: how Butter reports what a user, a file or a peer can cause.
//
// A message is one sentence that names the thing (file, tensor, option), what was found and what was
// expected. The library never prints and never aborts on input.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "butter/export.h"

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
BUTTER_API const char* status_code_name(StatusCode code);

// What went wrong. Value type; safe to move between threads.
class BUTTER_API Error {
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

}  // namespace butter
