// The version of the library; the same as in CMakeLists.txt and CHANGELOG.md.
#pragma once

namespace butter {

constexpr const char* kVersion = "0.1.0";

}  // namespace butter
