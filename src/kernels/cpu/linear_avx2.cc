// Linear kernels for AVX2.
//
// Codes: a lane is a row of the weight, 8 to a register, so a panel of 16 rows is walked twice. Unsigned
// 4-bit codes times signed input codes go through vpmaddubsw: 8 of them, at most 8 · 2 · 15 · 127 = 30,480,
// add up in int16 before one vpmaddwd widens them. With 8-bit codes that would overflow: the sign of the
// weight moves to the input, one product pair is at most 2 · 128 · 127 = 32,512, and each is widened at once.
//
// Floats: a lane is a column; 2 rows of the weight × up to 4 input rows are in registers.
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

// Eight lanes of a tail panel: all ones where a row is.
inline __m256i lane_mask(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <bool full>
inline __m256 load_halves(const byte_t* at, int lanes) {
  if constexpr (full) {
    (void)lanes;
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  } else {
    alignas(16) unsigned short halves[8] = {};
    for (int i = 0; i < lanes; ++i) __builtin_memcpy(&halves[i], at + 2 * i, 2);
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
  }
}

template <bool full>
inline __m256i load_codes(const byte_t* at, __m256i mask) {
  if constexpr (full) {
    (void)mask;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  } else {
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), mask);
  }
}

// The 8 quads of a group: unsigned codes of 4 bits, signed ones of 8.
template <LinearForm form, bool full>
inline void load_quads(const byte_t* codes, int64_t step, __m256i mask, __m256i quads[8]) {
  if constexpr (Codes<form>::kBits == 8) {
    const __m256i zero = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) quads[q] = _mm256_xor_si256(load_codes<full>(codes + q * step, mask), zero);
  } else {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m256i packed = load_codes<full>(codes + q * step, mask);
      quads[q] = _mm256_and_si256(packed, low);
      quads[q + 4] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
    }
  }
}

// The exact sum of code · input code over a group, less the zero point's part.
template <LinearForm form>
inline __m256i dot(const __m256i quads[8], const int* x, int negated_sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (Codes<form>::kBits == 8) {
    (void)negated_sum;  // the codes are signed already
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const __m256i turned = _mm256_sign_epi8(_mm256_set1_epi32(x[q]), quads[q]);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quads[q]), turned);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  } else {
    __m256i pairs = _mm256_maddubs_epi16(quads[0], _mm256_set1_epi32(x[0]));
#pragma GCC unroll 8
    for (int q = 1; q < 8; ++q)
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(quads[q], _mm256_set1_epi32(x[q])));
    __m256i sum = _mm256_madd_epi16(pairs, ones);
    if constexpr (Codes<form>::kZeroShift > 0) {
      sum = _mm256_add_epi32(sum, _mm256_slli_epi32(_mm256_set1_epi32(negated_sum), Codes<form>::kZeroShift));
    }
    return sum;
  }
}

// Eight rows of a panel (of `lanes` in all, from row `first`) times M input rows.
template <LinearForm form, int M, bool full>
inline void multiply_half(const byte_t* record, int64_t groups, int first, int lanes, const byte_t* x,
                          __m256 sums[M]) {
  constexpr bool kBias = Codes<form>::kBias;
  const int64_t weight_step = record_bytes<form>(lanes);
  const int64_t code_offset = lanes * (kBias ? 4 : 2) + first * 4;
  const int here = full ? 8 : (lanes - first < 8 ? lanes - first : 8);
  const __m256i mask = lane_mask(here);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sums[m] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    const __m256 scale = load_halves<full>(record + first * 2, here);
    __m256 bias = _mm256_setzero_ps();
    if constexpr (kBias) bias = load_halves<full>(record + (lanes + first) * 2, here);
    __m256i quads[8];
    load_quads<form, full>(record + code_offset, lanes * 4, mask, quads);
    if (first == 0) {
      for (int64_t line = 0; line < weight_step; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(record + kPrefetchBytes + line), _MM_HINT_T0);
    }
    const float* scales = reinterpret_cast<const float*>(x + M * kGroup);
    const float* code_sums = scales + M;
    const int* negated = reinterpret_cast<const int*>(code_sums + M);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const __m256i exact = dot<form>(quads, reinterpret_cast<const int*>(x + m * kGroup), negated[m]);
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(scales[m]));
      sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), both, sums[m]);
      if constexpr (kBias) sums[m] = _mm256_fmadd_ps(bias, _mm256_set1_ps(code_sums[m]), sums[m]);
    }
    record += weight_step;
    x += kInt8GroupBytes * M;
  }
}

// Adds the bias and stores a row's 8 outputs, or the first few.
inline void store_outputs(__m256 sum, int64_t n, __m256i mask, const LinearTarget& target, float* y) {
  if (target.bias != nullptr) sum = _mm256_add_ps(sum, _mm256_maskload_ps(target.bias + n, mask));
  if (target.accumulate) {
    sum =
        _mm256_add_ps(_mm256_maskload_ps(y + n, mask), _mm256_mul_ps(sum, _mm256_set1_ps(target.multiplier)));
  }
  _mm256_maskstore_ps(y + n, mask, sum);
}

template <LinearForm form, int M>
void panel_block(const byte_t* panel, int64_t groups, int lanes, const byte_t* x, int64_t n, float* y,
                 const LinearTarget& target) {
  for (int first = 0; first < lanes; first += 8) {
    __m256 sums[M];
    if (lanes == 16) {
      multiply_half<form, M, true>(panel, groups, first, 16, x, sums);
    } else {
      multiply_half<form, M, false>(panel, groups, first, lanes, x, sums);
    }
    const __m256i mask = lane_mask(lanes - first);
    for (int m = 0; m < M; ++m) store_outputs(sums[m], n + first, mask, target, y + m * target.stride);
  }
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
inline __m256 load_floats(const byte_t* at) {
  if constexpr (form == LinearForm::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  if constexpr (form == LinearForm::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// The first `count` values; the rest are zero.
template <LinearForm form>
inline __m256 load_first_floats(const byte_t* at, int64_t count) {
  alignas(32) byte_t padded[32] = {};
  __builtin_memcpy(padded, at, static_cast<unsigned long>(count * kElementBytes<form>));
  return load_floats<form>(padded);
}

inline float sum_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// N rows of the weight times M input rows. A result is one chain of FMAs in each of 8 lanes, then their sum
// in a fixed order: N and M do not show in it.
template <LinearForm form, int N, int M>
void float_block(const byte_t* w, int64_t columns, const float* x, int64_t x_stride, int64_t n, float* y,
                 const LinearTarget& target) {
  const int64_t row_bytes = columns * kElementBytes<form>;
  __m256 sums[N][M];
#pragma GCC unroll 2
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) sums[i][m] = _mm256_setzero_ps();
  }
  int64_t k = 0;
  for (; k + 8 <= columns; k += 8) {
    __m256 from[M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) from[m] = _mm256_loadu_ps(x + m * x_stride + k);
#pragma GCC unroll 2
    for (int i = 0; i < N; ++i) {
      const byte_t* at = w + i * row_bytes + k * kElementBytes<form>;
      _mm_prefetch(reinterpret_cast<const char*>(at + N * row_bytes), _MM_HINT_T0);
      const __m256 values = load_floats<form>(at);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) sums[i][m] = _mm256_fmadd_ps(values, from[m], sums[i][m]);
    }
  }
  if (k < columns) {
    for (int i = 0; i < N; ++i) {
      const __m256 values = load_first_floats<form>(w + i * row_bytes + k * kElementBytes<form>, columns - k);
      for (int m = 0; m < M; ++m) {
        const auto* at = reinterpret_cast<const byte_t*>(x + m * x_stride + k);
        sums[i][m] =
            _mm256_fmadd_ps(values, load_first_floats<LinearForm::kF32>(at, columns - k), sums[i][m]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < N; ++i) {
      float sum = sum_lanes(sums[i][m]);
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
  for (; n + 2 <= end; n += 2) float_rows<form, 2>(weight, rows, n, target);
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

const LinearKernels& avx2_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
