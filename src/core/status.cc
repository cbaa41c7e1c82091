#include "core/status.h"

namespace butter {

const char* status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kLimit:
      return "limit";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kNumeric:
      return "numeric";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kStale:
      return "stale";
  }
  return "unknown";
}

}  // namespace butter
