// The rotation, compiled for AVX2 and FMA: see rotate_inl.h.
#if defined(__x86_64__)

#include "kernels/cpu/attend_vec_avx2_inl.h"

namespace butter::cpu {
namespace {

struct Lanes {
  // One step of a Hadamard transform along the lanes: lane i becomes x[i] + x[i + k], or x[i - k] - x[i].
  template <int k>
  static __m256 mix(__m256 x) {
    const auto sign = [](int lane) { return (lane & k) != 0 ? -1.0f : 1.0f; };
    const __m256 signs =
        _mm256_setr_ps(sign(0), sign(1), sign(2), sign(3), sign(4), sign(5), sign(6), sign(7));
    __m256 other;
    if constexpr (k == 4) other = _mm256_permute2f128_ps(x, x, 1);
    if constexpr (k == 2) other = _mm256_permute_ps(x, 0x4e);
    if constexpr (k == 1) other = _mm256_permute_ps(x, 0xb1);
    return _mm256_fmadd_ps(x, signs, other);
  }

  // A block of 4 floats, in both halves of the vector.
  template <int size>
  static __m256 repeat(const float* block) {
    static_assert(size == 4);
    return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(block));
  }
};

}  // namespace
}  // namespace butter::cpu

// Vec and Lanes first: the file below is written in their terms.
#include "kernels/cpu/rotate_inl.h"

namespace butter::cpu {

const RotateKernel kRotateAvx2 = {Vec::kLanes, rotate};

}  // namespace butter::cpu

#endif
