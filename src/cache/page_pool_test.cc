#include "cache/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

namespace butter {
namespace {

using testing::HasSubstr;

constexpr int64_t kBlock = 64 << 10;  // 32 share a slab
constexpr int64_t kBlocksOfSlab = PagePool::kSlabBytes / kBlock;

// A pool whose device has completed what the test says, and that counts what it asked the device for.
struct Fixture {
  std::atomic<uint64_t> completed{0};
  std::atomic<int> allocations{0};
  bool refuse = false;
  PagePool pool;

  explicit Fixture(int64_t budget)
      : pool(budget, {[this](int64_t bytes) -> Result<Buffer> {
                        ++allocations;
                        if (refuse)
                          return fail(StatusCode::kOutOfMemory, "the device has no {} bytes", bytes);
                        return Buffer::allocate(bytes);
                      },
                      [this] { return completed.load(); }}) {}

  PageHandle lease(int64_t bytes = kBlock) {
    const auto page = pool.lease(bytes);
    EXPECT_TRUE(page) << page.error().message();
    return page.value_or(PageHandle{});
  }
};

StatusCode code_of(const Status& status) {
  EXPECT_FALSE(status);
  return status ? StatusCode::kIo : status.error().code();
}

TEST(PagePool, BudgetBoundsBlocksInUseAndSaysWhatDoesNotFit) {
  Fixture f(2 * PagePool::kSlabBytes);
  std::vector<PageHandle> pages;
  for (int64_t i = 0; i < 2 * kBlocksOfSlab; ++i) pages.push_back(f.lease());
  EXPECT_EQ(f.pool.leased_bytes(), 2 * PagePool::kSlabBytes);
  EXPECT_EQ(f.pool.slab_bytes(), 2 * PagePool::kSlabBytes);
  EXPECT_EQ(f.pool.free_blocks(kBlock), 0);
  const auto refused = f.pool.lease(kBlock);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message(), HasSubstr("4194304"));
  EXPECT_THAT(refused.error().message(), HasSubstr("65536"));
}

TEST(PagePool, RefusedLeaseChangesNothing) {
  Fixture f(2 * kBlock);
  const PageHandle held = f.lease();
  const int asked = f.allocations;
  ASSERT_FALSE(f.pool.lease(2 * kBlock));
  EXPECT_EQ(f.pool.leased_bytes(), kBlock);
  EXPECT_EQ(f.pool.slab_bytes(), PagePool::kSlabBytes);
  EXPECT_EQ(f.pool.peak_leased_bytes(), kBlock);
  EXPECT_EQ(f.pool.free_blocks(kBlock), 1);
  EXPECT_EQ(f.pool.owners(held), 1);
  EXPECT_EQ(f.allocations, asked) << "the budget is asked before the device";
}

TEST(PagePool, DeviceWithoutMemoryIsAnErrorAndChangesNothing) {
  Fixture f(8 * PagePool::kSlabBytes);
  f.refuse = true;
  const auto refused = f.pool.lease(kBlock);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("the device has no"));
  EXPECT_EQ(f.pool.leased_bytes(), 0);
  EXPECT_EQ(f.pool.slab_bytes(), 0);
  f.refuse = false;
  EXPECT_TRUE(f.lease());
}

TEST(PagePool, BlocksOfOneSlabDoNotOverlap) {
  Fixture f(4 * PagePool::kSlabBytes);
  std::vector<PageHandle> pages;
  for (int64_t i = 0; i < 2 * kBlocksOfSlab; ++i) {
    pages.push_back(f.lease());
    std::memset(*f.pool.data(pages.back()), static_cast<int>(i), kBlock);
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    const std::byte* data = *f.pool.data(pages[i]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % Buffer::kAlignment, 0u);
    for (int64_t at : {int64_t{0}, kBlock / 2, kBlock - 1}) ASSERT_EQ(data[at], static_cast<std::byte>(i));
  }
}

TEST(PagePool, BlocksSideBySideAreWholeRunsOfPiecesAndDoNotOverlap) {
  Fixture f(4 * PagePool::kSlabBytes);
  const int64_t piece = kBlock / 4;
  const BlockShape shape(kBlock, piece, PagePool::slab_blocks(kBlock, 3));
  std::vector<std::byte*> blocks;
  for (int64_t i = 0; i < shape.slab_blocks; ++i) {
    const auto page = f.pool.lease(shape);
    ASSERT_TRUE(page);
    blocks.push_back(*f.pool.data(*page));
    EXPECT_EQ(blocks.back(), blocks.front() + i * piece) << "leased in turn, they stand in turn";
    for (int64_t part = 0; part < 4; ++part)
      std::memset(blocks.back() + part * shape.slab_blocks * piece, static_cast<int>(10 * i + part), piece);
  }
  EXPECT_EQ(f.pool.leased_bytes(), shape.slab_blocks * kBlock);
  EXPECT_LE(f.pool.leased_bytes(), f.pool.slab_bytes());
  for (int64_t i = 0; i < shape.slab_blocks; ++i) {
    for (int64_t part = 0; part < 4; ++part) {
      const std::byte* at = blocks[static_cast<size_t>(i)] + part * shape.slab_blocks * piece;
      for (int64_t byte : {int64_t{0}, piece - 1})
        ASSERT_EQ(at[byte], static_cast<std::byte>(10 * i + part)) << i << " " << part;
    }
  }
}

TEST(PagePool, EmptySlabGoesBackAndServesAnotherClass) {
  Fixture f(PagePool::kSlabBytes);
  const PageHandle small = f.lease(kBlock);
  EXPECT_EQ(f.pool.slab_bytes(), PagePool::kSlabBytes);
  ASSERT_TRUE(f.pool.release(small, 0));
  EXPECT_EQ(f.pool.slab_bytes(), 0);
  EXPECT_EQ(f.pool.free_blocks(4 * kBlock), kBlocksOfSlab / 4);
  EXPECT_TRUE(f.lease(4 * kBlock));
}

TEST(PagePool, SlabStaysWhileOneOfItsBlocksIsLeased) {
  Fixture f(2 * PagePool::kSlabBytes);
  const PageHandle first = f.lease(), second = f.lease();
  ASSERT_TRUE(f.pool.release(first, 0));
  EXPECT_EQ(f.pool.slab_bytes(), PagePool::kSlabBytes);
  ASSERT_TRUE(f.pool.release(second, 0));
  EXPECT_EQ(f.pool.slab_bytes(), 0);
}

TEST(PagePool, LargeBlocksShareWholeHugePages) {
  const int64_t large = 5 << 20;
  Fixture f(11 << 20);
  const PageHandle page = f.lease(large);
  EXPECT_EQ(f.pool.slab_bytes(), 2 * large);
  std::memset(*f.pool.data(page), 1, large);
  f.lease(large);
  EXPECT_FALSE(f.pool.lease(large));
}

TEST(PagePool, BudgetOfSoManyBlocksHoldsSoMany) {
  const int64_t block = 192 << 10;
  for (int64_t blocks : {1, 3, 9, 10, 11, 25}) {
    Fixture f(blocks * block);
    EXPECT_EQ(f.pool.free_blocks(block), blocks);
    for (int64_t i = 0; i < blocks; ++i)
      std::memset(*f.pool.data(f.lease(block)), 1, static_cast<size_t>(block));
    EXPECT_EQ(f.pool.free_blocks(block), 0);
    EXPECT_FALSE(f.pool.lease(block));
  }
}

TEST(PagePool, PageBehindAnUnfinishedSubmissionIsNotReused) {
  Fixture f(PagePool::kSlabBytes);
  std::vector<PageHandle> pages;
  for (int64_t i = 0; i < kBlocksOfSlab; ++i) pages.push_back(f.lease());
  std::byte* const read_by_7 = *f.pool.data(pages[3]);
  ASSERT_TRUE(f.pool.release(pages[3], 7));
  EXPECT_EQ(f.pool.pending_bytes(), kBlock);
  EXPECT_EQ(f.pool.leased_bytes(), (kBlocksOfSlab - 1) * kBlock);
  f.completed = 6;
  EXPECT_FALSE(f.pool.lease(kBlock));
  f.completed = 7;
  const PageHandle again = f.lease();
  EXPECT_EQ(*f.pool.data(again), read_by_7);
  EXPECT_EQ(f.pool.pending_bytes(), 0);
}

TEST(PagePool, FencesMayPassInAnyOrder) {
  Fixture f(PagePool::kSlabBytes);
  std::vector<PageHandle> pages;
  std::vector<std::byte*> bases;
  for (int64_t i = 0; i < kBlocksOfSlab; ++i) {
    pages.push_back(f.lease());
    bases.push_back(*f.pool.data(pages.back()));
  }
  for (size_t i : {0, 1, 2}) ASSERT_TRUE(f.pool.release(pages[i], 10 - i));  // 10, 9, 8
  for (size_t i : {2, 1, 0}) {                                               // 8 is done first
    f.completed = 10 - i;
    const PageHandle page = f.lease();
    EXPECT_EQ(*f.pool.data(page), bases[i]);
    EXPECT_FALSE(f.pool.lease(kBlock));
  }
}

TEST(PagePool, LastOwnersFenceIsTheLatestOfAll) {
  Fixture f(PagePool::kSlabBytes);
  const PageHandle page = f.lease();
  ASSERT_TRUE(f.pool.retain(page));
  ASSERT_TRUE(f.pool.release(page, 9));
  EXPECT_EQ(f.pool.pending_bytes(), 0) << "still owned";
  ASSERT_TRUE(f.pool.release(page, 2));
  f.completed = 2;
  EXPECT_EQ(f.pool.pending_bytes(), kBlock);
  EXPECT_TRUE(f.lease());  // collects what can be
  EXPECT_EQ(f.pool.pending_bytes(), kBlock);
  f.completed = 9;
  EXPECT_TRUE(f.lease());
  EXPECT_EQ(f.pool.pending_bytes(), 0);
}

TEST(PagePool, SlabWithAPendingBlockIsNotGivenBack) {
  Fixture f(2 * kBlock);
  const PageHandle page = f.lease();
  ASSERT_TRUE(f.pool.release(page, 1));
  EXPECT_EQ(f.pool.slab_bytes(), PagePool::kSlabBytes);
  ASSERT_FALSE(f.pool.lease(2 * kBlock));
  f.completed = 1;
  EXPECT_TRUE(f.lease(2 * kBlock));
}

TEST(PagePool, EveryUseOfAStaleHandleIsReportedAndTouchesNothing) {
  Fixture f(PagePool::kSlabBytes);
  const PageHandle old = f.lease();
  ASSERT_TRUE(f.pool.release(old, 0));
  const PageHandle now = f.lease();
  ASSERT_EQ(now.index, old.index) << "the place is used again: only the generation tells them apart";
  ASSERT_NE(now.generation, old.generation);
  EXPECT_EQ(code_of(f.pool.release(old, 0)), StatusCode::kStale);
  EXPECT_EQ(code_of(f.pool.retain(old)), StatusCode::kStale);
  const auto data = f.pool.data(old);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code(), StatusCode::kStale);
  EXPECT_EQ(f.pool.owners(old), 0);
  EXPECT_EQ(f.pool.owners(now), 1);
  EXPECT_EQ(f.pool.leased_bytes(), kBlock);
}

TEST(PagePool, DoubleReleaseIsReportedEvenBehindItsFence) {
  Fixture f(PagePool::kSlabBytes);
  const PageHandle page = f.lease();
  ASSERT_TRUE(f.pool.release(page, 5));
  EXPECT_EQ(code_of(f.pool.release(page, 5)), StatusCode::kStale);
  EXPECT_EQ(f.pool.pending_bytes(), kBlock);
  EXPECT_EQ(code_of(f.pool.retain(page)), StatusCode::kStale) << "a released page does not come back to life";
}

TEST(PagePool, HandlesThatWereNeverGivenAreStale) {
  Fixture f(PagePool::kSlabBytes);
  for (const PageHandle made_up : {PageHandle{}, PageHandle{0, 1}, PageHandle{1u << 31, 77}}) {
    EXPECT_FALSE(f.pool.release(made_up, 0));
    EXPECT_FALSE(f.pool.data(made_up));
    EXPECT_EQ(f.pool.owners(made_up), 0);
  }
}

TEST(PagePool, PeakIsOfLeasedBytesAndCanBeReset) {
  Fixture f(PagePool::kSlabBytes);
  const PageHandle a = f.lease(), b = f.lease();
  ASSERT_TRUE(f.pool.release(a, 0));
  f.lease();
  EXPECT_EQ(f.pool.peak_leased_bytes(), 2 * kBlock);
  ASSERT_TRUE(f.pool.release(b, 0));
  f.pool.reset_peak();
  EXPECT_EQ(f.pool.peak_leased_bytes(), kBlock);
}

TEST(PagePool, GenerationsNeverRepeat) {
  Fixture f(PagePool::kSlabBytes);
  uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const PageHandle page = f.lease();
    ASSERT_GT(page.generation, last);
    last = page.generation;
    ASSERT_TRUE(f.pool.release(page, 0));
  }
}

// Every thread keeps pages of its own and shares some; each block is stamped by the one that leased it.
TEST(PagePool, ThreadsNeverShareABlockByAccident) {
  Fixture f(16 * PagePool::kSlabBytes);
  std::atomic<uint64_t> submitted{0};
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<PageHandle> mine;
    for (int i = 0; i < 2000; ++i) {
      const int64_t bytes = (1 + random() % 3) * kBlock;
      if (mine.size() < 8 && random() % 2 == 0) {
        const auto page = f.pool.lease(bytes);
        if (!page) continue;
        std::memcpy(*f.pool.data(*page), &page->generation, sizeof(uint64_t));
        if (!f.pool.retain(*page)) ++wrong;
        mine.push_back(*page);
      } else if (!mine.empty()) {
        const PageHandle page = mine.back();
        mine.pop_back();
        uint64_t stamp = 0;
        std::memcpy(&stamp, *f.pool.data(page), sizeof stamp);
        wrong += stamp != page.generation || f.pool.owners(page) != 2;
        const uint64_t fence = ++submitted;
        wrong +=
            !f.pool.release(page, fence) || !f.pool.release(page, fence - 1) || f.pool.release(page, fence);
        f.completed = std::max<uint64_t>(f.completed, submitted / 2);
      }
    }
    for (const PageHandle& page : mine) wrong += !f.pool.release(page, 0) || !f.pool.release(page, 0);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(f.pool.leased_bytes(), 0);
  f.completed = submitted + 1;
  ASSERT_TRUE(f.pool.release(f.lease(), 0));
  EXPECT_EQ(f.pool.pending_bytes(), 0);
  EXPECT_EQ(f.pool.slab_bytes(), 0);
}

}  // namespace
}  // namespace butter
