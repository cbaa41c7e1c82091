// What the kernel benchmarks measure themselves against: the threads they run on, and a plain loop over
// memory.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "core/thread_pool.h"

namespace butter {

// BUTTER_BENCH_THREADS, or as many as the process may use.
inline int bench_threads() {
  const char* wanted = std::getenv("BUTTER_BENCH_THREADS");
  return wanted != nullptr ? std::atoi(wanted) : usable_cpus();
}

inline ThreadPool& pool() {
  static ThreadPool threads(bench_threads());
  return threads;
}

// Reads every word, in as many independent sums as keep the loads going.
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
inline uint64_t
read_all(const uint64_t* words, int64_t count) {
  uint64_t sums[32] = {};
  for (int64_t i = 0; i + 32 <= count; i += 32) {
    for (int j = 0; j < 32; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace butter
