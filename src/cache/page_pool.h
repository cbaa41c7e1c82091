// PagePool: the memory of all caches: blocks of any size, leased, shared by count, and reused behind a fence.
//
// Blocks of one shape form a class and share slabs of whole huge pages (2 MiB, or the few of them that the
// class's blocks fill almost without rest): reading a cache on small pages would wait for address
// translation. A slab is bound to its class while one of its blocks is leased and goes back to the system
// after. The budget bounds the blocks in use, which is what plans count; a slab's other blocks may take
// memory beyond it. A page's handle names its generation: once the page is released for the last time the
// handle is stale for ever (generations are 64-bit and never repeat).
//
// A released page may still be read by steps in flight: release() names the last submission that reads it,
// and the page is reused only when the device has completed that one.
//
// Thread-safe. Handles are plain values; the pool must outlive its leases.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace butter {

struct PageHandle {
  uint32_t index = 0;
  uint64_t generation = 0;  // 0: no page
  explicit operator bool() const { return generation != 0; }
  bool operator==(const PageHandle&) const = default;
};

// A block, and how blocks share a slab: one after the other, or side by side, piece by piece
// (kernels/kv_layout.h): block i is at i · piece_bytes.
struct BlockShape {
  int64_t bytes = 0;
  int64_t piece_bytes = 0;
  int64_t slab_blocks = 0;  // PagePool::slab_blocks() or more

  BlockShape(int64_t block_bytes);  // NOLINT: a block in one piece is its bytes
  BlockShape(int64_t block_bytes, int64_t bytes_of_piece, int64_t blocks)
      : bytes(block_bytes), piece_bytes(bytes_of_piece), slab_blocks(blocks) {}
  auto operator<=>(const BlockShape&) const = default;
};

class PagePool {
 public:
  static constexpr int64_t kSlabBytes = int64_t{2} << 20;

  // What the pool needs of a device: memory, and the number of the last submission that has finished.
  struct Hooks {
    std::function<Result<Buffer>(int64_t bytes)> allocate;
    std::function<uint64_t()> completed;
  };

  PagePool(int64_t budget_bytes, Hooks hooks);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Blocks of a slab, `least` or more: as few as fill whole huge pages but for a thirty-second, or the best
  // there is among the first 32.
  static int64_t slab_blocks(int64_t block_bytes, int64_t least = 1);

  // A block of this shape with a count of one. kOutOfMemory, with the figures, when the budget is spent.
  Result<PageHandle> lease(const BlockShape& shape);
  // One more owner.
  Status retain(PageHandle page);
  // One owner less. `fence`: the last submission that may read the page (0: none does).
  Status release(PageHandle page, uint64_t fence);
  // Where the block is; kStale for a handle whose page was released.
  Result<std::byte*> data(PageHandle page) const;
  // Owners of a page; 0 for a stale handle.
  int owners(PageHandle page) const;

  int64_t budget_bytes() const { return budget_bytes_; }
  // Bytes of blocks that have an owner.
  int64_t leased_bytes() const;
  // Bytes of blocks that wait for a fence.
  int64_t pending_bytes() const;
  // Bytes of all blocks of the slabs held, leased or not.
  int64_t slab_bytes() const;
  // The most bytes that were leased at once since the pool was made or reset_peak() was called.
  int64_t peak_leased_bytes() const;
  void reset_peak();
  // Blocks of `block_bytes` that could be leased now without going over the budget.
  int64_t free_blocks(int64_t block_bytes) const;

 private:
  struct Slab;
  struct Page {
    Slab* slab = nullptr;
    std::byte* data = nullptr;
    uint64_t generation = 0;
    int owners = 0;
    uint64_t fence = 0;
  };

  Page* find(PageHandle page);
  const Page* find(PageHandle page) const;
  Result<Slab*> slab_with_room(const BlockShape& shape);
  void free_page(uint32_t index);
  void collect_pending();

  const int64_t budget_bytes_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  std::vector<Page> pages_;
  std::vector<uint32_t> unused_indices_;
  std::vector<uint32_t> pending_;
  std::map<BlockShape, std::vector<std::unique_ptr<Slab>>> classes_;
  uint64_t next_generation_ = 1;
  int64_t leased_bytes_ = 0;
  int64_t pending_bytes_ = 0;
  int64_t slab_bytes_ = 0;
  int64_t peak_leased_bytes_ = 0;
};

}  // namespace butter
