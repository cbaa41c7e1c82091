#include "cli/build_commit.h"

namespace butter::cli {

const char* build_commit() {
  return BUTTER_COMMIT;
}

}  // namespace butter::cli
