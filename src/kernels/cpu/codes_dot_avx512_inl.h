// Dot for AVX-512 VNNI: vectors of 64 codes, dot products of 4 bytes into 16 sums. See codes_inl.h. Internal
// linkage.
//
// Queries and weights have 16 bits, in two bytes with a dot product each: with 8 bits their rounding (0.6 %
// of a query, and of a page's largest weight 1/510) is as large as that of 8-bit codes. The second product
// costs what the bytes of 8-bit pages leave idle.
#pragma once

#include "kernels/cpu/attend_vec_avx512_inl.h"

namespace butter::cpu {
namespace {

#ifndef BUTTER_CODES_PARTS
#define BUTTER_CODES_PARTS 2
#endif

struct Dot {
  static constexpr int kLanes = 16;
  static constexpr int kParts = BUTTER_CODES_PARTS;  // bytes of a query's or weight's number
  static constexpr int kHeads = 4;                   // query heads that share a load of codes
  static constexpr int kKeyVectors = 2;              // row vectors of a pass over keys
  // Columns of 16 channels of a pass over values: sums, codes and a weight must fit 32 registers.
  static constexpr int columns(int heads) { return heads * kParts > 6 ? 2 : 4; }

  using Codes = __m512i;
  struct Sum {
    __m512i part[kParts];
  };

  // --- codes
  static Codes load(const std::byte* from) { return _mm512_loadu_si512(from); }
  static Codes keep_bits(Codes x, uint8_t mask) {
    return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  // Bits of `mask` from a, the others from b.
  static Codes choose_bits(uint8_t mask, Codes a, Codes b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xCA);
  }
  // Bits move into neighbouring bytes too: mask them off. kBy > 0 moves up.
  template <int kBy>
  static Codes move_bits(Codes x) {
    if constexpr (kBy > 0) return _mm512_slli_epi16(x, kBy);
    if constexpr (kBy < 0) return _mm512_srli_epi16(x, -kBy);
    return x;
  }
  static Codes move_bits(Codes x, int up) {
    return up >= 0 ? _mm512_sll_epi16(x, _mm_cvtsi32_si128(up)) : _mm512_srl_epi16(x, _mm_cvtsi32_si128(-up));
  }

  // --- queries: dwords of 4 channels, high bytes then low bytes
  static constexpr int kQueryWords = kParts;
  static constexpr int kStartWords = kParts;
  static constexpr float kLargestQuery = kParts == 1 ? 127 : 127 * 256;

  // 4 channels of a query, over its unit. starts: sums of -128 · query.
  static void pack_query(const float* query, int32_t* words, int32_t* starts) {
    uint32_t packed[2] = {};
    for (int j = 0; j < 4; ++j) {
      const int x = static_cast<int>(__builtin_nearbyintf(query[j]));
      const int high = kParts == 1 ? x : (x + 128) >> 8;
      const int parts[2] = {high, x - 256 * high};
      for (int p = 0; p < kParts; ++p) {
        packed[p] |= static_cast<uint32_t>(parts[p] & 255) << 8 * j;
        starts[p] -= 128 * parts[p];
      }
    }
    for (int p = 0; p < kParts; ++p) words[p] = static_cast<int32_t>(packed[p]);
  }
  static Sum start(const int32_t* starts) {
    Sum sum;
    for (int p = 0; p < kParts; ++p) sum.part[p] = _mm512_set1_epi32(starts[p]);
    return sum;
  }
  static void add_key(Sum& sum, Codes codes, const int32_t* words) {
    for (int p = 0; p < kParts; ++p)
      sum.part[p] = _mm512_dpbusd_epi32(sum.part[p], codes, _mm512_set1_epi32(words[p]));
  }
  static Vec::F to_float(const Sum& sum) {
    if constexpr (kParts == 1)
      return _mm512_cvtepi32_ps(sum.part[0]);
    else
      return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(sum.part[0], 8), sum.part[kParts - 1]));
  }

  // --- weights of 64 rows: [parts][16 quads] of 4 bytes, quads in the order of packing: 0 4 8 12 1 5 ...
  static constexpr int kWeightWords = 16 * kParts;
  static constexpr bool kWeightsHaveUnit = true;
  static constexpr float kLargestWeight = kParts == 1 ? 255 : 65535;
  static Sum zero() {
    Sum sum;
    for (int p = 0; p < kParts; ++p) sum.part[p] = _mm512_setzero_si512();
    return sum;
  }
  // products [64], none negative, times factor: at most kLargestWeight.
  static void pack_weights(const float* products, float factor, int32_t* words) {
    __m512i x[4];
    for (int i = 0; i < 4; ++i)
      x[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_set1_ps(factor), Vec::load(products + 16 * i)));
    if constexpr (kParts == 1) {
      const __m512i packed =
          _mm512_packus_epi16(_mm512_packus_epi32(x[0], x[1]), _mm512_packus_epi32(x[2], x[3]));
      _mm512_store_si512(words, packed);
    } else {
      const __m512i a = _mm512_packus_epi32(x[0], x[1]), b = _mm512_packus_epi32(x[2], x[3]);
      const __m512i low = _mm512_set1_epi16(255);
      _mm512_store_si512(words, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
      _mm512_store_si512(words + 16, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
    }
  }
  // Those of quad 4·high + low.
  static const int32_t* weights_of(const int32_t* words, int high, int low) { return words + 4 * low + high; }
  static void add_value(Sum& sum, Codes codes, const int32_t* words) {
    for (int p = 0; p < kParts; ++p)
      sum.part[p] = _mm512_dpbusd_epi32(sum.part[p], _mm512_set1_epi32(words[16 * p]), codes);
  }

  // --- floats
  // x where the other is not 0, else 0, whatever x is.
  static Vec::F keep(Vec::F x, Vec::F where) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(where, Vec::zero(), _CMP_NEQ_UQ), x);
  }
  // out[i] = the highest lane of the i-th.
  static void highest(Vec::F a, Vec::F b, Vec::F c, Vec::F d, float* out) {
    const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d ab2 = _mm512_castps_pd(ab), cd2 = _mm512_castps_pd(cd);
    const __m512 abcd = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab2, cd2)),
                                      _mm512_castpd_ps(_mm512_unpackhi_pd(ab2, cd2)));
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
  // Scale bytes over 2^u: a byte at bits 6..13 of an fp16.
  static Vec::F load_scale_bytes(const std::byte* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 6));
  }
  // kLanes bytes as floats.
  static Vec::F load_unsigned(const uint8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  static Vec::F load_signed(const uint8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  static Vec::F divide(Vec::F a, Vec::F b) { return _mm512_div_ps(a, b); }
  static Vec::F round(Vec::F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Vec::F lower(Vec::F a, Vec::F b) { return _mm512_min_ps(a, b); }
  // Whole numbers of -128..255 to bytes.
  static void store_bytes(uint8_t* to, Vec::F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
  }
};

}  // namespace
}  // namespace butter::cpu
