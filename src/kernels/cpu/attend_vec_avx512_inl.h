// Vec for AVX-512: 16 floats. For files compiled with these instructions; everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace butter::cpu {
namespace {

struct Vec {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kHeads = 4;     // query heads that share a load of a row
  static constexpr int kColumns = 4;   // vectors of a row that accumulate in registers
  static constexpr int kTileRows = 6;  // rows and vectors of a block of the prefill product
  static constexpr int kTileColumns = 4;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, F x) { _mm512_storeu_ps(to, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static float sum(F x) { return _mm512_reduce_add_ps(x); }
  static float highest(F x) { return _mm512_reduce_max_ps(x); }

  // Lanes that are not 0, as bits.
  static uint64_t nonzero(F x) { return _mm512_cmp_ps_mask(x, zero(), _CMP_NEQ_UQ); }

  // a + b in the lanes of the low bits, a in the others.
  static F add_where(uint64_t bits, F a, F b) {
    return _mm512_mask_add_ps(a, static_cast<__mmask16>(bits), a, b);
  }
  // a in the lanes of the low bits, b in the others.
  static F choose(uint64_t bits, F a, F b) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), b, a);
  }
  static F reverse(F x) {
    return _mm512_permutexvar_ps(_mm512_set_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), x);
  }
  static F load_f16(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static F load_bf16(const std::byte* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  // Lane i = the lanes of the i-th vector, joined by `op`. (Inlined always: it takes vectors.)
  template <typename Op>
  static inline __attribute__((always_inline)) __m128 join(F a, F b, F c, F d, const Op& op) {
    const F ab = op(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = op(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d ab2 = _mm512_castps_pd(ab), cd2 = _mm512_castps_pd(cd);
    const F abcd =
        op(_mm512_castpd_ps(_mm512_unpacklo_pd(ab2, cd2)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab2, cd2)));
    const F halves = op(abcd, _mm512_shuffle_f32x4(abcd, abcd, 0x4E));
    return _mm512_castps512_ps128(op(halves, _mm512_shuffle_f32x4(halves, halves, 0xB1)));
  }
  // out[i] = sum of the lanes of the i-th.
  static void sums(F a, F b, F c, F d, float* out) {
    _mm_storeu_ps(out, join(
                           a, b, c, d, [](F x, F y) __attribute__((always_inline)) { return add(x, y); }));
  }
  // out[i] = the largest lane of the i-th.
  static void highest(F a, F b, F c, F d, float* out) {
    _mm_storeu_ps(out, join(
                           a, b, c, d, [](F x, F y) __attribute__((always_inline)) { return max(x, y); }));
  }

  // from[index[i]] for the first `count` lanes, 0 in the others.
  static F gather(const float* from, const uint16_t* index, int count) {
    const auto lanes = static_cast<__mmask16>(count >= kLanes ? 0xffff : (1 << count) - 1);
    const __m512i places = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, index));
    return _mm512_mask_i32gather_ps(zero(), lanes, places, from, sizeof(float));
  }

  // A weight 2^-64 of the largest and below is none: no sum of float32 feels it, and products with it would
  // be denormal, which costs the CPU an assist each.
  static constexpr float kLeastWeight = -64;
  // 2^x for x <= 0, 0 below kLeastWeight, NaN of NaN; relative error below 2e-7 (degree 5, minimax on half an
  // octave each side).
  static F exp2(F x) {
    const F whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F f = _mm512_sub_ps(x, whole);
    F p = fma(set(1.32647203e-3f), f, set(9.67151314e-3f));
    p = fma(p, f, set(5.55073377e-2f));
    p = fma(p, f, set(2.40222421e-1f));
    p = fma(p, f, set(6.93146978e-1f));
    p = fma(p, f, set(1.0f));
    // x = -inf makes f NaN; its result is 0 all the same. NaN is not below, and stays NaN.
    const __mmask16 alive = _mm512_cmp_ps_mask(x, set(kLeastWeight), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(alive, p, whole);
  }
};

}  // namespace
}  // namespace butter::cpu
