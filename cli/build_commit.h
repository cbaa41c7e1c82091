// The commit that the binary was configured at, as `git describe --always --dirty` says it.
#pragma once

namespace butter::cli {

const char* build_commit();

}  // namespace butter::cli
