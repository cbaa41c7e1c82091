// Dot for AVX2: vectors of 32 codes, which become 16-bit numbers in two halves (even and odd bytes) and meet
// queries and weights of 15 bits in products that add up pairs. (Products of bytes would be as many
// instructions once they are kept from saturating.) See codes_inl.h. Internal linkage.
#pragma once

#include "kernels/cpu/attend_vec_avx2_inl.h"

namespace butter::cpu {
namespace {

struct Dot {
  static constexpr int kLanes = 8;
  static constexpr int kHeads = 4;  // query heads that share a load of codes

  using Codes = __m256i;

  // --- codes
  static Codes load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Codes keep_bits(Codes x, uint8_t mask) {
    return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  // Bits of `mask` from a, the others from b.
  static Codes choose_bits(uint8_t mask, Codes a, Codes b) {
    const Codes bits = _mm256_set1_epi8(static_cast<char>(mask));
    return _mm256_or_si256(_mm256_and_si256(bits, a), _mm256_andnot_si256(bits, b));
  }
  // Bits move into neighbouring bytes too: mask them off. kBy > 0 moves up.
  template <int kBy>
  static Codes move_bits(Codes x) {
    if constexpr (kBy > 0) return _mm256_slli_epi16(x, kBy);
    if constexpr (kBy < 0) return _mm256_srli_epi16(x, -kBy);
    return x;
  }
  static Codes move_bits(Codes x, int up) {
    return up >= 0 ? _mm256_sll_epi16(x, _mm_cvtsi32_si128(up)) : _mm256_srl_epi16(x, _mm_cvtsi32_si128(-up));
  }

  // --- queries: 4 channels as 16-bit numbers, 0 and 2, then 1 and 3. Sums over 256 channels of 255 · the
  // largest fit 31 bits.
  struct QueryHalves {
    static constexpr int kWords = 2;
    static constexpr int kStartWords = 1;
    static constexpr float kLargest = 16383;
    static constexpr int vectors(int) { return 2; }  // of rows in a pass over keys
    using Sum = __m256i;

    // Sums of a query's numbers, lane by lane.
    static Sum no_totals() { return _mm256_setzero_si256(); }
    // 16 channels of a query, over its unit: the words of each 4 of them, `stride` apart.
    static void pack(const Vec::F* x, int32_t* words, int stride, Sum& totals) {
      const __m256i a = _mm256_cvtps_epi32(x[0]), b = _mm256_cvtps_epi32(x[1]);
      totals = _mm256_add_epi32(totals, _mm256_add_epi32(a, b));
      alignas(32) int32_t pairs[8];  // of channels 0..3, 8..11, 4..7, 12..15
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs),
                         _mm256_packs_epi32(_mm256_shuffle_epi32(a, _MM_SHUFFLE(3, 1, 2, 0)),
                                            _mm256_shuffle_epi32(b, _MM_SHUFFLE(3, 1, 2, 0))));
      for (int half = 0; half < 2; ++half) {
        words[half] = pairs[half];
        words[2 * stride + half] = pairs[2 + half];
        words[stride + half] = pairs[4 + half];
        words[3 * stride + half] = pairs[6 + half];
      }
    }
    // What dot products start from: -128 times the totals.
    static void make_starts(Sum totals, int32_t* starts) {
      const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(totals), _mm256_extracti128_si256(totals, 1));
      const __m128i pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
      *starts = -128 * _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 1)));
    }
    static Sum start(const int32_t* starts) { return _mm256_set1_epi32(*starts); }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      const Codes even = _mm256_and_si256(codes, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(codes, 8);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, _mm256_set1_epi32(words[0])));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(odd, _mm256_set1_epi32(words[1])));
    }
    static Vec::F to_float(Sum sum) { return _mm256_cvtepi32_ps(sum); }
  };
  template <int>
  using Query = QueryHalves;

  // --- weights of 64 rows: for each quad rows 0 and 2, then 1 and 3; quads 0 2 1 3 4 6 5 7 ...
  struct WeightHalves {
    static constexpr int kWords = 32;
    static constexpr bool kHasUnit = true;
    static constexpr float kLargest = 32767;
    static constexpr int columns(int) { return 1; }  // of 16 channels in a pass over values
    using Sum = __m256i;

    static Sum zero() { return _mm256_setzero_si256(); }
    // x: 8 vectors of numbers of 0..kLargest.
    static void pack(const Vec::F* x, int32_t* words) {
      for (int i = 0; i < 8; i += 2) {
        const __m256i a = _mm256_shuffle_epi32(_mm256_cvtps_epi32(x[i]), _MM_SHUFFLE(3, 1, 2, 0));
        const __m256i b = _mm256_shuffle_epi32(_mm256_cvtps_epi32(x[i + 1]), _MM_SHUFFLE(3, 1, 2, 0));
        _mm256_store_si256(reinterpret_cast<__m256i*>(words + 4 * i), _mm256_packs_epi32(a, b));
      }
    }
    // Those of quad 4·high + low.
    static const int32_t* of_quad(const int32_t* words, int high, int low) {
      return words + 8 * high + 2 * (low == 1 ? 2 : low == 2 ? 1 : low);
    }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      const Codes even = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8), odd = _mm256_srai_epi16(codes, 8);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, _mm256_set1_epi32(words[0])));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(odd, _mm256_set1_epi32(words[1])));
    }
    static Vec::F to_float(Sum sum) { return _mm256_cvtepi32_ps(sum); }
  };
  template <int>
  using Weights = WeightHalves;

  // --- floats
  // x where the other is not 0, else 0, whatever x is.
  static Vec::F keep(Vec::F x, Vec::F where) {
    return _mm256_and_ps(x, _mm256_cmp_ps(where, Vec::zero(), _CMP_NEQ_UQ));
  }
  // Scale bytes over 2^u: a byte at bits 6..13 of an fp16.
  static Vec::F load_scale_bytes(const std::byte* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 6));
  }
  // kLanes bytes as floats.
  static Vec::F load_unsigned(const uint8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  static Vec::F load_signed(const uint8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static Vec::F divide(Vec::F a, Vec::F b) { return _mm256_div_ps(a, b); }
  static Vec::F lower(Vec::F a, Vec::F b) { return _mm256_min_ps(a, b); }
  static Vec::F round(Vec::F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // Whole numbers of -128..255 to bytes.
  static void store_bytes(uint8_t* to, Vec::F x) {
    const __m256i low = _mm256_and_si256(_mm256_cvtps_epi32(x), _mm256_set1_epi32(255));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
};

}  // namespace
}  // namespace butter::cpu
