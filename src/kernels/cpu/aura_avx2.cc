// Aura records on AVX2: the order of bytes and the exact sums of the AVX-512 kernels, with its own lookups.
//
// A level is looked up among 64 by four byte shuffles: the table's quarters, each but the first as its
// difference (xor) to the one before, so that a shuffle whose index is still negative adds nothing.
//
// Keys, 4 rows at a time: 8 windows of each row are shuffled into words, multiplied so that a window ends at
// the top of its byte, and packed again. Products take |level| on the unsigned side and the query with the
// level's sign on the other, since two products of 255 · 127 would saturate 16 bits. (Bits 3, d 64, 3 heads,
// a row and 8 channels: 5 instructions of windows and lookup, 3 of products.)
//
// Values, one vector of 16 channels x 4 rows at a time: words hold two channels of a row; each byte, as the
// upper one of its word, meets the weights as 16-bit numbers. Sums are 256 times too large and stay in 32
// bits for a page: 64 · 255 · 127 · 256 < 2^30.
//
// Widths that are no multiple of 64: aura_portable_inl.h.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/aura_portable_inl.h"
#include "kernels/cpu/dispatch_inl.h"

namespace butter::cpu {
namespace {

constexpr int kUnit = 64;
constexpr int kQuads = kPageRows / 4;
// That share a pass over a record of values; twice as many over one of keys.
constexpr int kMostHeads = kAuraSanitized ? 1 : 2;

inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

struct LevelTable {
  __m256i quarter[4];

  explicit LevelTable(int bits) {
    __m128i plain[4];
    for (int i = 0; i < 4; ++i) {
      plain[i] =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(trellis_table(bits).levels.data() + 16 * i));
    }
    for (int i = 0; i < 4; ++i) {
      quarter[i] = _mm256_broadcastsi128_si256(i == 0 ? plain[0] : _mm_xor_si128(plain[i], plain[i - 1]));
    }
  }

  // Windows are bytes below 64.
  __m256i look_up(__m256i windows) const {
    __m256i levels = _mm256_shuffle_epi8(quarter[0], windows);
    for (int i = 1; i < 4; ++i) {
      windows = _mm256_sub_epi8(windows, _mm256_set1_epi8(16));
      levels = _mm256_xor_si256(levels, _mm256_shuffle_epi8(quarter[i], windows));
    }
    return levels;
  }
};

// Scales of 8 rows over 2^u: a byte is its own value at bits 6..13 of an fp16.
inline __m256 row_scales(const uint8_t* bytes) {
  const __m128i scales = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  return _mm256_cvtph_ps(_mm_slli_epi16(scales, 6));
}

// The low bits of (high : low) >> kShift, in each lane.
template <int kShift>
inline __m256i funnel_64(__m256i low, __m256i high) {
  return _mm256_or_si256(_mm256_srli_epi64(low, kShift), _mm256_slli_epi64(high, 64 - kShift));
}
template <int kShift>
inline __m256i funnel_16(__m256i low, __m256i high) {
  return _mm256_or_si256(_mm256_srli_epi16(low, kShift), _mm256_slli_epi16(high, 16 - kShift));
}

// --- keys

template <int kBits>
constexpr int kGroupsPerLane = 8 / kBits;
template <int kBits>
constexpr int64_t kUnitBytes = 512 * kBits;

// Where the windows of channels 8g..8g+7 are: as in aura_avx512.cc.
template <int kBits, int g>
inline __m256i key_source(const __m256i* lanes, __m256i before) {
  if constexpr (kBits == 3) {
    if constexpr (g == 0) return funnel_64<56>(before, lanes[0]);
    if constexpr (g == 1) return lanes[0];
    if constexpr (g == 2) return funnel_64<32>(lanes[0], lanes[1]);
    if constexpr (g == 3 || g == 4) return lanes[1];
    if constexpr (g == 5) return funnel_64<32>(lanes[1], lanes[2]);
    if constexpr (g > 5) return lanes[2];
  } else {
    constexpr int lane = g / kGroupsPerLane<kBits>;
    if constexpr (g % kGroupsPerLane<kBits> != 0) return lanes[lane];
    if constexpr (lane == 0) return funnel_64<56>(before, lanes[0]);
    return funnel_64<56>(lanes[lane == 0 ? 0 : lane - 1], lanes[lane]);
  }
}

template <int kBits, int g>
constexpr int key_source_bit() {
  if constexpr (kBits == 3) {
    constexpr int kFirst[] = {-8, 0, 32, 64, 64, 96, 128, 128};
    return kFirst[g];
  } else {
    return g / kGroupsPerLane<kBits> * 64 - (g % kGroupsPerLane<kBits> == 0 ? 8 : 0);
  }
}

// How 8 windows of a row come to stand in words: the bytes of each, and the factor that brings the window to
// bits 8..13.
struct WindowWords {
  alignas(32) int8_t even[32];  // of the first row of a lane of 16 bytes
  alignas(32) int8_t odd[32];   // of the second
  alignas(32) int16_t factor[16];
};

template <int kBits, int g>
constexpr WindowWords window_words() {
  WindowWords words{};
  for (int i = 0; i < 16; ++i) {
    const int start = kBits * (8 * g + i % 8 + 1) - kTrellisWindowBits - key_source_bit<kBits, g>();
    for (int byte = 0; byte < 2; ++byte) {
      const int at = start / 8 + byte;
      const int place = 2 * i + byte;
      words.even[place] = static_cast<int8_t>(at < 8 ? at : -1);  // past the end: nothing of the window
      words.odd[place] = static_cast<int8_t>(at < 8 ? at + 8 : -1);
    }
    words.factor[i] = static_cast<int16_t>(1 << (8 - start % 8));
  }
  return words;
}

// Channels 8g..8g+7 of 4 rows.
template <int kBits, int g>
inline __m256i key_levels(const __m256i* lanes, __m256i before, const LevelTable& table) {
  static constexpr WindowWords kWords = window_words<kBits, g>();
  const __m256i source = key_source<kBits, g>(lanes, before), factor = load(kWords.factor);
  const __m256i even = _mm256_mullo_epi16(_mm256_shuffle_epi8(source, load(kWords.even)), factor);
  const __m256i odd = _mm256_mullo_epi16(_mm256_shuffle_epi8(source, load(kWords.odd)), factor);
  const __m256i bytes = _mm256_packus_epi16(_mm256_srli_epi16(even, 8), _mm256_srli_epi16(odd, 8));
  return table.look_up(_mm256_and_si256(bytes, _mm256_set1_epi8(kTrellisStates - 1)));
}

// Calls use(first row, unit, levels of 4 rows [8 groups]).
template <int kBits, typename Use>
inline void for_key_rows(int dim, const std::byte* codes, int row, const LevelTable& table, const Use& use) {
  const int units = dim / kUnit;
  codes += row / 8 * 64 * kBits + row % 8 * 8;
  __m256i before = load(codes + (units - 1) * kUnitBytes<kBits> + 64 * (kBits - 1));
  for (int u = 0; u < units; ++u, codes += kUnitBytes<kBits>) {
    __m256i lanes[kBits];
    for (int i = 0; i < kBits; ++i) lanes[i] = load(codes + 64 * i);
    unrolled<8>([&](auto g) __attribute__((always_inline)) {
      use(u * kUnit + 8 * g, key_levels<kBits, g>(lanes, before, table));
    });
    before = lanes[kBits - 1];
  }
}

template <int kBits, int kHeads>
void score_heads(const RowShape& shape, const std::byte* prepared, const Record& record, float* scores) {
  const LevelTable table(kBits);
  const int64_t stride = static_cast<int64_t>(sizeof(AuraQuery)) + shape.dim;
  const __m256i ones = _mm256_set1_epi16(1);
  const int64_t step_bytes = int64_t{kBits} * shape.dim / 8 * 4;
  for (int row = 0; row < kPageRows; row += 4) {
    fetch_ahead(aura_codes(record.data) + row / 4 * step_bytes, step_bytes);
    __m256i sums[kHeads];
    for (__m256i& sum : sums) sum = _mm256_setzero_si256();
    for_key_rows<kBits>(
        shape.dim, aura_codes(record.data), row,
        table, [&](int channel, __m256i levels) __attribute__((always_inline)) {
          const __m256i sizes = _mm256_abs_epi8(levels);
          for (int h = 0; h < kHeads; ++h) {
            int64_t query;
            std::memcpy(&query, prepared + h * stride + sizeof(AuraQuery) + channel, sizeof query);
            const __m256i turned = _mm256_sign_epi8(_mm256_set1_epi64x(query), levels);
            const __m256i pairs = _mm256_maddubs_epi16(sizes, turned);
            sums[h] = _mm256_add_epi32(sums[h], _mm256_madd_epi16(pairs, ones));
          }
        });
    for (int h = 0; h < kHeads; ++h) {
      const __m256i halves = _mm256_hadd_epi32(sums[h], sums[h]);
      const __m128i whole = _mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
      _mm_storeu_ps(scores + h * kPageRows + row, _mm_cvtepi32_ps(whole));
    }
  }
  const float unit_scale = plain::page_scale(shape, record);
  for (int h = 0; h < kHeads; ++h) {
    AuraQuery query;
    std::memcpy(&query, prepared + h * stride, sizeof query);
    const __m256 factor = _mm256_set1_ps(query.scale * unit_scale);
    for (int row = 0; row < kPageRows; row += 8) {
      float* to = scores + h * kPageRows + row;
      const __m256 scale = _mm256_mul_ps(row_scales(aura_scales(record.data) + row), factor);
      _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_loadu_ps(to), scale));
    }
  }
}

// --- values

template <int kBits>
constexpr int kVectors = kBits == 3 ? 8 : 4;  // of a unit
template <int kBits>
constexpr int kStepBytes = kBits == 3 ? 192 : 32 * kBits;  // a quad, or with 3 bits two of them
template <int kBits>
constexpr int kSteps = kBits == 3 ? kQuads / 2 : kQuads;

// The piece before each of a half line; the first half's first are the last of the line `last`.
template <int kBits, int kHalf>
inline __m256i piece_before(const std::byte* line, const std::byte* last) {
  constexpr int kBytes = kBits == 3 ? 16 : 8;
  if constexpr (kHalf == 1) return load(line + 32 - kBytes);
  const __m256i first = load(line), end = load(last + 32);
  if constexpr (kBits == 3) return _mm256_permute2x128_si256(end, first, 0x21);
  return _mm256_blend_epi32(_mm256_permute4x64_epi64(first, 0x93), _mm256_permute4x64_epi64(end, 0x93), 0x03);
}

// Half of vector v of a step: words whose windows begin at bits `start` and `start` + kBits.
template <int kBits, int v, int kHalf>
inline __m256i pair_source(const std::byte* step, const std::byte* last) {
  constexpr int kLine = 64;
  const auto line = [&](int i) { return load(step + i * kLine + 32 * kHalf); };
  const auto before = [&](int i) __attribute__((always_inline)) {
    return piece_before<kBits, kHalf>(step + i * kLine, last + i * kLine);
  };
  if constexpr (v == 0) return funnel_16<8>(before(kBits == 2 ? 0 : kBits == 4 ? 1 : 2), line(0));
  if constexpr (kBits == 2 || v == 1) return line(0);
  if constexpr (kBits == 4) return v == 2 ? funnel_16<8>(line(0), line(1)) : line(1);
  if constexpr (v == 2 || v == 3) return funnel_16<9>(line(0), line(1));
  if constexpr (v == 4) return line(1);
  return v == 5 ? funnel_16<8>(line(1), line(2)) : line(2);
}

template <int kBits, int v>
constexpr int pair_start() {
  constexpr int kStarts[3][8] = {{4, 0, 4, 8}, {5, 3, 0, 6, 5, 3, 1, 7}, {6, 6, 6, 6}};
  return kStarts[kBits - 2][v];
}

// Two channels of each word.
template <int kBits, int v, int kHalf>
inline __m256i pair_levels(const std::byte* step, const std::byte* last, const LevelTable& table) {
  constexpr int kFirst = pair_start<kBits, v>(), kSecond = kFirst + kBits;
  const __m256i source = pair_source<kBits, v, kHalf>(step, last);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi16(source, kFirst), _mm256_set1_epi16(0x003F));
  const __m256i moved = kSecond > 8 ? _mm256_srli_epi16(source, kSecond > 8 ? kSecond - 8 : 0)
                                    : _mm256_slli_epi16(source, kSecond > 8 ? 0 : 8 - kSecond);
  return table.look_up(_mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi16(0x3F00))));
}

// The weights of a page as words up to 255: quad t holds those of rows t, t + 16, t + 32, t + 48.
template <int kHeads>
struct WordWeights {
  alignas(32) uint16_t quads[kHeads][kQuads][4];
  float factor[kHeads];  // what 1 is worth, over 2^u and the table's step
};

// Rows t..t+7 of each quarter of a page to 8 quads.
inline void store_quads(const __m256i* whole, uint16_t* quads) {
  const __m256i low = _mm256_or_si256(whole[0], _mm256_slli_epi32(whole[1], 16));
  const __m256i high = _mm256_or_si256(whole[2], _mm256_slli_epi32(whole[3], 16));
  const __m256i a = _mm256_unpacklo_epi32(low, high), b = _mm256_unpackhi_epi32(low, high);
  _mm256_store_si256(reinterpret_cast<__m256i*>(quads), _mm256_permute2x128_si256(a, b, 0x20));
  _mm256_store_si256(reinterpret_cast<__m256i*>(quads + 16), _mm256_permute2x128_si256(a, b, 0x31));
}

template <int kHeads>
void quantise_weights(const float* weights, const uint8_t* scales, WordWeights<kHeads>& words) {
  // Weights below are nothing beside the 1 of the largest there is. Much smaller, and factors made of it
  // would be denormal, which costs more than the page.
  constexpr float kTiny = 1e-20F;
  for (int h = 0; h < kHeads; ++h, weights += kPageRows) {
    __m256 products[8], highest = _mm256_set1_ps(kTiny);
    for (int i = 0; i < 8; ++i) {
      products[i] = _mm256_mul_ps(_mm256_loadu_ps(weights + 8 * i), row_scales(scales + 8 * i));
      highest = _mm256_max_ps(highest, products[i]);
    }
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(highest), _mm256_extractf128_ps(highest, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    const float largest = _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
    words.factor[h] = largest * (1.0F / 255);
    const __m256 inverse = _mm256_set1_ps(255.0F / largest);
    for (int side = 0; side < 2; ++side) {
      __m256i whole[4];
      for (int i = 0; i < 4; ++i) {
        whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(products[2 * i + side], inverse));
      }
      store_quads(whole, words.quads[h][8 * side]);
    }
  }
}

// A head's weights of a step, as words of 4 rows: one quad, or two in turn.
template <int kBits>
inline __m256i step_weights(const uint16_t (*quads)[4], int step) {
  if constexpr (kBits == 3) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(quads[2 * step])));
  }
  int64_t quad;
  std::memcpy(&quad, quads[step], sizeof quad);
  return _mm256_set1_epi64x(quad);
}

// Where half a vector's 8 places stand in a unit's accumulators: 4 of them, or (3 bits) 2 twice.
template <int kBits>
constexpr int place_of(int v, int half) {
  return kBits == 3 ? v / 2 * 16 + half * 8 + v % 2 * 2 : 16 * v + 8 * half;
}

// even, odd: sums of the first and the second channel of each word, in pairs of rows.
template <int kBits, int v, int kHalf>
inline void add_scaled(__m256i even, __m256i odd, float factor, float* acc) {
  // Both channels of each lane of 8 bytes.
  const __m256i sums = _mm256_shuffle_epi32(_mm256_hadd_epi32(even, odd), 0xD8);
  float* to = acc + place_of<kBits>(v, kHalf);
  const __m256 factors = _mm256_set1_ps(factor * (1.0F / 256));
  if constexpr (kBits == 3) {  // the two quads lie side by side
    const __m256i both = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4E));
    alignas(32) float values[8];
    _mm256_store_ps(values, _mm256_mul_ps(_mm256_cvtepi32_ps(both), factors));
    for (int lane = 0; lane < 2; ++lane) {
      to[4 * lane] += values[4 * lane];
      to[4 * lane + 1] += values[4 * lane + 1];
    }
  } else {
    _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), factors, _mm256_loadu_ps(to)));
  }
}

template <int kBits, int kHeads, int v>
inline void accumulate_vector(const std::byte* unit, const std::byte* before, const LevelTable& table,
                              const WordWeights<kHeads>& words, const float* factor, int64_t stride,
                              float* acc) {
  __m256i even[kHeads][2], odd[kHeads][2];
  for (int h = 0; h < kHeads; ++h) even[h][0] = even[h][1] = odd[h][0] = odd[h][1] = _mm256_setzero_si256();
  for (int step = 0; step < kSteps<kBits>; ++step) {
    unrolled<2>([&](auto half) __attribute__((always_inline)) {
      const __m256i levels = pair_levels<kBits, v, half>(unit + step * kStepBytes<kBits>,
                                                         before + step * kStepBytes<kBits>, table);
      const __m256i first = _mm256_slli_epi16(levels, 8);
      const __m256i second = _mm256_and_si256(levels, _mm256_set1_epi16(static_cast<int16_t>(0xFF00)));
      for (int h = 0; h < kHeads; ++h) {
        const __m256i weights = step_weights<kBits>(words.quads[h], step);
        even[h][half] = _mm256_add_epi32(even[h][half], _mm256_madd_epi16(first, weights));
        odd[h][half] = _mm256_add_epi32(odd[h][half], _mm256_madd_epi16(second, weights));
      }
    });
  }
  for (int h = 0; h < kHeads; ++h) {
    add_scaled<kBits, v, 0>(even[h][0], odd[h][0], factor[h], acc + h * stride);
    add_scaled<kBits, v, 1>(even[h][1], odd[h][1], factor[h], acc + h * stride);
  }
}

template <int kBits, int kHeads>
void accumulate_heads(const RowShape& shape, const float* weights, const Record& record, float* acc) {
  const LevelTable table(kBits);
  WordWeights<kHeads> words;
  quantise_weights<kHeads>(weights, aura_scales(record.data), words);
  const float unit_scale = plain::page_scale(shape, record) * trellis_table(kBits).step;
  for (float& factor : words.factor) factor *= unit_scale;
  const int units = shape.dim / kUnit;
  const std::byte* before = aura_codes(record.data) + (units - 1) * kUnitBytes<kBits>;
  for (int u = 0; u < units; ++u) {
    const std::byte* unit = aura_codes(record.data) + u * kUnitBytes<kBits>;
    unrolled<kVectors<kBits>>([&](auto v) __attribute__((always_inline)) {
      constexpr int64_t kShare = kUnitBytes<kBits> / kVectors<kBits>;
      fetch_ahead(unit + v * kShare, kShare);
      accumulate_vector<kBits, kHeads, v>(unit, before, table, words, words.factor, shape.dim,
                                          acc + u * kUnit);
    });
    before = unit;
  }
}

// --- expand

inline void store_8(const int8_t* levels, float scale, float* to) {
  const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(levels)));
  _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(scale)));
}

template <int kBits>
void expand_keys(int dim, const Record& record, const float* row_scale, float* rows) {
  const LevelTable table(kBits);
  for (int row = 0; row < kPageRows; row += 4) {
    for_key_rows<kBits>(
        dim, aura_codes(record.data), row,
        table, [&](int channel, __m256i levels) __attribute__((always_inline)) {
          alignas(32) int8_t bytes[32];
          _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), levels);
          for (int r = 0; r < 4; ++r) {
            store_8(bytes + 8 * r, row_scale[row + r], rows + int64_t{row + r} * dim + channel);
          }
        });
  }
}

// Puts the words of half a vector where their places are: [rows of a step: 4, or 8][64].
template <int kBits, int v, int kHalf>
inline void place_pairs(__m256i levels, int8_t (*places)[kUnit]) {
  alignas(32) uint16_t words[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), levels);
  for (int i = 0; i < 16; ++i) {
    const int lane = i / 4;  // of 8 bytes
    const int row = kBits == 3 ? 4 * (lane % 2) + i % 4 : i % 4;
    const int place = place_of<kBits>(v, kHalf) + (kBits == 3 ? 4 * (lane / 2) : 2 * lane);
    std::memcpy(places[row] + place, words + i, sizeof words[i]);
  }
}

template <int kBits>
void expand_values(int dim, const Record& record, const float* row_scale, float* rows) {
  const LevelTable table(kBits);
  constexpr int kRows = kPageRows / kSteps<kBits>;
  const std::byte* before = aura_codes(record.data) + (dim / kUnit - 1) * kUnitBytes<kBits>;
  for (int u = 0; u < dim / kUnit; ++u) {
    const std::byte* unit = aura_codes(record.data) + u * kUnitBytes<kBits>;
    for (int step = 0; step < kSteps<kBits>; ++step) {
      int8_t places[kRows][kUnit];
      unrolled<kVectors<kBits>>([&](auto v) __attribute__((always_inline)) {
        unrolled<2>([&](auto half) __attribute__((always_inline)) {
          place_pairs<kBits, v, half>(pair_levels<kBits, v, half>(unit + step * kStepBytes<kBits>,
                                                                  before + step * kStepBytes<kBits>, table),
                                      places);
        });
      });
      for (int r = 0; r < kRows; ++r) {
        const int row = step * (kRows / 4) + r / 4 + kQuads * (r % 4);
        for (int i = 0; i < kUnit; i += 8) {
          store_8(places[r] + i, row_scale[row], rows + int64_t{row} * dim + u * kUnit + i);
        }
      }
    }
    before = unit;
  }
}

// --- the verbs

void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  if (shape.dim % kUnit != 0) return plain::score(shape, prepared, heads, record, scores);
  const int64_t stride = static_cast<int64_t>(sizeof(AuraQuery)) + shape.dim;
  with_bits(shape.bits, [&]<int kBits>() {
    for_head_groups<2 * kMostHeads>(heads, [&]<int kHeads>(int first) {
      score_heads<kBits, kHeads>(shape, prepared + first * stride, record, scores + first * kPageRows);
    });
  });
}

void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  if (shape.dim % kUnit != 0) return plain::accumulate(shape, weights, heads, record, acc);
  with_bits(shape.bits, [&]<int kBits>() {
    for_head_groups<kMostHeads>(heads, [&]<int kHeads>(int first) {
      accumulate_heads<kBits, kHeads>(shape, weights + first * kPageRows, record, acc + first * shape.dim);
    });
  });
}

void expand(const RowShape& shape, const Record& record, float* rows) {
  if (shape.dim % kUnit != 0) return plain::expand(shape, record, rows);
  const __m256 unit_scale = _mm256_set1_ps(plain::page_scale(shape, record) * trellis_table(shape.bits).step);
  alignas(32) float row_scale[kPageRows];
  for (int row = 0; row < kPageRows; row += 8) {
    _mm256_store_ps(row_scale + row, _mm256_mul_ps(unit_scale, row_scales(aura_scales(record.data) + row)));
  }
  with_bits(shape.bits, [&]<int kBits>() {
    if (shape.side == Side::kKey) return expand_keys<kBits>(shape.dim, record, row_scale, rows);
    expand_values<kBits>(shape.dim, record, row_scale, rows);
  });
}

constexpr AuraKernels kKernels = {plain::order_query, score, accumulate, expand};

}  // namespace

const AuraKernels& aura_kernels_avx2() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
