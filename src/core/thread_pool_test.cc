#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace butter {
namespace {

TEST(Split, PartsCoverEverythingOnceAndStartOnTheGrain) {
  for (int64_t count : {0, 1, 15, 16, 17, 1000}) {
    for (int workers : {1, 2, 3, 7}) {
      int64_t next = 0;
      for (int index = 0; index < workers; ++index) {
        const IndexRange part = split(count, workers, index, 16);
        EXPECT_EQ(part.begin, next);
        EXPECT_TRUE(part.begin % 16 == 0 || part.begin == count);
        next = part.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(ThreadPool, BarrierShowsWhatOthersWrote) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::vector<int> cells(static_cast<size_t>(threads));
    for (int round = 1; round <= 200; ++round) {
      std::atomic<int> wrong{0};
      pool.run([&](const Worker& worker) {
        for (int phase = 0; phase < 5; ++phase) {
          cells[static_cast<size_t>(worker.index())] = round * 10 + phase;
          worker.barrier();
          for (int cell : cells) wrong += cell != round * 10 + phase;
          worker.barrier();
        }
      });
      ASSERT_EQ(wrong.load(), 0);
    }
  }
}

TEST(ThreadPool, ParkedWorkersWakeForTheNextRegion) {
  ThreadPool pool(3);
  std::atomic<int> ran{0};
  pool.run([&](const Worker&) { ++ran; });
  // Long enough to be past the spinning on any machine: a loop that the workers sit out.
  volatile uint64_t sum = 0;
  for (int i = 0; i < 20000000; ++i) sum = sum + static_cast<uint64_t>(i);
  pool.run([&](const Worker&) { ++ran; });
  EXPECT_EQ(ran.load(), 6);
}

TEST(ThreadPool, UsableCpusIsAtLeastOne) {
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace butter
