// Reads bytes, so that the sanitizers see a view that leaves its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace butter {

// Keeps the compiler from leaving out the reads.
inline volatile uint64_t touched = 0;

inline void touch(const void* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += static_cast<const unsigned char*>(data)[i];
  touched = touched + sum;
}

inline void touch(std::string_view text) {
  touch(text.data(), text.size());
}

}  // namespace butter
