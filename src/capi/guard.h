// What stands between C and C++: errors become a status and a sentence, and no exception passes.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "butter/c.h"
#include "core/status.h"

namespace butter::capi {

// Keeps the sentence for butter_last_error(), and returns the status.
butter_status remember(const char* function, const Error& error) noexcept;
butter_status remember(const char* function, butter_status status, const char* what) noexcept;

// Runs the body of a function: a callable that returns a Status.
template <typename Body>
butter_status guarded(const char* function, Body body) noexcept {
  try {
    const Status status = body();
    return status ? BUTTER_OK : remember(function, status.error());
  } catch (const std::bad_alloc&) {
    return remember(function, BUTTER_OUT_OF_MEMORY, "the machine has no memory left for what was asked");
  } catch (const std::exception& error) {
    return remember(function, BUTTER_INTERNAL, error.what());
  } catch (...) {
    return remember(function, BUTTER_INTERNAL, "an exception of a kind that is not known");
  }
}

// "engine is NULL; a pointer is expected"
inline Status require(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return fail(StatusCode::kInvalidArgument, "{} is NULL; a pointer is expected", name);
}

}  // namespace butter::capi
