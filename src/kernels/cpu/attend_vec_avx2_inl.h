// Vec for AVX2, FMA and F16C: 8 floats. For files compiled with these instructions; everything has internal
// linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace butter::cpu {
namespace {

struct Vec {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kHeads = 2;     // query heads that share a load of a row
  static constexpr int kColumns = 4;   // vectors of a row that accumulate in registers
  static constexpr int kTileRows = 6;  // rows and vectors of a block of the prefill product
  static constexpr int kTileColumns = 2;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, F x) { _mm256_storeu_ps(to, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static float sum(F x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float highest(F x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

  // Lanes that are not 0, as bits.
  static uint64_t nonzero(F x) {
    return static_cast<uint64_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, zero(), _CMP_NEQ_UQ)));
  }

  // a + b in the lanes of the low bits, a in the others.
  static F add_where(uint64_t bits, F a, F b) { return _mm256_add_ps(a, _mm256_and_ps(lanes_of(bits), b)); }
  // a in the lanes of the low bits, b in the others.
  static F choose(uint64_t bits, F a, F b) { return _mm256_blendv_ps(b, a, lanes_of(bits)); }
  static F reverse(F x) { return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0)); }
  static F load_f16(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static F load_bf16(const std::byte* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  // out[i] = sum of the lanes of the i-th.
  static void sums(F a, F b, F c, F d, float* out) {
    const F abcd = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
  }

  // out[i] = the largest lane of the i-th.
  static void highest(F a, F b, F c, F d, float* out) {
    const __m256 ab = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_max_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d ab2 = _mm256_castps_pd(ab), cd2 = _mm256_castps_pd(cd);
    const __m256 abcd = _mm256_max_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab2, cd2)),
                                      _mm256_castpd_ps(_mm256_unpackhi_pd(ab2, cd2)));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
  }

  // from[index[i]] for the first `count` lanes, 0 in the others.
  static F gather(const float* from, const uint16_t* index, int count) {
    alignas(64) float lanes[kLanes] = {};
    for (int i = 0; i < kLanes && i < count; ++i) lanes[i] = from[index[i]];
    return load(lanes);
  }

  // A weight 2^-64 of the largest and below is none: no sum of float32 feels it, and products with it would
  // be denormal, which costs the CPU an assist each.
  static constexpr float kLeastWeight = -64;
  // 2^x for x <= 0, 0 below kLeastWeight, NaN of NaN; relative error below 2e-7 (degree 5, minimax on half an
  // octave each side).
  static F exp2(F x) {
    const F whole = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F f = _mm256_sub_ps(x, whole);
    F p = fma(set(1.32647203e-3f), f, set(9.67151314e-3f));
    p = fma(p, f, set(5.55073377e-2f));
    p = fma(p, f, set(2.40222421e-1f));
    p = fma(p, f, set(6.93146978e-1f));
    p = fma(p, f, set(1.0f));
    const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    const F result = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
    // NaN is not below; its power is none (0x80000000 << 23), so that it stays.
    return _mm256_and_ps(result, _mm256_cmp_ps(x, set(kLeastWeight), _CMP_NLT_UQ));
  }

 private:
  // All ones in the lanes of the low bits.
  static inline __attribute__((always_inline)) F lanes_of(uint64_t bits) {
    const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 255)), lanes);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lanes));
  }
};

}  // namespace
}  // namespace butter::cpu
