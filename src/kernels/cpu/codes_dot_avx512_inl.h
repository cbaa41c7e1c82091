// Dot for AVX-512 VNNI: vectors of 64 codes, dot products of 4 bytes into 16 sums. See codes_inl.h. Internal
// linkage.
//
// Where one byte is too coarse for a query or a weight, two have a dot product each. What rounding them adds
// to the variance of attention's output, over that of the codes' own rounding (normal rows, d 64, 1,024
// positions): with 8-bit codes a byte of the query 0.7 to 0.8, a byte of the weight 0.1 to 0.5; with 6 bits
// 0.05 and 0.03; with 4 bits 0.003 each. It must stay below 0.05.
#pragma once

#include "kernels/cpu/attend_vec_avx512_inl.h"

namespace butter::cpu {
namespace {

struct Dot {
  static constexpr int kLanes = 16;
  static constexpr int kHeads = 4;  // query heads that share a load of codes

  using Codes = __m512i;
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

  // --- queries: numbers of kParts bytes; dwords of 4 channels, high bytes before low ones
  template <int kBits>
  struct Query {
    static constexpr int kParts = kBits == 4 ? 1 : 2;
    static constexpr int kWords = kParts;
    static constexpr int kStartWords = kParts;
    static constexpr float kLargest = kParts == 1 ? 127 : 127 * 256;
    // Row vectors of a pass over keys: enough sums to hide a product's latency, few enough for registers.
    // (Six bits need some for bits on the way.)
    static constexpr int vectors(int heads) { return heads * kParts <= 6 && kBits != 6 ? 4 : 2; }
    struct Sum {
      __m512i part[kParts];
    };

    // Sums of a query's parts, lane by lane.
    static Sum no_totals() {
      Sum totals;
      for (__m512i& part : totals.part) part = _mm512_setzero_si512();
      return totals;
    }
    // 16 channels of a query, over its unit: the words of each 4 of them, `stride` apart.
    static void pack(const Vec::F* x, int32_t* words, int stride, Sum& totals) {
      const __m512i number = _mm512_cvtps_epi32(x[0]);
      __m512i parts[2] = {number, number};
      if constexpr (kParts == 2) {
        parts[0] = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(128)), 8);
        parts[1] = _mm512_sub_epi32(number, _mm512_slli_epi32(parts[0], 8));
      }
      for (int p = 0; p < kParts; ++p) {
        totals.part[p] = _mm512_add_epi32(totals.part[p], parts[p]);
        alignas(16) int32_t fours[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(fours), _mm512_cvtepi32_epi8(parts[p]));
        for (int i = 0; i < 4; ++i) words[i * stride + p] = fours[i];
      }
    }
    // What dot products start from: -128 times the totals.
    static void make_starts(const Sum& totals, int32_t* starts) {
      for (int p = 0; p < kParts; ++p) starts[p] = -128 * _mm512_reduce_add_epi32(totals.part[p]);
    }
    static Sum start(const int32_t* starts) {
      Sum sum;
      for (int p = 0; p < kParts; ++p) sum.part[p] = _mm512_set1_epi32(starts[p]);
      return sum;
    }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      for (int p = 0; p < kParts; ++p) add_products(sum.part[p], codes, _mm512_set1_epi32(words[p]));
    }
    static Vec::F to_float(const Sum& sum) { return join(sum.part); }
  };
  // --- weights of 64 rows, numbers of kParts bytes: [parts][16 quads] of 4 bytes, quads in the order that
  // packing gives: 0 4 8 12 1 5 ...
  template <int kBits>
  struct Weights {
    static constexpr int kParts = kBits == 8 ? 2 : 1;
    static constexpr int kWords = 16 * kParts;
    static constexpr bool kHasUnit = true;
    static constexpr float kLargest = kParts == 1 ? 255 : 65535;
    // Columns of 16 channels of a pass over values: sums, codes and a weight must fit the registers.
    static constexpr int columns(int heads) { return heads * kParts > 6 ? 2 : 4; }
    struct Sum {
      __m512i part[kParts];
    };

    static Sum zero() {
      Sum sum;
      for (int p = 0; p < kParts; ++p) sum.part[p] = _mm512_setzero_si512();
      return sum;
    }
    // x: 4 vectors of numbers of 0..kLargest.
    static void pack(const Vec::F* x, int32_t* words) {
      const __m512i a = _mm512_packus_epi32(_mm512_cvtps_epi32(x[0]), _mm512_cvtps_epi32(x[1]));
      const __m512i b = _mm512_packus_epi32(_mm512_cvtps_epi32(x[2]), _mm512_cvtps_epi32(x[3]));
      if constexpr (kParts == 1) {
        _mm512_store_si512(words, _mm512_packus_epi16(a, b));
      } else {
        const __m512i low = _mm512_set1_epi16(255);
        const __m512i a_low = _mm512_and_si512(a, low), b_low = _mm512_and_si512(b, low);
        _mm512_store_si512(words, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
        _mm512_store_si512(words + 16, _mm512_packus_epi16(a_low, b_low));
      }
    }
    // Those of quad 4·high + low.
    static const int32_t* of_quad(const int32_t* words, int high, int low) { return words + 4 * low + high; }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      for (int p = 0; p < kParts; ++p) add_products(sum.part[p], _mm512_set1_epi32(words[16 * p]), codes);
    }
    static Vec::F to_float(const Sum& sum) { return join(sum.part); }
  };
  // --- floats
  // x where the other is not 0, else 0, whatever x is.
  static Vec::F keep(Vec::F x, Vec::F where) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(where, Vec::zero(), _CMP_NEQ_UQ), x);
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

 private:
  // sum += dot products of unsigned bytes with signed ones. Written out because g++ 12 copies and spills sums
  // where the intrinsic is one of many in a loop: values of 8 bits, d 64, 3 heads, 2.2 and 1.9 ns for each
  // (KV head, position).
  static void add_products(__m512i& sum, __m512i without_sign, __m512i with_sign) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(without_sign), "v"(with_sign));
  }
  static Vec::F join(const __m512i (&part)[1]) { return _mm512_cvtepi32_ps(part[0]); }
  static Vec::F join(const __m512i (&part)[2]) {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(part[0], 8), part[1]));
  }
};

}  // namespace
}  // namespace butter::cpu
