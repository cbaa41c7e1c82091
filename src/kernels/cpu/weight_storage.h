// WeightStorage: where repacked weights stand: large slabs on huge pages, filled one weight after the other.
//
// A weight of its own mapping would stand on small pages, and reading it at the speed of memory would wait
// for address translation. Pieces live as long as the storage. Not thread-safe.
#pragma once

#include <algorithm>
#include <vector>

#include "core/buffer.h"

namespace butter::cpu {

class WeightStorage {
 public:
  // `bytes` at a multiple of 64. The end of a slab that the next weight does not fit into is left, untouched
  // and so without memory behind it.
  Result<std::byte*> take(int64_t bytes) {
    const int64_t piece = Arena::piece_bytes(bytes);
    if (slabs_.empty() || slabs_.back().capacity() - slabs_.back().used() < piece) {
      BUTTER_ASSIGN(Buffer slab, Buffer::allocate(std::max(kSlabBytes, piece)));
      slabs_.emplace_back(std::move(slab));
    }
    return slabs_.back().take(bytes);
  }

 private:
  static constexpr int64_t kSlabBytes = int64_t{64} << 20;
  std::vector<Arena> slabs_;
};

}  // namespace butter::cpu
