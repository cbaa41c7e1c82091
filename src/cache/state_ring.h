// StateRing: the recurrent state of one sequence: what the next step begins with, room for what it leaves,
// and snapshots of page boundaries that the sequence may go back to.
//
// State cannot be rolled back, so a step never writes what it reads: it takes up the committed block and
// leaves its result in another, which commit() makes the committed one; a step that fails leaves no trace. At
// a page boundary the committed block becomes a snapshot as it stands, without a copy. Of the `snapshots`
// kept, the marked ones stay longest: a new one takes the place of the oldest that is not marked.
//
// Blocks are leased all at once, at the first step: fixed bytes a sequence. Owns nothing: CacheSet leases and
// releases the blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/page_table.h"

namespace butter {

class StateRing {
 public:
  // Blocks of a sequence: the committed state, the next one, and the snapshots.
  static int blocks(int snapshots) { return snapshots + 2; }

  explicit StateRing(int snapshots = 0) : most_snapshots_(snapshots) {}

  bool leased() const { return !blocks_.empty(); }
  void take(std::vector<HeldPage> blocks) { blocks_ = std::move(blocks); }
  const std::vector<HeldPage>& held() const { return blocks_; }

  // The state that position `position()` begins with; null where it is all zeros.
  std::byte* committed() const { return committed_ < 0 ? nullptr : data(committed_); }
  // Where a step leaves its state.
  std::byte* next() const { return data(free_block()); }

  // The step's state is that of `position` now.
  void commit(int64_t position);
  // Keeps the newest snapshot when later ones come. The marks before the last few lose theirs.
  void mark();

  // The positions of the snapshots, in the order in which they were taken.
  std::vector<int64_t> snapshots() const;
  // Makes a snapshot the committed state, or zeros for position 0; later snapshots are dropped.
  void restore(int64_t position);
  void drop_snapshots() { snapshots_.clear(); }

  // The same states in a twin's own blocks, which take() has given it.
  void copy_to(StateRing& twin, int64_t bytes) const;
  // Makes a block the committed state, for the caller to fill.
  std::byte* begin_filled();

 private:
  struct Snapshot {
    int64_t position = 0;
    int block = 0;
    bool marked = false;
  };

  std::byte* data(int block) const { return blocks_[static_cast<size_t>(block)].data; }
  int free_block() const;
  void make_room();

  int most_snapshots_ = 0;
  std::vector<HeldPage> blocks_;
  std::vector<Snapshot> snapshots_;
  int committed_ = -1;
};

}  // namespace butter
