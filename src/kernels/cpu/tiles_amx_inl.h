// What the AMX kernels share: the tile registers, and vectors on their way to bf16 tiles. Internal linkage.
//
// Eight tiles of 16 rows of 64 bytes: 16 × 16 float32 results, or 16 rows of 32 bf16 values. A float32 value
// stands in one bf16 part, its nearest (8 bits), or in two, that and the rest's nearest (16 bits together); a
// product of values in two parts is three products of tiles: high · high + low · high + high · low.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace butter::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;

// Which parts of the two operands a product of tiles takes: 0 the high one, 1 the low one.
struct PartPair {
  int a = 0;
  int b = 0;
};
constexpr PartPair kPartPairs[] = {{0, 0}, {1, 0}, {0, 1}};
// How many of the pairs there are; the first operand has no fewer parts than the second.
constexpr int part_pairs(int a_parts, int b_parts) {
  return a_parts == 1 ? 1 : b_parts + 1;
}

// The tile registers, for the time of a kernel.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static const Config config;
    // The compiler believes that the instruction reads a word; this makes all of it written by now.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    __asm__ volatile("" : : : "memory");
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  ~Tiles() { _tile_release(); }
};

inline __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// What the nearest bf16 leaves of each value.
inline __m512 after_bf16(__m512 x) {
  const auto nearest = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(nearest), 16)));
}

// A part of each value, still as float32.
template <int part>
inline __m512 part_of(__m512 x) {
  if constexpr (part == 0) return x;
  return after_bf16(x);
}

// The first `count` lanes of 16; all or none where it is out of range.
inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1);
}

// One part of the first `count` of 32 floats, then zeros, as a row of a tile.
template <int part>
inline __m512i load_tile_row(const float* from, int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(count), from);
  const __m512 high = _mm512_maskz_loadu_ps(first_lanes(count - 16), from + 16);
  return to_bf16(part_of<part>(low), part_of<part>(high));
}

// Rows of dwords to columns of dwords.
inline void transpose_16x16(__m512i rows[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    half[i] = _mm512_unpacklo_epi64(low01, low23);      // columns 0, 4, 8, 12 of four rows
    half[i + 1] = _mm512_unpackhi_epi64(low01, low23);  // columns 1, 5, 9, 13
    half[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    half[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(half[i], half[i + 4], 0x88);  // blocks 0, 2 of rows 0..3, 4..7
    const __m512i b = _mm512_shuffle_i32x4(half[i], half[i + 4], 0xdd);  // blocks 1, 3
    const __m512i c = _mm512_shuffle_i32x4(half[i + 8], half[i + 12], 0x88);  // the same of rows 8..15
    const __m512i d = _mm512_shuffle_i32x4(half[i + 8], half[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    rows[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

}  // namespace
}  // namespace butter::cpu
