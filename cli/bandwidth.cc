#include "cli/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kStep = 512;  // bytes that one turn of a loop reads of a stream: eight 64-byte lines

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Eight accumulators, so that no addition waits for the one before; the compiler makes them registers of the
// width that the function around it is compiled for.
template <int kStreams>
[[gnu::always_inline]] inline uint64_t read_loop(const std::byte* data, int64_t bytes) {
  typedef uint64_t Line __attribute__((vector_size(64), may_alias));
  const int64_t part = bytes / kStreams / kStep * kStep;
  Line sums[8] = {};
  for (int64_t at = 0; at < part; at += kStep) {
#pragma GCC unroll 4
    for (int stream = 0; stream < kStreams; ++stream) {
      const Line* lines = reinterpret_cast<const Line*>(data + stream * part + at);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] += lines[i];
    }
  }
  uint64_t sum = 0;
  for (const Line& line : sums) {
    for (int i = 0; i < 8; ++i) sum += line[i];
  }
  return sum;
}

uint64_t read_streams(const std::byte* data, int64_t bytes, int streams);

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* data, int64_t bytes, int streams) {
  return streams == 1 ? read_loop<1>(data, bytes) : read_loop<4>(data, bytes);
}
__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* data, int64_t bytes, int streams) {
  return streams == 1 ? read_loop<1>(data, bytes) : read_loop<4>(data, bytes);
}
uint64_t read_streams(const std::byte* data, int64_t bytes, int streams) {
  if (__builtin_cpu_supports("avx512f")) return read_avx512(data, bytes, streams);
  if (__builtin_cpu_supports("avx2")) return read_avx2(data, bytes, streams);
  return streams == 1 ? read_loop<1>(data, bytes) : read_loop<4>(data, bytes);
}
#else
uint64_t read_streams(const std::byte* data, int64_t bytes, int streams) {
  return streams == 1 ? read_loop<1>(data, bytes) : read_loop<4>(data, bytes);
}
#endif

std::atomic<uint64_t> sum_of_all{0};  // keeps the reads from being left out

// Each thread's part: whole huge pages, so that no page has two owners.
struct Part {
  int64_t begin;
  int64_t end;
};
Part part_of(int64_t bytes, int threads, int index) {
  const int64_t share = round_up((bytes + threads - 1) / threads, kHugePage);
  return {std::min(bytes, share * index), std::min(bytes, share * (index + 1))};
}

template <typename Body>
void on_threads(int threads, Body body) {
  std::vector<std::thread> others;
  for (int index = 1; index < threads; ++index) others.emplace_back(body, index);
  body(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

ReadBandwidth::ReadBandwidth(int64_t bytes, int threads)
    : bytes_(round_up(bytes, kHugePage)), threads_(threads) {
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes_ + kHugePage), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    refuse("the machine has no {} to measure its read bandwidth with", spoken_bytes(bytes_));
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const auto aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  data_ = reinterpret_cast<std::byte*>(aligned);
  // Give back the ends that alignment left over, so that the destructor knows what there is.
  if (aligned > address) ::munmap(mapped, aligned - address);
  if (const auto rest = address + kHugePage - aligned; rest > 0) ::munmap(data_ + bytes_, rest);
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  on_threads(threads_, [this](int index) {
    const Part part = part_of(bytes_, threads_, index);
    std::memset(data_ + part.begin, index + 1, static_cast<size_t>(part.end - part.begin));
  });
}

ReadBandwidth::~ReadBandwidth() {
  ::munmap(data_, static_cast<size_t>(bytes_));
}

double ReadBandwidth::one_pass(int streams) {
  std::barrier meet(threads_);
  Clock::time_point start, end;
  on_threads(threads_, [&](int index) {
    const Part part = part_of(bytes_, threads_, index);
    meet.arrive_and_wait();
    if (index == 0) start = Clock::now();
    sum_of_all += read_streams(data_ + part.begin, part.end - part.begin, streams);
    meet.arrive_and_wait();
    if (index == 0) end = Clock::now();
  });
  return static_cast<double>(bytes_) / std::chrono::duration<double>(end - start).count();
}

double ReadBandwidth::measure(int passes) {
  const Clock::time_point start = Clock::now();
  for (int pass = 0; pass < passes || Clock::now() - start < std::chrono::milliseconds(200); ++pass) {
    best_ = std::max(best_, one_pass(pass % 2 == 0 ? 1 : 4));
  }
  return best_;
}

}  // namespace butter::cli
