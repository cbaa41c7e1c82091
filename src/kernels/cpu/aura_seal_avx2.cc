// The trellis search, compiled for AVX2: see aura_seal_inl.h. A vector holds 16 costs.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/aura_seal_kernels.h"

namespace butter::cpu {
namespace {

constexpr int kRows = 8;

__m256i load_line(const int16_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}
__m256i first_everywhere(__m256i state) {
  return _mm256_broadcastw_epi16(_mm256_castsi256_si128(state));
}

template <int bits>
struct Trellis;

// A vector is the 16 q of one h.
template <>
struct Trellis<2> {
  using State = __m256i;
  static State load(const int16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(int16_t* to, State state) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), state); }
  static State clear(State state) { return _mm256_and_si256(state, _mm256_set1_epi16(~3)); }
  static State normalised(State state) { return _mm256_sub_epi16(state, first_everywhere(state)); }
  static State step(State state, const int16_t* line) {
    // Window [h][q] follows state 4·(q mod 4) + h: the states transposed, as [h][4], then each h four times.
    const __m256i pairs = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                                           0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    const __m256i by_h = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(state, pairs),
                                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i a = _mm256_add_epi16(_mm256_permute4x64_epi64(by_h, 0x00), load_line(line));
    const __m256i b = _mm256_add_epi16(_mm256_permute4x64_epi64(by_h, 0x55), load_line(line + 16));
    const __m256i c = _mm256_add_epi16(_mm256_permute4x64_epi64(by_h, 0xaa), load_line(line + 32));
    const __m256i d = _mm256_add_epi16(_mm256_permute4x64_epi64(by_h, 0xff), load_line(line + 48));
    return _mm256_min_epi16(_mm256_min_epi16(a, b), _mm256_min_epi16(c, d));
  }
};

// A vector is the 8 q of two h. The state is there twice.
template <>
struct Trellis<3> {
  using State = __m256i;
  static State load(const int16_t* from) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(int16_t* to, State state) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(state));
  }
  static State clear(State state) { return _mm256_and_si256(state, _mm256_set1_epi16(~7)); }
  static State normalised(State state) { return _mm256_sub_epi16(state, first_everywhere(state)); }
  template <int h>
  static __m256i window_costs(State state, const int16_t* line) {  // they follow states h and h + 1
    constexpr int16_t kLow = 2 * h | (2 * h + 1) << 8, kHigh = (2 * h + 2) | (2 * h + 3) << 8;
    const __m256i lanes = _mm256_setr_m128i(_mm_set1_epi16(kLow), _mm_set1_epi16(kHigh));
    return _mm256_add_epi16(_mm256_shuffle_epi8(state, lanes), load_line(line + 8 * h));
  }
  static State step(State state, const int16_t* line) {
    const __m256i a = _mm256_min_epi16(window_costs<0>(state, line), window_costs<2>(state, line));
    const __m256i b = _mm256_min_epi16(window_costs<4>(state, line), window_costs<6>(state, line));
    const __m256i both = _mm256_min_epi16(a, b);
    return _mm256_min_epi16(both, _mm256_permute2x128_si256(both, both, 1));
  }
};

// A vector is the 4 q of four h. The state is there four times.
template <>
struct Trellis<4> {
  using State = __m256i;
  static State load(const int16_t* from) {
    return _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(int16_t* to, State state) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(state));
  }
  static State clear(State state) { return _mm256_and_si256(state, _mm256_set1_epi16(~15)); }
  static State normalised(State state) { return _mm256_sub_epi16(state, first_everywhere(state)); }
  static State step(State state, const int16_t* line) {
    // Window [h][q] follows state h mod 4.
    const __m256i lanes = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3,  //
                                           4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i before = _mm256_shuffle_epi8(state, lanes);
    const __m256i a = _mm256_add_epi16(before, load_line(line));
    const __m256i b = _mm256_add_epi16(before, load_line(line + 16));
    const __m256i c = _mm256_add_epi16(before, load_line(line + 32));
    const __m256i d = _mm256_add_epi16(before, load_line(line + 48));
    __m256i best = _mm256_min_epi16(_mm256_min_epi16(a, b), _mm256_min_epi16(c, d));
    best = _mm256_min_epi16(best, _mm256_permute2x128_si256(best, best, 1));
    return _mm256_min_epi16(best, _mm256_shuffle_epi32(best, 0x4e));
  }
};

// levels[window] of 16 windows: four tables of 16, chosen by the windows' bits 4 and 5.
__m128i look_up(const int8_t* levels, __m128i windows) {
  const auto part = [&](int i) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels + 16 * i));
    return _mm_shuffle_epi8(table, windows);  // by the low four bits
  };
  const __m128i bit4 = _mm_slli_epi16(windows, 3), bit5 = _mm_slli_epi16(windows, 2);  // to the top
  return _mm_blendv_epi8(_mm_blendv_epi8(part(0), part(1), bit4), _mm_blendv_epi8(part(2), part(3), bit4),
                         bit5);
}

float lane_sum(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

void multiply_group(const int8_t* levels, const uint8_t* windows, const float* y, SealedRow& row) {
  const __m128i bytes = look_up(levels, _mm_load_si128(reinterpret_cast<const __m128i*>(windows)));
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
  const __m256 product =
      _mm256_fmadd_ps(low, _mm256_loadu_ps(y), _mm256_mul_ps(high, _mm256_loadu_ps(y + 8)));
  row.product += lane_sum(product);
  row.square += lane_sum(_mm256_fmadd_ps(low, low, _mm256_mul_ps(high, high)));
}

}  // namespace
}  // namespace butter::cpu

// These first: the file below is written in its terms.
#include "kernels/cpu/aura_seal_inl.h"

namespace butter::cpu {

const SealKernel kSealAvx2 = {kMetrics, true, kRows, scratch_bytes, square_sum, to_cells, seal};

}  // namespace butter::cpu

#endif
