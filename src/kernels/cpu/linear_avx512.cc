// Linear kernels for AVX-512 VNNI.
//
// Codes: a lane is a row of the weight. One vpdpbusd multiplies 16 rows × 4 columns of unsigned codes by 4
// signed input codes that are broadcast, so a group of 32 columns is 8 of them, exact in int32; one
// conversion and one or two FMAs bring it to float32. Codes are unpacked once for up to 8 input rows. A step
// of one row reads 16 rows × 32 columns of a 4-bit weight in 320 bytes with about 26 operations, 13 cycles:
// memory takes longer.
//
// Floats: a lane is a column; 4 rows of the weight × up to 4 input rows are in registers.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/quant_levels.h"
#include "kernels/cpu/linear_kernels.h"

namespace butter::cpu {
namespace {

#include "kernels/cpu/linear_codes_avx512_inl.h"

// --- Codes -----------------------------------------------------------------------------------------------

// Lines are fetched into L2 (which leaves L1's few buffers for lines on the way to those who wait), ahead of
// the reader by this many bytes. The default model on two threads, tokens a second: nothing fetched 218; into
// L1 2 KB ahead 293, 4 KB 346, 8 KB 381; into L2 8 KB ahead 388, 16 KB 381, 64 KB 337.
constexpr int64_t kPrefetchBytes = 12288;

// A group's lines; of the affine forms, whose groups have part of a record's scales too, a line more than
// codes.
template <LinearForm form>
inline __attribute__((always_inline)) void prefetch(const byte_t* at, int64_t group_bytes) {
  const int64_t bytes = kIsAffine<form> ? 64 * (kAffineBits<form> + 1) : group_bytes;
#pragma GCC unroll 16
  for (int64_t line = 0; line < bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T1);
}

// The dots of a group's quads [first, last) with 4 input codes each, added to `sum`.
template <int first, int last>
inline __m512i dots(const Group& group, const int* x, __m512i sum) {
#pragma GCC unroll 8
  for (int q = first; q < last; ++q) sum = _mm512_dpbusd_epi32(sum, group.quads[q], _mm512_set1_epi32(x[q]));
  return sum;
}

// What a group of 32 columns adds to the sums of M input rows.
template <LinearForm form, int M>
inline __attribute__((always_inline)) void add_group(const Group& group, const byte_t* x, __m512 sums[M]) {
  using Form = Codes<form>;
  const __m512i zero = _mm512_setzero_si512();
  const float* scales = reinterpret_cast<const float*>(x + M * kGroup);
  const float* code_sums = scales + M;
  const int* negated = reinterpret_cast<const int*>(code_sums + M);
  const int* negated_first = negated + M;
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const int* codes = reinterpret_cast<const int*>(x + m * kGroup);
    const __m512 input_scale = _mm512_set1_ps(scales[m]);
    if constexpr (Form::kHalves) {
      const __m512i first_sum = _mm512_set1_epi32(negated_first[m]);
      const __m512i second_sum = _mm512_sub_epi32(_mm512_set1_epi32(negated[m]), first_sum);
      __m512i first = zero, second = zero;
      if constexpr (Form::kZeroShift > 0) {
        first = _mm512_slli_epi32(first_sum, Form::kZeroShift);
        second = _mm512_slli_epi32(second_sum, Form::kZeroShift);
      }
      sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots<0, 4>(group, codes, first)),
                                _mm512_mul_ps(group.scale, input_scale), sums[m]);
      sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots<4, 8>(group, codes, second)),
                                _mm512_mul_ps(group.second_scale, input_scale), sums[m]);
      if constexpr (Form::kBias) {
        // bias · first + second bias · second = (bias − second bias) · first + second bias · both
        const __m512 first_codes = _mm512_mul_ps(input_scale, _mm512_cvtepi32_ps(first_sum));
        sums[m] = _mm512_fnmadd_ps(_mm512_sub_ps(group.bias, group.second_bias), first_codes, sums[m]);
        sums[m] = _mm512_fmadd_ps(group.second_bias, _mm512_set1_ps(code_sums[m]), sums[m]);
      }
    } else {
      __m512i sum = zero;
      if constexpr (Form::kZeroShift > 0)
        sum = _mm512_slli_epi32(_mm512_set1_epi32(negated[m]), Form::kZeroShift);
      if constexpr (M < 4) {  // two chains: the dots of one row are all there is to overlap
        sum = _mm512_add_epi32(dots<0, 4>(group, codes, sum), dots<4, 8>(group, codes, zero));
      } else {
        sum = dots<0, 8>(group, codes, sum);
      }
      sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(group.scale, input_scale), sums[m]);
      if constexpr (Form::kBias) sums[m] = _mm512_fmadd_ps(group.bias, _mm512_set1_ps(code_sums[m]), sums[m]);
    }
  }
}

// One panel times M input rows.
template <LinearForm form, int M, bool full>
inline void multiply_panel(const Panel<form>& panel, Lanes<full> lanes, const byte_t* x, __m512 sums[M]) {
  const int record_groups = panel.record_groups();
  const int64_t record_bytes = int64_t{panel.row_bytes()} * lanes.count,
                group_bytes = record_bytes / record_groups;
  const byte_t* ahead = panel.data + kPrefetchBytes;
  __m512 total[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
  RecordHead head;
  const byte_t* record = panel.data;
  const auto step = [&](int j) __attribute__((always_inline)) {
    Group group;
    load_group<form, full>(record, j, panel.scales, head, lanes, group);
    if constexpr (full) prefetch<form>(ahead, group_bytes);
    add_group<form, M>(group, x, total);
    x += kInt8GroupBytes * M;
    ahead += group_bytes;
  };
  for (int64_t g = 0; g < panel.groups; g += record_groups, record += record_bytes) {
    load_head<form, full>(record, panel.scales, lanes, head);
    if constexpr (full && M == 2 && !kIsAffine<form>) {
      // One row, decode's usual step: which bits of a record are whose is known to the compiler.
#pragma GCC unroll 8
      for (int j = 0; j < Codes<form>::kGroups; ++j) step(j);
    } else {
#pragma GCC unroll 1
      for (int j = 0; j < record_groups; ++j) step(j);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sums[m] = total[m];
}

// Adds the bias and stores a row's 16 outputs, or the first few.
inline void store_outputs(__m512 sum, int64_t n, __mmask16 mask, const LinearTarget& target, float* y) {
  if (target.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, target.bias + n));
  if (target.accumulate) {
    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y + n),
                        _mm512_mul_ps(sum, _mm512_set1_ps(target.multiplier)));
  }
  _mm512_mask_storeu_ps(y + n, mask, sum);
}

// M code rows: M / 2 input rows, whose two products are added.
template <LinearForm form, int M>
void panel_block(const Panel<form>& panel, int lanes, const byte_t* x, int64_t n, float* y,
                 const LinearTarget& target) {
  __m512 sums[M];
  if (lanes == 16) {
    multiply_panel<form, M, true>(panel, Lanes<true>(16), x, sums);
  } else {
    multiply_panel<form, M, false>(panel, Lanes<false>(lanes), x, sums);
  }
  const auto mask = static_cast<__mmask16>((1u << lanes) - 1);
  for (int m = 0; m < M; m += 2)
    store_outputs(_mm512_add_ps(sums[m], sums[m + 1]), n, mask, target, y + m / 2 * target.stride);
}

// --- Floats ----------------------------------------------------------------------------------------------

template <LinearForm form>
constexpr int64_t kElementBytes = form == LinearForm::kF32 ? 4 : 2;

template <LinearForm form>
inline __m512 load_floats(const byte_t* at) {
  if constexpr (form == LinearForm::kF32) return _mm512_loadu_ps(at);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if constexpr (form == LinearForm::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <LinearForm form>
inline __m512 load_floats(const byte_t* at, __mmask16 mask) {
  if constexpr (form == LinearForm::kF32) return _mm512_maskz_loadu_ps(mask, at);
  const __m256i halves = _mm256_maskz_loadu_epi16(mask, at);
  if constexpr (form == LinearForm::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// N rows of the weight times M input rows. A result is one chain of FMAs in each of 16 lanes, then their sum
// in a fixed order: N and M do not show in it.
template <LinearForm form, int N, int M>
void float_block(const byte_t* w, int64_t columns, const float* x, int64_t x_stride, int64_t n, float* y,
                 const LinearTarget& target) {
  const int64_t row_bytes = columns * kElementBytes<form>;
  __m512 sums[N][M];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) sums[i][m] = _mm512_setzero_ps();
  }
  int64_t k = 0;
  for (; k + 16 <= columns; k += 16) {
    __m512 from[M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) from[m] = _mm512_loadu_ps(x + m * x_stride + k);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const byte_t* at = w + i * row_bytes + k * kElementBytes<form>;
      _mm_prefetch(reinterpret_cast<const char*>(at + N * row_bytes), _MM_HINT_T0);
      const __m512 values = load_floats<form>(at);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) sums[i][m] = _mm512_fmadd_ps(values, from[m], sums[i][m]);
    }
  }
  if (k < columns) {
    const auto mask = static_cast<__mmask16>((1u << (columns - k)) - 1);
    for (int i = 0; i < N; ++i) {
      const __m512 values = load_floats<form>(w + i * row_bytes + k * kElementBytes<form>, mask);
      for (int m = 0; m < M; ++m)
        sums[i][m] = _mm512_fmadd_ps(values, _mm512_maskz_loadu_ps(mask, x + m * x_stride + k), sums[i][m]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < N; ++i) {
      float sum = _mm512_reduce_add_ps(sums[i][m]);
      if (target.bias != nullptr) sum += target.bias[n + i];
      float& out = y[m * target.stride + n + i];
      out = target.accumulate ? out + target.multiplier * sum : sum;
    }
  }
}

constexpr int kWeightRows = 4;

#include "kernels/cpu/linear_loops_inl.h"

// After the loops, which they call.
#include "kernels/cpu/linear_forms_inl.h"

constexpr LinearKernels kKernels = {floats, codes, nullptr, nullptr};

}  // namespace

const LinearKernels& avx512_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
