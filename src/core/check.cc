#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace butter {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "butter: internal error at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace butter
