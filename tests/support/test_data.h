// Where the project's test data is, for tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace butter {

inline std::string test_data(const std::string& relative) {
  return std::string(BUTTER_TEST_DATA) + "/" + relative;
}

inline std::string read_test_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace butter
