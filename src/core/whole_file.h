// Writing a small file so that it is whole or absent.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace butter {

// Writes beside `path`, syncs, and takes its place; leaves nothing where that does not work. The folder is
// there. Any number of threads and processes may write the same path: the last one's text stays.
Status write_whole_file(const std::string& path, std::string_view text);

}  // namespace butter
