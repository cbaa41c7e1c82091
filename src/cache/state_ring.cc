#include "cache/state_ring.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "kernels/kv_layout.h"

namespace butter {

int StateRing::free_block() const {
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    const auto holds = [&](const Snapshot& snapshot) { return snapshot.block == block; };
    if (block != committed_ && std::none_of(snapshots_.begin(), snapshots_.end(), holds)) return block;
  }
  BUTTER_CHECK(!"a ring has a block more than it holds states");
  return -1;
}

void StateRing::make_room() {
  if (static_cast<int>(snapshots_.size()) < most_snapshots_) return;
  const auto plain = std::find_if(snapshots_.begin(), snapshots_.end(),
                                  [](const Snapshot& snapshot) { return !snapshot.marked; });
  snapshots_.erase(plain != snapshots_.end() ? plain : snapshots_.begin());
}

void StateRing::commit(int64_t position) {
  committed_ = free_block();
  if (most_snapshots_ == 0 || position % kPageRows != 0) return;
  make_room();
  snapshots_.push_back({position, committed_});
}

void StateRing::mark() {
  if (snapshots_.empty() || snapshots_.back().marked) return;
  snapshots_.back().marked = true;
  // One place is left to the boundaries that are passed meanwhile.
  auto marks = std::count_if(snapshots_.begin(), snapshots_.end(),
                             [](const Snapshot& snapshot) { return snapshot.marked; });
  for (Snapshot& snapshot : snapshots_) {
    if (marks < std::max(most_snapshots_, 2)) return;
    if (snapshot.marked) --marks;
    snapshot.marked = false;
  }
}

std::vector<int64_t> StateRing::snapshots() const {
  std::vector<int64_t> positions;
  for (const Snapshot& snapshot : snapshots_) positions.push_back(snapshot.position);
  return positions;
}

void StateRing::restore(int64_t position) {
  committed_ = -1;
  std::erase_if(snapshots_, [&](const Snapshot& snapshot) { return snapshot.position > position; });
  if (position == 0) return;
  BUTTER_CHECK(!snapshots_.empty() && snapshots_.back().position == position);
  committed_ = snapshots_.back().block;
}

void StateRing::copy_to(StateRing& twin, int64_t bytes) const {
  twin.committed_ = committed_;
  twin.snapshots_ = snapshots_;
  const auto copy = [&](int block) {
    std::memcpy(twin.data(block), data(block), static_cast<size_t>(bytes));
  };
  if (committed_ >= 0) copy(committed_);
  for (const Snapshot& snapshot : snapshots_) {
    if (snapshot.block != committed_) copy(snapshot.block);
  }
}

std::byte* StateRing::begin_filled() {
  committed_ = 0;
  return data(0);
}

}  // namespace butter
