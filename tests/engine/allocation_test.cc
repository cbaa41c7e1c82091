// A decode step allocates nothing: counted by an operator new of this program's own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/rotated_testing.h"
#include "support/fixture.h"
#include "support/run_engine.h"
#include "support/test_data.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment = 0) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  void* memory = alignment == 0
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace butter {
namespace {

struct Case {
  std::string fixture;
  const char* kv_cache;
  int64_t window;
  int threads;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.fixture << " " << c.kv_cache << " window " << c.window << ", " << c.threads << " threads";
  }
};

class AllocationTest : public testing::TestWithParam<Case> {};

// Caches of every kind, and every model.
std::vector<Case> all_cases() {
  std::vector<Case> cases = {{"llama", "raw", 0, 1},
                             {"llama", "rotated", 0, 2},
                             {"qwen3", "raw", 90, 2},
                             {"falcon_h1", "aura3v2", 90, 2}};
  for (const std::string& fixture : fixture_names()) cases.push_back({fixture, "raw", 0, 2});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AllocationTest, testing::ValuesIn(all_cases()));

// Steps that begin or fill a page lease memory; all others must find all they need in place.
TEST_P(AllocationTest, DecodeStepInsideAPageAllocatesNothing) {
  rotated_format();
  const Case& c = GetParam();
  const auto engine = load_engine(tiny_options(test_data("fixtures/" + c.fixture), "cpu", c.threads));
  SequenceOptions options;
  options.kv_cache = c.kv_cache;
  options.kv_window_size = c.window;
  options.max_context = 512;
  Sequence sequence = make_sequence(*engine, options);
  Sampler greedy{SamplingOptions{}};
  SamplingOptions hot;
  hot.temperature = 0.8f;
  hot.top_k = 40;
  hot.top_p = 0.9f;
  hot.min_p = 0.01f;
  hot.repetition_penalty = 1.1f;
  Sampler sampler(hot);
  std::vector<int32_t> token = {1};
  ASSERT_TRUE(engine->forward_sample(sequence, random_ids(150, 1), greedy));
  std::vector<int32_t> every(256);
  for (int32_t i = 0; i < 256; ++i) every[static_cast<size_t>(i)] = i;
  sampler.observe(every);
  for (Sampler* each : {&greedy, &sampler}) ASSERT_TRUE(engine->forward_sample(sequence, token, *each));
  for (int step = 0; step < 140; ++step) {
    const bool at_edge = sequence.position() % 64 == 0 || sequence.position() % 64 == 63;
    allocations = 0;
    counting = true;
    const auto next = engine->forward_sample(sequence, token, step % 2 == 0 ? greedy : sampler);
    counting = false;
    ASSERT_TRUE(next) << next.error().message();
    if (!at_edge) {
      EXPECT_EQ(allocations, 0) << "at position " << sequence.position() - 1;
    }
    token[0] = *next;
  }
}

TEST(AllocationTest, BatchedDecodeStepIsCountedToo) {
  const auto engine = load_engine(tiny_options(test_data("fixtures/llama"), "cpu", 2));
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < 3; ++i) {
    sequences.push_back(make_sequence(*engine));
    feed_last(*engine, sequences.back(), random_ids(70 + i, i));
  }
  const std::vector<int32_t> token = {5};
  const BatchItem items[] = {{&sequences[0], token}, {&sequences[1], token}, {&sequences[2], token}};
  for (int step = 0; step < 20; ++step) {
    allocations = 0;
    counting = true;
    const auto logits = engine->forward_batch(items);
    counting = false;
    ASSERT_TRUE(logits);
    // The lists of the batch, not the work: a handful, whatever the model.
    EXPECT_LE(allocations, 16);
  }
}

}  // namespace
}  // namespace butter
