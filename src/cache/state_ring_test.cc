// Which states a ring keeps: integers alone; sequences with real ones are in tests/matrix and tests/engine.
#include "cache/state_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace butter {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Ring {
 public:
  explicit Ring(int snapshots) : ring(snapshots) {
    std::vector<HeldPage> blocks;
    for (int i = 0; i < StateRing::blocks(snapshots); ++i)
      blocks.push_back({PageHandle{}, memory_.data() + 4 * i});
    ring.take(std::move(blocks));
  }

  // One step: what it leaves is named by `value`.
  void step(int64_t position, int value) {
    *reinterpret_cast<int*>(ring.next()) = value;
    ring.commit(position);
  }
  int value() const {
    return ring.committed() == nullptr ? 0 : *reinterpret_cast<const int*>(ring.committed());
  }

  StateRing ring;

 private:
  alignas(4) std::array<std::byte, 64> memory_{};
};

TEST(StateRing, AStepNeverWritesWhatItReadsOrASnapshot) {
  Ring states(2);
  EXPECT_EQ(states.ring.committed(), nullptr) << "zeros at the beginning";
  for (int step = 1; step <= 20; ++step) {
    const std::byte* read = states.ring.committed();
    EXPECT_NE(states.ring.next(), read);
    states.step(step % 3 == 0 ? step / 3 * 64 : step * 64 + 1, step);
    EXPECT_EQ(states.value(), step);
  }
}

TEST(StateRing, AStepThatFailsLeavesTheCommittedState) {
  Ring states(0);
  states.step(1, 7);
  *reinterpret_cast<int*>(states.ring.next()) = 8;  // and is not committed
  EXPECT_EQ(states.value(), 7);
  states.step(2, 9);
  EXPECT_EQ(states.value(), 9);
}

TEST(StateRing, OnlyPageBoundariesBecomeSnapshotsAndTheNewestStay) {
  Ring states(2);
  for (const int position : {10, 64, 100, 128, 192, 200}) states.step(position, position);
  EXPECT_THAT(states.ring.snapshots(), ElementsAre(128, 192));
  EXPECT_EQ(states.value(), 200);
  states.ring.restore(128);
  EXPECT_EQ(states.value(), 128);
  EXPECT_THAT(states.ring.snapshots(), ElementsAre(128)) << "what came later is of another past";
  states.ring.restore(0);
  EXPECT_EQ(states.value(), 0);
  EXPECT_THAT(states.ring.snapshots(), IsEmpty());
}

TEST(StateRing, MarkedSnapshotsOutlastOthers) {
  Ring states(3);
  states.step(64, 1);
  states.ring.mark();
  states.step(128, 2);
  states.ring.mark();
  for (const int position : {192, 256, 320}) states.step(position, position);
  EXPECT_THAT(states.ring.snapshots(), ElementsAre(64, 128, 320));
  states.ring.mark();
  states.step(384, 6);
  EXPECT_THAT(states.ring.snapshots(), ElementsAre(128, 320, 384)) << "of the marks the oldest goes";
}

TEST(StateRing, WithoutSnapshotsThereIsOnlyTheBeginning) {
  Ring states(0);
  states.step(64, 1);
  states.step(128, 2);
  EXPECT_THAT(states.ring.snapshots(), IsEmpty());
  states.ring.mark();
  states.ring.restore(0);
  EXPECT_EQ(states.value(), 0);
}

TEST(StateRing, ACopyHasTheSameStatesInItsOwnBlocks) {
  Ring states(2), twin(2);
  for (const int position : {64, 128, 130}) states.step(position, position);
  states.ring.copy_to(twin.ring, 4);
  states.step(131, 131);
  EXPECT_EQ(twin.value(), 130);
  EXPECT_THAT(twin.ring.snapshots(), ElementsAre(64, 128));
  twin.ring.restore(64);
  EXPECT_EQ(twin.value(), 64);
  EXPECT_EQ(states.value(), 131);
}

}  // namespace
}  // namespace butter
