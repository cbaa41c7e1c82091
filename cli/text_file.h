// Writing a small text file so that it is whole or absent.
#pragma once

#include <string>
#include <string_view>

namespace butter::cli {

// Writes beside `path` and takes its place; throws Failure and leaves nothing where that does not work.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace butter::cli
