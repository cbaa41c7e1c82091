// What tests of the cache share: a small model, a format that seals without any codec, and a device that
// writes rows that can be recognised.
//
// A row of position p holds a 64-bit stamp of (token at p, p, layer, head, side), which outlives sealing, so
// a test can ask of every visible position whether it is still the right one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cache/cache_set.h"
#include "kernels/row_format.h"

namespace butter {

// Seals: a record is the 64 stamps of its rows and a tail of 5 bytes, so that sizes are odd.
const RowFormat& stamp_format();

enum class TestScheme { kRaw, kStamps, kStampedKeys };
KvScheme test_scheme(TestScheme scheme, DType raw = DType::kF16);

// Five layers: 0 and 3 see all, 1 and 4 have a window of `model_window`, 2 has no cache. Widths differ.
CacheModel small_model(int64_t model_window = 48);

// A pool of its own and the submissions that its device has completed.
struct TestPool {
  std::shared_ptr<uint64_t> completed = std::make_shared<uint64_t>(~uint64_t{0});
  std::shared_ptr<PagePool> pool;

  explicit TestPool(int64_t budget = int64_t{1} << 30);
};

// A sequence with the tokens that it was fed.
struct TestSequence {
  CacheSet caches;
  std::vector<uint32_t> tokens;
};

TestSequence make_sequence(const CacheModel& model, const CacheOptions& options, const TestPool& pool);
TestSequence fork(const TestSequence& sequence);

// Begins a step, writes its rows as a device would, and checks what its first and its last query see.
Status begin_and_write(TestSequence& sequence, const std::vector<uint32_t>& tokens);
// The whole step; a failure is the test's.
void feed(TestSequence& sequence, const std::vector<uint32_t>& tokens, uint64_t fence = 0);
// `count` tokens of a seeded stream in steps of up to `step_rows`, which end at page boundaries as the
// engine's do.
void feed_many(TestSequence& sequence, int64_t count, int64_t step_rows, uint32_t seed = 1);
// Truncates the sequence and its record of tokens; the position reached.
int64_t truncate(TestSequence& sequence, int64_t n, uint64_t fence = 0);

// What a query at the next position sees is all there and right.
void expect_intact(TestSequence& sequence);

}  // namespace butter
