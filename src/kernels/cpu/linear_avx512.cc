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

#include "kernels/cpu/linear_kernels.h"

namespace butter::cpu {
namespace {

using byte_t = unsigned char;

// --- Codes
// ---------------------------------------------------------------------------------------------------

template <LinearForm form>
struct Codes;
template <>
struct Codes<LinearForm::kCodes4> {
  static constexpr int kBits = 4, kZeroShift = 3;  // zero point 8
  static constexpr bool kBias = false;
};
template <>
struct Codes<LinearForm::kCodes4Bias> {
  static constexpr int kBits = 4, kZeroShift = -1;
  static constexpr bool kBias = true;
};
template <>
struct Codes<LinearForm::kCodes8> {
  static constexpr int kBits = 8, kZeroShift = 7;  // zero point 128
  static constexpr bool kBias = false;
};

template <LinearForm form>
constexpr int64_t record_bytes(int64_t lanes) {
  return lanes * (2 + (Codes<form>::kBias ? 2 : 0) + Codes<form>::kBits * 4);
}

// Ahead of the reader by this many bytes: what a thread reads in about the latency of memory.
constexpr int64_t kPrefetchBytes = 4096;

template <int64_t bytes>
inline void prefetch(const byte_t* at) {
  for (int64_t line = 0; line < bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T0);
}

template <bool full>
inline __m512 load_halves(const byte_t* at, int lanes) {
  if constexpr (full) {
    (void)lanes;
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  } else {
    const auto mask = static_cast<__mmask16>((1u << lanes) - 1);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
  }
}

template <bool full>
inline __m512i load_codes(const byte_t* at, int lanes) {
  if constexpr (full) {
    (void)lanes;
    return _mm512_loadu_si512(at);
  } else {
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << lanes) - 1), at);
  }
}

// The 8 quads of a group, as unsigned bytes: lane, column 4·quad + byte.
template <LinearForm form, bool full>
inline void load_quads(const byte_t* codes, int lanes, __m512i quads[8]) {
  const int64_t step = full ? 64 : lanes * 4;
  if constexpr (Codes<form>::kBits == 8) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) quads[q] = load_codes<full>(codes + q * step, lanes);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i packed = load_codes<full>(codes + q * step, lanes);
      quads[q] = _mm512_and_si512(packed, low);
      quads[q + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
  }
}

// One panel times M input rows.
template <LinearForm form, int M, bool full>
inline void multiply_panel(const byte_t* record, int64_t groups, int lanes, const byte_t* x, __m512 sums[M]) {
  constexpr int64_t kRecord = kInt8GroupBytes * M;
  const int64_t weight_step = full ? record_bytes<form>(16) : record_bytes<form>(lanes);
  const int64_t code_offset = (full ? 16 : lanes) * (Codes<form>::kBias ? 4 : 2);
  __m512 total[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    const __m512 scale = load_halves<full>(record, lanes);
    __m512 bias;
    if constexpr (Codes<form>::kBias) bias = load_halves<full>(record + (full ? 32 : lanes * 2), lanes);
    __m512i quads[8];
    load_quads<form, full>(record + code_offset, lanes, quads);
    if constexpr (full) prefetch<record_bytes<form>(16)>(record + kPrefetchBytes);
    const float* scales = reinterpret_cast<const float*>(x + M * kGroup);
    const float* code_sums = scales + M;
    const int* negated = reinterpret_cast<const int*>(code_sums + M);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int* codes = reinterpret_cast<const int*>(x + m * kGroup);
      __m512i even = _mm512_setzero_si512();
      __m512i odd = _mm512_setzero_si512();
      if constexpr (Codes<form>::kZeroShift > 0) {
        even = _mm512_slli_epi32(_mm512_set1_epi32(negated[m]), Codes<form>::kZeroShift);
      }
      if constexpr (M < 4) {  // two chains: the dots of one row are all there is to overlap
#pragma GCC unroll 4
        for (int q = 0; q < 8; q += 2) {
          even = _mm512_dpbusd_epi32(even, quads[q], _mm512_set1_epi32(codes[q]));
          odd = _mm512_dpbusd_epi32(odd, quads[q + 1], _mm512_set1_epi32(codes[q + 1]));
        }
        even = _mm512_add_epi32(even, odd);
      } else {
#pragma GCC unroll 8
        for (int q = 0; q < 8; ++q) even = _mm512_dpbusd_epi32(even, quads[q], _mm512_set1_epi32(codes[q]));
      }
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[m]));
      total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(even), both, total[m]);
      if constexpr (Codes<form>::kBias)
        total[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(code_sums[m]), total[m]);
    }
    record += weight_step;
    x += kRecord;
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

template <LinearForm form, int M>
void panel_block(const byte_t* panel, int64_t groups, int lanes, const byte_t* x, int64_t n, float* y,
                 const LinearTarget& target) {
  __m512 sums[M];
  if (lanes == 16) {
    multiply_panel<form, M, true>(panel, groups, 16, x, sums);
  } else {
    multiply_panel<form, M, false>(panel, groups, lanes, x, sums);
  }
  const auto mask = static_cast<__mmask16>((1u << lanes) - 1);
  for (int m = 0; m < M; ++m) store_outputs(sums[m], n, mask, target, y + m * target.stride);
}

template <LinearForm form>
void multiply_codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
                    const LinearTarget& target) {
  const int64_t groups = weight.columns / kGroup;
  const int64_t row_bytes = groups * kInt8GroupBytes;
  const auto* data = reinterpret_cast<const byte_t*>(weight.data);
  for (int64_t n = begin; n < end; n += kPanelRows) {
    const int lanes = static_cast<int>(weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows);
    const byte_t* panel = data + n * groups * record_bytes<form>(1);
    const auto* x = reinterpret_cast<const byte_t*>(rows.data);
    float* y = target.y;
    int64_t left = rows.rows;
    for (; left >= 8; left -= 8, x += 8 * row_bytes, y += 8 * target.stride)
      panel_block<form, 8>(panel, groups, lanes, x, n, y, target);
    switch (left) {
      case 7:
        panel_block<form, 7>(panel, groups, lanes, x, n, y, target);
        break;
      case 6:
        panel_block<form, 6>(panel, groups, lanes, x, n, y, target);
        break;
      case 5:
        panel_block<form, 5>(panel, groups, lanes, x, n, y, target);
        break;
      case 4:
        panel_block<form, 4>(panel, groups, lanes, x, n, y, target);
        break;
      case 3:
        panel_block<form, 3>(panel, groups, lanes, x, n, y, target);
        break;
      case 2:
        panel_block<form, 2>(panel, groups, lanes, x, n, y, target);
        break;
      case 1:
        panel_block<form, 1>(panel, groups, lanes, x, n, y, target);
        break;
      default:
        break;
    }
  }
}

void codes(const LinearMatrix& weight, const Int8Rows& rows, int64_t begin, int64_t end,
           const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kCodes4:
      return multiply_codes<LinearForm::kCodes4>(weight, rows, begin, end, target);
    case LinearForm::kCodes4Bias:
      return multiply_codes<LinearForm::kCodes4Bias>(weight, rows, begin, end, target);
    case LinearForm::kCodes8:
      return multiply_codes<LinearForm::kCodes8>(weight, rows, begin, end, target);
    default:
      return;
  }
}

// --- Floats
// --------------------------------------------------------------------------------------------------

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

template <LinearForm form, int N>
void float_rows(const LinearMatrix& weight, const FloatRows& rows, int64_t n, const LinearTarget& target) {
  const byte_t* w = reinterpret_cast<const byte_t*>(weight.data) + n * weight.columns * kElementBytes<form>;
  const float* x = rows.x;
  float* y = target.y;
  int64_t left = rows.rows;
  for (; left >= 4; left -= 4, x += 4 * rows.stride, y += 4 * target.stride)
    float_block<form, N, 4>(w, weight.columns, x, rows.stride, n, y, target);
  for (; left > 0; --left, x += rows.stride, y += target.stride)
    float_block<form, N, 1>(w, weight.columns, x, rows.stride, n, y, target);
}

template <LinearForm form>
void multiply_floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
                     const LinearTarget& target) {
  int64_t n = begin;
  for (; n + 4 <= end; n += 4) float_rows<form, 4>(weight, rows, n, target);
  for (; n < end; ++n) float_rows<form, 1>(weight, rows, n, target);
}

void floats(const LinearMatrix& weight, const FloatRows& rows, int64_t begin, int64_t end,
            const LinearTarget& target) {
  switch (weight.form) {
    case LinearForm::kF32:
      return multiply_floats<LinearForm::kF32>(weight, rows, begin, end, target);
    case LinearForm::kF16:
      return multiply_floats<LinearForm::kF16>(weight, rows, begin, end, target);
    case LinearForm::kBF16:
      return multiply_floats<LinearForm::kBF16>(weight, rows, begin, end, target);
    default:
      return;
  }
}

constexpr LinearKernels kKernels = {floats, codes, nullptr, nullptr};

}  // namespace

const LinearKernels& avx512_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
