// The rotation, compiled for AVX-512: see rotate_inl.h.
#if defined(__x86_64__)

#include "kernels/cpu/attend_vec_avx512_inl.h"

namespace butter::cpu {
namespace {

struct Lanes {
  // One step of a Hadamard transform along the lanes: lane i becomes x[i] + x[i + k], or x[i - k] - x[i].
  template <int k>
  static __m512 mix(__m512 x) {
    constexpr __mmask16 kUpper = k == 8 ? 0xff00 : k == 4 ? 0xf0f0 : k == 2 ? 0xcccc : 0xaaaa;
    const __m512 one = _mm512_set1_ps(1);
    const __m512 sign = _mm512_mask_sub_ps(one, kUpper, _mm512_setzero_ps(), one);
    __m512 other;
    if constexpr (k == 8) other = _mm512_shuffle_f32x4(x, x, 0x4e);
    if constexpr (k == 4) other = _mm512_shuffle_f32x4(x, x, 0xb1);
    if constexpr (k == 2) other = _mm512_permute_ps(x, 0x4e);
    if constexpr (k == 1) other = _mm512_permute_ps(x, 0xb1);
    return _mm512_fmadd_ps(x, sign, other);
  }

  // A block of 4 or 8 floats, in every part of the vector.
  template <int size>
  static __m512 repeat(const float* block) {
    if constexpr (size == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(block));
    return _mm512_broadcast_f32x4(_mm_loadu_ps(block));
  }
};

}  // namespace
}  // namespace butter::cpu

// Vec and Lanes first: the file below is written in their terms.
#include "kernels/cpu/rotate_inl.h"

namespace butter::cpu {

const RotateKernel kRotateAvx512 = {Vec::kLanes, rotate};

}  // namespace butter::cpu

#endif
