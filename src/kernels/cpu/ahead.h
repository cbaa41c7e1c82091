// Fetching the lines of memory that will be read a little later, while others are at work.
//
// Records of a layer stand one after the other, page after page (docs/kv-cache-internals.md), and a verb
// reads its record from end to end; so what will be read is known without asking: the bytes behind those
// being read. A verb fetches a line for each line that it reads, kAheadBytes further on, whoever reads it
// then. Where pages do not follow one another, the loop over them fetches the beginning of the next
// (attend_decode.cc).
//
// Lines go to L2 and no further: a thread has about 16 lines on the way to L1 at once, and those that
// attention waits for should find room there. SmolLM2 with affine8 pages, 32,768 positions, two threads and
// DDR5, tokens a second: into L1 2 KB ahead 38.2, 3 KB 38.4; into L2 2 KB ahead 38.0, 4 KB 41.7, 8 KB 41.1.
// Other formats differ less.
#pragma once

#include <cstddef>
#include <cstdint>

namespace butter::cpu {
// For files of every instruction set: each has a copy of its own.
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kAheadBytes = 4096;

// (Not __builtin_prefetch: it has no effect that a compiler must keep, and g++ drops a loop of nothing else.)
inline __attribute__((always_inline)) void fetch_line(const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*line));
#elif defined(__aarch64__)
  asm volatile("prfm pldl2keep, %0" : : "Q"(*line));
#else
  __builtin_prefetch(line, 0, 2);
#endif
}

// The lines that begin within [begin, begin + bytes), of which the first is on a line's edge.
inline __attribute__((always_inline)) void fetch_lines(const std::byte* begin, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLineBytes) fetch_line(begin + at);
}

// For bytes that are being read, a line where none are named.
inline __attribute__((always_inline)) void fetch_ahead(const std::byte* reading, int64_t bytes = kLineBytes) {
  fetch_lines(reading + kAheadBytes, bytes);
}

}  // namespace
}  // namespace butter::cpu
