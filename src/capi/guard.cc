#include "capi/guard.h"

#include "butter/version.h"

namespace butter::capi {
namespace {

struct LastError {
  std::string sentence;
  const char* shown = "";  // of the sentence, or a text that needs no memory
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

butter_status status_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return BUTTER_INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return BUTTER_NOT_FOUND;
    case StatusCode::kCorrupt:
      return BUTTER_CORRUPT;
    case StatusCode::kUnsupported:
      return BUTTER_UNSUPPORTED;
    case StatusCode::kOutOfMemory:
      return BUTTER_OUT_OF_MEMORY;
    case StatusCode::kLimit:
      return BUTTER_LIMIT;
    case StatusCode::kCancelled:
      return BUTTER_CANCELLED;
    case StatusCode::kNumeric:
      return BUTTER_NUMERIC;
    case StatusCode::kIo:
      return BUTTER_IO;
    case StatusCode::kStale:
      return BUTTER_STALE;
  }
  return BUTTER_INTERNAL;
}

}  // namespace

butter_status remember(const char* function, butter_status status, const char* what) noexcept {
  LastError& error = last_error();
  try {
    error.sentence = std::string(function) + ": " + what;
    error.shown = error.sentence.c_str();
  } catch (...) {
    error.shown = "the machine has no memory left";
  }
  return status;
}

butter_status remember(const char* function, const Error& error) noexcept {
  return remember(function, status_of(error.code()), error.message().c_str());
}

}  // namespace butter::capi

const char* butter_last_error(void) {
  return butter::capi::last_error().shown;
}

const char* butter_version(void) {
  return butter::kVersion;
}

const char* butter_status_name(int status) {
  using butter::StatusCode;
  if (status == BUTTER_OK) return "ok";
  if (status == BUTTER_INTERNAL) return "internal";
  for (int code = 0; code <= static_cast<int>(StatusCode::kStale); ++code) {
    if (butter::capi::status_of(static_cast<StatusCode>(code)) == status)
      return butter::status_code_name(static_cast<StatusCode>(code));
  }
  return "unknown";
}
