// TestCache: one sequence's cache of one layer with random rows, for tests and benchmarks of attention.
//
// Everything that no query of a step may read is poison: rows that are hidden or not yet written hold NaN,
// pages whose rows are all hidden are null.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"

namespace butter {

struct TestCacheOptions {
  KvLayerShape shape;
  KvScheme scheme;
  Window window;
  int64_t position = 0;  // of the step's first row
  int rows = 1;          // of the step
  uint64_t seed = 1;     // of keys and values, which depend on (seed, position, head, channel) alone
};

class TestCache {
 public:
  explicit TestCache(const TestCacheOptions& options);

  // Its place in a batch whose rows before it are `first_row`.
  AttendSequence sequence(int first_row = 0) const;
  // What was written for one channel of a position that is not hidden, before rounding.
  float written(Side side, int64_t position, int head, int channel) const;

 private:
  using Block = std::unique_ptr<std::byte[]>;

  bool hidden(int64_t position) const;  // from every query of the step
  void fill_page(int64_t page);
  void seal(const RowShape& row, const std::vector<float>& rows, int head, std::byte* block) const;
  void make_view();

  TestCacheOptions options_;
  std::vector<Block> raw_blocks_, sealed_blocks_;  // by page; null where not made
  Block pinned_block_;
  BlockLayout raw_layout_, sealed_layout_, pinned_layout_;
  std::vector<RawPage> raw_pages_;
  std::vector<const std::byte*> kept_, sealed_;
  KvView view_;
};

// Numbers of a standard normal distribution, more or less: `count` of them, from a seed.
std::vector<float> random_floats(uint64_t seed, int64_t count);

}  // namespace butter
