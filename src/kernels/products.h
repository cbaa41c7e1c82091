// How exact the products of attention have to be.
#pragma once

#include <cstdint>

namespace butter {

// What a device may round queries, keys, values and softmax weights to before it multiplies them; sums are
// float32 either way.
enum class Products : uint8_t {
  kBf16,   // 8 bits: for models with a weight that is no finer itself
  kExact,  // 16 bits and more
};

}  // namespace butter
