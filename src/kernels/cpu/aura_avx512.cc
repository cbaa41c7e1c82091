// Aura records on AVX-512 (VNNI, VBMI): reading 64 channels of 8 rows takes 8 lookups.
//
// Codes become levels the same way everywhere: a funnel shift where a window crosses the lane it stands in,
// one multishift that puts a window's 6 bits at the bottom of each byte, one byte permute that looks the
// level up (it minds the low 6 bits of an index only).
//
// Keys, 16 rows at a time, all query heads together: a lane of 8 bytes is a row, a vector 8 channels of 8
// rows. Level + 128 is the unsigned side of vpdpbusd, 8 query bytes repeated the signed one. A row's sum ends
// in the two halves of its lane: two permutes and an add for 16 rows of a head. Bits 3, d 64, 3 heads, a row:
// 2.9 instructions of decoding and 3 products for each 8 channels, 24 bytes.
//
// Values, 4 rows (a quad) at a time: a vector is 16 channels of 4 rows. The rows' weights, times their
// scales, are u8 of the page's largest; their 4 bytes repeated are the unsigned side, levels the signed one.
// Sums of integers stay in registers for a page and are added to the accumulators once. With more than 4
// heads the vectors of a quad are taken 2 at a time instead of 4, so that nothing is decoded twice.
//
// Widths that are no multiple of 64 stand row by row: a permute spreads a row's bytes over lanes first, and
// values are transposed, 4 rows at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/attend_vec_avx512_inl.h"
#include "kernels/cpu/aura_kernels.h"
#include "kernels/cpu/aura_layout.h"
#include "kernels/cpu/dispatch_inl.h"
#include "kernels/trellis.h"

namespace butter::cpu {
namespace {

constexpr int kUnit = 64;
constexpr int kQuads = kPageRows / 4;
constexpr int kMostHeads = kAuraSanitized ? 2 : 8;  // that share a pass over a record
// Up to which 4 vectors of values fit in registers.
constexpr int kFewHeads = kAuraSanitized ? 1 : 4;
// Weights below are nothing beside the 1 of the largest there is. Much smaller, and factors made of it would
// be denormal, which costs more than the page.
constexpr float kTiny = 1e-20F;

// A number that the compiler does not know: a loop over it is not unrolled, which would take all registers.
inline int opaque(int count) {
  asm("" : "+r"(count));
  return count;
}

// What was stored is loaded again from memory, where a broadcast is free; not permuted out of a register.
inline void settle_memory() {
  asm volatile("" : : : "memory");
}

inline __m512i load(const void* from) {
  return _mm512_loadu_si512(from);
}

// Levels as the signed side, or plus 128 as the unsigned one.
inline __m512i level_table(int bits, bool biased) {
  const __m512i levels = load(trellis_table(bits).levels.data());
  return biased ? _mm512_xor_si512(levels, _mm512_set1_epi8(static_cast<char>(0x80))) : levels;
}

// 2^u of the record's side. (A normal float, whatever a damaged page says.)
float page_scale(const RowShape& shape, const Record& record) {
  const int exponent = record.tail->exponent[static_cast<int>(shape.side)];
  const uint32_t bits = static_cast<uint32_t>(exponent < -126 ? 1 : exponent + 127) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Scales of 16 rows over 2^u: a byte is its own value at bits 6..13 of an fp16.
inline __m512 row_scales(const uint8_t* bytes) {
  const __m128i scales = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(scales), 6));
}

// --- keys

template <int kBits>
constexpr int kGroupsPerLane = 8 / kBits;  // groups of 8 channels that begin in a lane: 4, -, 2

// Where the windows of group g of a unit are: the lane itself, or a funnel of it and the one before.
template <int kBits, int g>
inline __m512i key_source(const __m512i* lanes, __m512i before) {
  if constexpr (kBits == 3) {
    if constexpr (g == 0) return _mm512_shldi_epi64(lanes[0], before, 8);
    if constexpr (g == 1) return lanes[0];
    if constexpr (g == 2) return _mm512_shrdi_epi64(lanes[0], lanes[1], 32);
    if constexpr (g == 3 || g == 4) return lanes[1];
    if constexpr (g == 5) return _mm512_shrdi_epi64(lanes[1], lanes[2], 32);
    if constexpr (g > 5) return lanes[2];
  } else {
    constexpr int lane = g / kGroupsPerLane<kBits>;
    if constexpr (g % kGroupsPerLane<kBits> != 0) return lanes[lane];
    if constexpr (lane == 0) return _mm512_shldi_epi64(lanes[0], before, 8);
    return _mm512_shldi_epi64(lanes[lane], lanes[lane == 0 ? 0 : lane - 1], 8);
  }
}

// The stream bit, of the unit, that is bit 0 of key_source.
template <int kBits, int g>
constexpr int key_source_bit() {
  if constexpr (kBits == 3) {
    constexpr int kFirst[] = {-8, 0, 32, 64, 64, 96, 128, 128};
    return kFirst[g];
  } else {
    return g / kGroupsPerLane<kBits> * 64 - (g % kGroupsPerLane<kBits> == 0 ? 8 : 0);
  }
}

// For each byte the bit where its window begins.
constexpr int64_t window_starts(int bits, int first_channel, int first_bit) {
  uint64_t control = 0;
  for (int i = 0; i < 8; ++i) {
    const int start = bits * (first_channel + i + 1) - kTrellisWindowBits - first_bit;
    control |= static_cast<uint64_t>(start & 63) << (8 * i);
  }
  return static_cast<int64_t>(control);
}

// Channels 8g..8g+7 of 8 rows.
template <int kBits, int g>
inline __m512i key_levels(const __m512i* lanes, __m512i before, __m512i table) {
  const __m512i starts = _mm512_set1_epi64(window_starts(kBits, 8 * g, key_source_bit<kBits, g>()));
  const __m512i windows = _mm512_multishift_epi64_epi8(starts, key_source<kBits, g>(lanes, before));
  return _mm512_permutexvar_epi8(windows, table);
}

template <int kBits>
constexpr int64_t kKeyBlockBytes = 64 * kBits;  // 8 rows of a unit
template <int kBits>
constexpr int64_t kUnitBytes = 512 * kBits;

struct Queries {
  const std::byte* prepared;
  int64_t stride;

  AuraQuery header(int head) const {
    AuraQuery query;
    std::memcpy(&query, prepared + head * stride, sizeof query);
    return query;
  }
  const std::byte* values(int head) const { return prepared + head * stride + sizeof(AuraQuery); }
};

inline __m512i repeat_8(const std::byte* from) {
  int64_t bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return _mm512_set1_epi64(bytes);
}

template <int kBits, int kHeads, int kUnits>
void score_units(int dim, const Queries& queries, const Record& record, const uint8_t* scales,
                 float unit_scale, float* scores) {
  const int units = kUnits == 0 ? dim / kUnit : kUnits;
  const __m512i table = level_table(kBits, true);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  int32_t start[kHeads];
  float factor[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    const AuraQuery query = queries.header(h);
    start[h] = -64 * query.sum;  // levels are 128 too large, in two halves
    factor[h] = query.scale * unit_scale;
  }
  fetch_ahead(record.data);
  for (int row = 0; row < kPageRows; row += 16) {
    const std::byte* codes = aura_codes(record.data) + row / 8 * kKeyBlockBytes<kBits>;
    __m512i low[kHeads], high[kHeads];
    for (int h = 0; h < kHeads; ++h) low[h] = high[h] = _mm512_set1_epi32(start[h]);
    const std::byte* last = codes + (units - 1) * kUnitBytes<kBits> + 64 * (kBits - 1);
    __m512i low_before = load(last), high_before = load(last + kKeyBlockBytes<kBits>);
    for (int u = 0; u < units; ++u, codes += kUnitBytes<kBits>) {
      __m512i low_lanes[kBits], high_lanes[kBits];
      for (int i = 0; i < kBits; ++i) low_lanes[i] = load(codes + 64 * i);
      for (int i = 0; i < kBits; ++i) high_lanes[i] = load(codes + kKeyBlockBytes<kBits> + 64 * i);
      unrolled<8>([&](auto g) __attribute__((always_inline)) {
        if constexpr (g < 2 * kBits) fetch_ahead(codes + 64 * g);
        const __m512i low_levels = key_levels<kBits, g>(low_lanes, low_before, table);
        const __m512i high_levels = key_levels<kBits, g>(high_lanes, high_before, table);
        for (int h = 0; h < kHeads; ++h) {
          const __m512i query = repeat_8(queries.values(h) + u * kUnit + 8 * g);
          low[h] = _mm512_dpbusd_epi32(low[h], low_levels, query);
          high[h] = _mm512_dpbusd_epi32(high[h], high_levels, query);
        }
      });
      low_before = low_lanes[kBits - 1];
      high_before = high_lanes[kBits - 1];
    }
    const __m512 row_scale = row_scales(scales + row);
    for (int h = 0; h < kHeads; ++h) {
      const __m512i sums = _mm512_add_epi32(_mm512_permutex2var_epi32(low[h], even, high[h]),
                                            _mm512_permutex2var_epi32(low[h], odd, high[h]));
      const __m512 scale = _mm512_mul_ps(row_scale, _mm512_set1_ps(factor[h]));
      _mm512_storeu_ps(scores + h * kPageRows + row, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale));
    }
  }
}

// --- values

// Places, of 4 rows of a quad, of the windows of two neighbouring channels that begin at bits `first` and
// `second` of a piece.
constexpr int64_t pair_starts(int first, int second) {
  uint64_t control = 0;
  for (int row = 0; row < 4; ++row) {
    control |= static_cast<uint64_t>(16 * row + first) << (8 * row);
    control |= static_cast<uint64_t>(16 * row + second) << (8 * row + 32);
  }
  return static_cast<int64_t>(control);
}

template <int kBits>
constexpr int kVectorsPerStep = kBits == 3 ? 8 : 4;  // of a unit
template <int kBits>
constexpr int kStepBytes = kBits == 3 ? 192 : 32 * kBits;  // a quad, or with 3 bits two of them
template <int kBits>
constexpr int kSteps = kBits == 3 ? kQuads / 2 : kQuads;

// The first window of a vector's pairs within its source, in bits.
template <int kBits, int v>
constexpr int pair_start() {
  constexpr int kStarts[3][8] = {{4, 0, 4, 8}, {5, 3, 0, 6, 5, 3, 1, 7}, {6, 6, 6, 6}};
  return kStarts[kBits - 2][v];
}

// The piece before each of `x`, whose first is the last of `last`: kRows lanes hold one piece.
template <int kLanes>
inline __m512i piece_before(__m512i x, __m512i last) {
  return _mm512_alignr_epi64(x, last, 8 - kLanes);
}

// Where the windows of vector v of a step are. `step` and `last` are the step in this unit and in the one
// before (of a single unit: itself).
template <int kBits, int v>
inline __m512i pair_source(const std::byte* step, const std::byte* last) {
  constexpr int kLine = 64;
  const __m512i x = load(step);
  if constexpr (kBits == 2) {
    return v == 0 ? _mm512_shldi_epi16(x, piece_before<1>(x, load(last)), 8) : x;
  } else if constexpr (kBits == 4) {
    const __m512i y = load(step + kLine);
    if constexpr (v == 0) return _mm512_shldi_epi16(x, piece_before<1>(y, load(last + kLine)), 8);
    if constexpr (v == 1) return x;
    return v == 2 ? _mm512_shldi_epi16(y, x, 8) : y;
  } else {
    const __m512i y = load(step + kLine), z = load(step + 2 * kLine);
    if constexpr (v == 0) return _mm512_shldi_epi16(x, piece_before<2>(z, load(last + 2 * kLine)), 8);
    if constexpr (v == 1) return x;
    if constexpr (v == 2 || v == 3) return _mm512_shrdi_epi16(x, y, 9);
    if constexpr (v == 4) return y;
    return v == 5 ? _mm512_shrdi_epi16(y, z, 8) : z;
  }
}

template <int kBits, int v>
inline __m512i pair_levels(const std::byte* step, const std::byte* last, __m512i table) {
  constexpr int start = pair_start<kBits, v>();
  const __m512i starts = _mm512_set1_epi64(pair_starts(start, start + kBits));
  const __m512i windows = _mm512_multishift_epi64_epi8(starts, pair_source<kBits, v>(step, last));
  return _mm512_permutexvar_epi8(windows, table);
}

// The weights of a page as bytes: dword t of a head holds those of quad t.
template <int kHeads>
struct ByteWeights {
  alignas(64) uint32_t quads[kHeads][kQuads];
  alignas(16) float factor[(kHeads + 3) / 4 * 4];  // what 1 is worth, over 2^u and the table's step
};

template <int kHeads>
inline void quantise_weights(const float* weights, const uint8_t* scales, ByteWeights<kHeads>& bytes) {
  __m512 scale[4];
  for (int i = 0; i < 4; ++i) scale[i] = row_scales(scales + 16 * i);
  for (int first = 0; first < kHeads; first += 4) {
    __m512 product[4][4], highest[4];
    for (int h = 0; h < 4 && first + h < kHeads; ++h) {
      for (int i = 0; i < 4; ++i) {
        const float* from = weights + (first + h) * kPageRows + 16 * i;
        product[h][i] = _mm512_mul_ps(_mm512_loadu_ps(from), scale[i]);
      }
      highest[h] = _mm512_max_ps(_mm512_max_ps(product[h][0], product[h][1]),
                                 _mm512_max_ps(product[h][2], product[h][3]));
    }
    for (int h = kHeads - first; h < 4; ++h) highest[h] = highest[0];
    alignas(16) float largest[4];
    Vec::highest(highest[0], highest[1], highest[2], highest[3], largest);
    const __m128 most = _mm_max_ps(_mm_load_ps(largest), _mm_set1_ps(kTiny));
    _mm_store_ps(bytes.factor + first, _mm_mul_ps(most, _mm_set1_ps(1.0F / 255)));
    alignas(16) float inverse[4];
    _mm_store_ps(inverse, _mm_div_ps(_mm_set1_ps(255), most));
    for (int h = 0; h < 4 && first + h < kHeads; ++h) {
      __m512i whole[4];
      for (int i = 0; i < 4; ++i) {
        whole[i] = _mm512_cvtps_epi32(_mm512_mul_ps(product[h][i], _mm512_set1_ps(inverse[h])));
      }
      const __m512i low = _mm512_or_si512(whole[0], _mm512_slli_epi32(whole[1], 8));
      const __m512i high = _mm512_or_si512(whole[2], _mm512_slli_epi32(whole[3], 8));
      _mm512_store_si512(bytes.quads[first + h], _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

// The weights of each step, as the products take them.
template <int kBits, int kHeads>
struct StepWeights {
  const ByteWeights<kHeads>& bytes;
  explicit StepWeights(const ByteWeights<kHeads>& from) : bytes(from) {}
  __m512i at(int head, int step) const {
    return _mm512_set1_epi32(static_cast<int>(bytes.quads[head][step]));
  }
};
// Two quads in turn: each of them twice in 16 bytes.
template <int kHeads>
struct StepWeights<3, kHeads> {
  alignas(64) uint32_t twice[kHeads][2 * kQuads];
  explicit StepWeights(const ByteWeights<kHeads>& from) {
    const __m512i first = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int h = 0; h < kHeads; ++h) {
      const __m512i quads = load(from.quads[h]);
      _mm512_store_si512(twice[h], _mm512_permutexvar_epi32(first, quads));
      _mm512_store_si512(twice[h] + kQuads, _mm512_permutexvar_epi32(second, quads));
    }
  }
  __m512i at(int head, int step) const {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(twice[head] + 4 * step)));
  }
};

inline void add_scaled(__m512i sums, float factor, float* acc) {
  _mm512_storeu_ps(acc,
                   _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(factor), _mm512_loadu_ps(acc)));
}

// Vectors [kFirst, kFirst + kVectors) of the steps of one unit. (`table` by reference: g++ 12 clears the
// upper halves of vectors neither behind a function that takes a vector nor behind its caller, and code that
// is not for AVX then waits for them.)
template <int kBits, int kHeads, int kFirst, int kVectors>
inline void accumulate_vectors(const std::byte* unit, const std::byte* unit_before,
                               const StepWeights<kBits, kHeads>& weights, const float* factor,
                               const __m512i& table, int64_t stride, float* acc) {
  __m512i sums[kHeads][kVectors];
  for (auto& head : sums) {
    for (__m512i& sum : head) sum = _mm512_setzero_si512();
  }
  constexpr int kTogether = kBits == 3 ? 2 : 4;
  const int steps = opaque(kSteps<kBits>);
  for (int first = 0; first < steps; first += kTogether)
    unrolled<kTogether>([&](auto i) __attribute__((always_inline)) {
      const int step = first + i;
      const std::byte* at = unit + step * kStepBytes<kBits>;
      const std::byte* before = unit_before + step * kStepBytes<kBits>;
      if constexpr (kFirst == 0) fetch_ahead(at, kStepBytes<kBits>);
      __m512i levels[kVectors];
      unrolled<kVectors>([&](auto v) __attribute__((always_inline)) {
        levels[v] = pair_levels<kBits, kFirst + v>(at, before, table);
      });
      for (int h = 0; h < kHeads; ++h) {
        const __m512i weight = weights.at(h, step);
        for (int v = 0; v < kVectors; ++v) sums[h][v] = _mm512_dpbusd_epi32(sums[h][v], weight, levels[v]);
      }
    });
  for (int h = 0; h < kHeads; ++h) {
    float* to = acc + h * stride;
    if constexpr (kBits == 3) {  // the two quads lie side by side
      for (int v = 0; v < kVectors; v += 2) {
        const __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[h][v], sums[h][v + 1]),
                                             _mm512_unpackhi_epi64(sums[h][v], sums[h][v + 1]));
        add_scaled(sum, factor[h], to + 8 * (kFirst + v));
      }
    } else {
      for (int v = 0; v < kVectors; ++v) add_scaled(sums[h][v], factor[h], to + 16 * (kFirst + v));
    }
  }
}

template <int kBits, int kHeads, int kUnits>
void accumulate_units(int dim, const float* weights, const Record& record, const uint8_t* scales,
                      float unit_scale, float* acc) {
  const int units = kUnits == 0 ? dim / kUnit : kUnits;
  const __m512i table = level_table(kBits, false);
  ByteWeights<kHeads> bytes;
  quantise_weights<kHeads>(weights, scales, bytes);
  const StepWeights<kBits, kHeads> steps(bytes);
  settle_memory();
  float factor[kHeads];
  for (int h = 0; h < kHeads; ++h) factor[h] = bytes.factor[h] * unit_scale;
  const std::byte* before = aura_codes(record.data) + (units - 1) * kUnitBytes<kBits>;
  fetch_ahead(record.data);
  for (int u = 0; u < units; ++u) {
    const std::byte* unit = aura_codes(record.data) + u * kUnitBytes<kBits>;
    constexpr int kVectors = kHeads <= kFewHeads ? 4 : 2;
    unrolled<kVectorsPerStep<kBits> / kVectors>([&](auto pass) __attribute__((always_inline)) {
      accumulate_vectors<kBits, kHeads, pass * kVectors, kVectors>(unit, before, steps, factor, table, dim,
                                                                   acc + u * kUnit);
    });
    before = unit;
  }
}

// --- expand

inline void store_scaled(__m512i whole, float scale, float* to) {
  _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(scale)));
}

// in[i] lane r to out[r] lane i, lanes of 8 bytes.
inline void transpose_lanes(const __m512i* in, __m512i* out) {
  __m512i a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_epi64(in[i], in[i + 1]);      // rows 0, 2, 4, 6
    a[i + 1] = _mm512_unpackhi_epi64(in[i], in[i + 1]);  // rows 1, 3, 5, 7
  }
  for (int odd = 0; odd < 2; ++odd) {
    b[odd] = _mm512_shuffle_i64x2(a[odd], a[odd + 2], 0x44);          // rows 0, 2 of lanes 0..3
    b[odd + 2] = _mm512_shuffle_i64x2(a[odd], a[odd + 2], 0xEE);      // rows 4, 6
    b[odd + 4] = _mm512_shuffle_i64x2(a[odd + 4], a[odd + 6], 0x44);  // of lanes 4..7
    b[odd + 6] = _mm512_shuffle_i64x2(a[odd + 4], a[odd + 6], 0xEE);
    for (int half = 0; half < 2; ++half) {
      const __m512i x = b[odd + 2 * half], y = b[odd + 2 * half + 4];
      out[4 * half + odd] = _mm512_shuffle_i64x2(x, y, 0x88);
      out[4 * half + odd + 2] = _mm512_shuffle_i64x2(x, y, 0xDD);
    }
  }
}

template <int kPiece>
inline __m512i widen(__m512i bytes) {
  return _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, kPiece));
}

template <int kBits>
void expand_keys(int dim, const Record& record, const float* row_scale, float* rows) {
  const __m512i table = level_table(kBits, false);
  for (int block = 0; block < kPageRows / 8; ++block) {
    const std::byte* codes = aura_codes(record.data) + block * kKeyBlockBytes<kBits>;
    __m512i before = load(codes + (dim / kUnit - 1) * kUnitBytes<kBits> + 64 * (kBits - 1));
    for (int u = 0; u < dim / kUnit; ++u, codes += kUnitBytes<kBits>) {
      __m512i lanes[kBits], levels[8], row[8];
      for (int i = 0; i < kBits; ++i) lanes[i] = load(codes + 64 * i);
      unrolled<8>([&](auto g) __attribute__((always_inline)) {
        levels[g] = key_levels<kBits, g>(lanes, before, table);
      });
      transpose_lanes(levels, row);
      for (int r = 0; r < 8; ++r) {
        float* to = rows + int64_t{8 * block + r} * dim + u * kUnit;
        const float scale = row_scale[8 * block + r];
        unrolled<4>([&](auto piece) __attribute__((always_inline)) {
          store_scaled(widen<piece>(row[r]), scale, to + 16 * piece);
        });
      }
      before = lanes[kBits - 1];
    }
  }
}

// The 4 rows of a quad out of a vector of 16 channels.
inline void store_quad(__m512i levels, const float* row_scale, int quad, int64_t dim, float* rows) {
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    const int row = quad + kQuads * i;
    const __m512i whole = _mm512_srai_epi32(_mm512_slli_epi32(levels, 24 - 8 * i), 24);
    store_scaled(whole, row_scale[row], rows + row * dim);
  });
}

template <int kBits>
void expand_values(int dim, const Record& record, const float* row_scale, float* rows) {
  const __m512i table = level_table(kBits, false);
  const std::byte* before = aura_codes(record.data) + (dim / kUnit - 1) * kUnitBytes<kBits>;
  for (int u = 0; u < dim / kUnit; ++u) {
    const std::byte* unit = aura_codes(record.data) + u * kUnitBytes<kBits>;
    for (int step = 0; step < kSteps<kBits>; ++step) {
      __m512i levels[kVectorsPerStep<kBits>];
      unrolled<kVectorsPerStep<kBits>>([&](auto v) __attribute__((always_inline)) {
        levels[v] =
            pair_levels<kBits, v>(unit + step * kStepBytes<kBits>, before + step * kStepBytes<kBits>, table);
      });
      float* to = rows + u * kUnit;
      if constexpr (kBits == 3) {
        for (int v = 0; v < 8; v += 2) {
          store_quad(_mm512_unpacklo_epi64(levels[v], levels[v + 1]), row_scale, 2 * step, dim, to + 8 * v);
          store_quad(_mm512_unpackhi_epi64(levels[v], levels[v + 1]), row_scale, 2 * step + 1, dim,
                     to + 8 * v);
        }
      } else {
        for (int v = 0; v < 4; ++v) store_quad(levels[v], row_scale, step, dim, to + 16 * v);
      }
    }
    before = unit;
  }
}

// --- widths that are no multiple of 64: rows one after the other

// Reads 64 channels of a row.
template <int kBits>
class NarrowRows {
 public:
  NarrowRows(int dim, const std::byte* codes, __m512i table)
      : codes_(codes), row_bytes_(int64_t{kBits} * dim / 8), table_(table) {
    alignas(64) uint8_t spread[64] = {};
    for (int g = 0; g < 8; ++g) {
      // Lane g: the byte before those of group g, then its own; the first lane's is in the second operand.
      for (int i = 0; i <= kBits; ++i) {
        spread[8 * g + i] = static_cast<uint8_t>(g == 0 && i == 0 ? 64 : kBits * g + i - 1);
      }
    }
    spread_ = load(spread);
  }

  // Channels [first, first + 64) of a row; those past its end are anything.
  __m512i levels(int row, int first) const {
    const int64_t at = int64_t{kBits} * first / 8;
    const int64_t count = row_bytes_ - at < 8 * kBits ? row_bytes_ - at : 8 * kBits;
    const std::byte* from = codes_ + row * row_bytes_;
    const __mmask64 mask = (uint64_t{1} << count) - 1;
    const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from + at);
    const std::byte before = from[(at == 0 ? row_bytes_ : at) - 1];
    const __m512i lanes =
        _mm512_permutex2var_epi8(bytes, spread_, _mm512_set1_epi8(static_cast<char>(before)));
    const __m512i starts = _mm512_set1_epi64(window_starts(kBits, 0, -8));
    return _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(starts, lanes), table_);
  }

 private:
  const std::byte* codes_;
  int64_t row_bytes_;
  __m512i table_, spread_;
};

inline __m128i sums_of(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

template <int kBits, int kHeads>
void score_narrow(int dim, const Queries& queries, const Record& record, const uint8_t* scales,
                  float unit_scale, float* scores) {
  const NarrowRows<kBits> rows(dim, aura_codes(record.data), level_table(kBits, true));
  const int64_t row_bytes = int64_t{kBits} * dim / 8;
  for (int row = 0; row < kPageRows; row += 4) {
    fetch_ahead(aura_codes(record.data) + row * row_bytes, 4 * row_bytes);
    __m512i sums[kHeads][4];
    for (auto& head : sums) {
      for (__m512i& sum : head) sum = _mm512_setzero_si512();
    }
    for (int first = 0; first < dim; first += kUnit) {
      for (int r = 0; r < 4; ++r) {
        const __m512i levels = rows.levels(row + r, first);
        for (int h = 0; h < kHeads; ++h) {
          sums[h][r] = _mm512_dpbusd_epi32(sums[h][r], levels, load(queries.values(h) + first));
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const __m128i whole = sums_of(sums[h][0], sums[h][1], sums[h][2], sums[h][3]);
      const __m128i own = _mm_sub_epi32(whole, _mm_set1_epi32(128 * queries.header(h).sum));
      _mm_storeu_ps(scores + h * kPageRows + row, _mm_cvtepi32_ps(own));
    }
  }
  for (int row = 0; row < kPageRows; row += 16) {
    const __m512 row_scale = row_scales(scales + row);
    for (int h = 0; h < kHeads; ++h) {
      float* to = scores + h * kPageRows + row;
      const __m512 scale = _mm512_mul_ps(row_scale, _mm512_set1_ps(queries.header(h).scale * unit_scale));
      _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_loadu_ps(to), scale));
    }
  }
}

// out[i] lane l = in[l] lane i, lanes of 16 bytes.
inline void transpose_quarters(const __m512i* in, __m512i* out) {
  const __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44), b = _mm512_shuffle_i32x4(in[0], in[1], 0xEE);
  const __m512i c = _mm512_shuffle_i32x4(in[2], in[3], 0x44), d = _mm512_shuffle_i32x4(in[2], in[3], 0xEE);
  out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  out[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
  out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
  out[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

template <int kBits, int kHeads>
void accumulate_narrow(int dim, const float* weights, const Record& record, const uint8_t* scales,
                       float unit_scale, float* acc) {
  const NarrowRows<kBits> rows(dim, aura_codes(record.data), level_table(kBits, false));
  ByteWeights<kHeads> bytes;
  quantise_weights<kHeads>(weights, scales, bytes);
  const int64_t step_bytes = int64_t{kBits} * dim / 8 * 4;
  for (int first = 0; first < dim; first += kUnit) {
    __m512i sums[kHeads][4];
    for (auto& head : sums) {
      for (__m512i& sum : head) sum = _mm512_setzero_si512();
    }
    for (int quad = 0; quad < kQuads; ++quad) {
      if (first == 0) fetch_ahead(aura_codes(record.data) + quad * step_bytes, step_bytes);
      __m512i row[4];
      for (int i = 0; i < 4; ++i) row[i] = rows.levels(quad + kQuads * i, first);
      // 4 rows of a channel side by side: lane l of levels[i] holds channels 16l + 4i + (0..3).
      const __m512i low = _mm512_unpacklo_epi8(row[0], row[1]), high = _mm512_unpackhi_epi8(row[0], row[1]);
      const __m512i low2 = _mm512_unpacklo_epi8(row[2], row[3]), high2 = _mm512_unpackhi_epi8(row[2], row[3]);
      const __m512i levels[4] = {_mm512_unpacklo_epi16(low, low2), _mm512_unpackhi_epi16(low, low2),
                                 _mm512_unpacklo_epi16(high, high2), _mm512_unpackhi_epi16(high, high2)};
      for (int h = 0; h < kHeads; ++h) {
        const __m512i weight = _mm512_set1_epi32(static_cast<int>(bytes.quads[h][quad]));
        for (int i = 0; i < 4; ++i) sums[h][i] = _mm512_dpbusd_epi32(sums[h][i], weight, levels[i]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      __m512i in_order[4];
      transpose_quarters(sums[h], in_order);
      for (int i = 0; i < 4 && first + 16 * i < dim; ++i) {
        float* to = acc + h * dim + first + 16 * i;
        const __mmask16 mask = dim - first - 16 * i >= 16 ? 0xFFFF : 0xFF;  // widths are multiples of 8
        const __m512 sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(in_order[i]), _mm512_set1_ps(bytes.factor[h] * unit_scale),
                            _mm512_maskz_loadu_ps(mask, to));
        _mm512_mask_storeu_ps(to, mask, sum);
      }
    }
  }
}

template <int kBits>
void expand_narrow(int dim, const Record& record, const float* row_scale, float* rows) {
  const NarrowRows<kBits> codes(dim, aura_codes(record.data), level_table(kBits, false));
  for (int row = 0; row < kPageRows; ++row) {
    for (int first = 0; first < dim; first += kUnit) {
      const __m512i levels = codes.levels(row, first);
      unrolled<4>([&](auto piece) __attribute__((always_inline)) {
        const int left = dim - first - 16 * piece;
        if (left <= 0) return;
        const __m512 values =
            _mm512_mul_ps(_mm512_cvtepi32_ps(widen<piece>(levels)), _mm512_set1_ps(row_scale[row]));
        _mm512_mask_storeu_ps(rows + int64_t{row} * dim + first + 16 * piece, left >= 16 ? 0xFFFF : 0xFF,
                              values);
      });
    }
  }
}

// --- the verbs

void order_query(const RowShape& shape, const int8_t* natural, int8_t* ordered) {
  std::memcpy(ordered, natural, static_cast<size_t>((shape.dim + kUnit - 1) / kUnit * kUnit));
}

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  const uint8_t* scales = aura_scales(record.data);
  const float unit_scale = page_scale(shape, record);
  const int dim = shape.dim;
  const auto stride = static_cast<int64_t>(sizeof(AuraQuery)) + (dim + kUnit - 1) / kUnit * kUnit;
  with_bits(shape.bits, [&]<int kBits>() {
    const auto run = [&]<int kHeads>(int first) {
      const Queries queries{prepared + first * stride, stride};
      float* to = scores + first * kPageRows;
      if (dim % kUnit != 0) {
        if constexpr (kHeads <= kFewHeads) {
          score_narrow<kBits, kHeads>(dim, queries, record, scales, unit_scale, to);
        }
      } else if (dim == kUnit) {
        score_units<kBits, kHeads, 1>(dim, queries, record, scales, unit_scale, to);
      } else {
        score_units<kBits, kHeads, 0>(dim, queries, record, scales, unit_scale, to);
      }
    };
    if (dim % kUnit != 0) return for_head_groups<kFewHeads>(heads, run);
    for_head_groups<kMostHeads>(heads, run);
  });
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  const uint8_t* scales = aura_scales(record.data);
  const float unit_scale = page_scale(shape, record) * trellis_table(shape.bits).step;
  const int dim = shape.dim;
  with_bits(shape.bits, [&]<int kBits>() {
    const auto run = [&]<int kHeads>(int first) {
      const float* from = weights + first * kPageRows;
      float* to = acc + first * dim;
      if (dim % kUnit != 0) {
        if constexpr (kHeads <= kFewHeads) {
          accumulate_narrow<kBits, kHeads>(dim, from, record, scales, unit_scale, to);
        }
      } else if (dim == kUnit) {
        accumulate_units<kBits, kHeads, 1>(dim, from, record, scales, unit_scale, to);
      } else {
        accumulate_units<kBits, kHeads, 0>(dim, from, record, scales, unit_scale, to);
      }
    };
    if (dim % kUnit != 0) return for_head_groups<kFewHeads>(heads, run);
    for_head_groups<kMostHeads>(heads, run);
  });
}

void expand(const RowShape& shape, const Record& record, float* rows) {
  const __m512 unit_scale = _mm512_set1_ps(page_scale(shape, record) * trellis_table(shape.bits).step);
  alignas(64) float row_scale[kPageRows];
  for (int row = 0; row < kPageRows; row += 16) {
    _mm512_store_ps(row_scale + row, _mm512_mul_ps(unit_scale, row_scales(aura_scales(record.data) + row)));
  }
  with_bits(shape.bits, [&]<int kBits>() {
    if (shape.dim % kUnit != 0) return expand_narrow<kBits>(shape.dim, record, row_scale, rows);
    if (shape.side == Side::kKey) return expand_keys<kBits>(shape.dim, record, row_scale, rows);
    expand_values<kBits>(shape.dim, record, row_scale, rows);
  });
}

constexpr AuraKernels kKernels = {order_query, score, accumulate, expand};

}  // namespace

const AuraKernels& aura_kernels_avx512() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
