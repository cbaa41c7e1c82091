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

// --- Codes -----------------------------------------------------------------------------------------------

template <LinearForm form>
struct Codes;
template <>
struct Codes<LinearForm::kCodes4> {
  static constexpr int kBits = 4, kZero = 8;
  static constexpr bool kBias = false;
  static constexpr int kGroups = 1, kRowBytes = 18;  // groups of 32 and bytes of one row in a record
};
template <>
struct Codes<LinearForm::kCodes4Bias> {
  static constexpr int kBits = 4, kZero = 0;
  static constexpr bool kBias = true;
  static constexpr int kGroups = 1, kRowBytes = 20;
};
template <>
struct Codes<LinearForm::kCodes8> {
  static constexpr int kBits = 8, kZero = 0;  // they are made signed when loaded
  static constexpr bool kBias = false;
  static constexpr int kGroups = 1, kRowBytes = 34;
};
template <>
struct Codes<LinearForm::kCodes4Super> {
  static constexpr int kBits = 4, kZero = 0;
  static constexpr bool kBias = true;
  static constexpr int kGroups = 8, kRowBytes = 144;
};
template <>
struct Codes<LinearForm::kCodes6Super> {
  static constexpr int kBits = 6, kZero = 32;
  static constexpr bool kBias = false;
  static constexpr int kGroups = 8, kRowBytes = 210;
};

// In L2, ahead of the reader by this many bytes (linear_avx512.cc has figures).
constexpr int64_t kPrefetchBytes = 12288;

// Eight lanes of a tail panel: all ones where a row is.
inline __m256i lane_mask(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct Group {
  __m256 scale;
  __m256 second_scale;  // of columns 16..31, with 6-bit codes
  __m256 bias;
  __m256i quads[8];  // lane, column 4·quad + byte: unsigned codes, signed ones of 8 bits
};

// Eight rows of a panel, from row `first`: the whole eight, or the first `here` of a tail panel.
template <bool full>
struct Lanes {
  int count;  // of the panel
  int first;
  int here;
  __m256i mask;

  Lanes(int lanes, int first_row)
      : count(lanes),
        first(first_row),
        here(lanes - first_row < 8 ? lanes - first_row : 8),
        mask(lane_mask(here)) {}

  inline __m256 halves(const byte_t* at) const {
    at += 2 * first;
    if constexpr (full) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    alignas(16) unsigned short padded[8] = {};
    for (int i = 0; i < here; ++i) __builtin_memcpy(&padded[i], at + 2 * i, 2);
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(padded)));
  }
  inline __m256i dwords(const byte_t* at) const {
    at += 4 * first;
    if constexpr (full) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), mask);
  }
  inline __m128i bytes(const byte_t* at) const {
    at += first;
    if constexpr (full) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    alignas(16) byte_t padded[16] = {};
    for (int i = 0; i < here; ++i) padded[i] = at[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
  }
  inline __m256i unsigned_bytes(const byte_t* at) const { return _mm256_cvtepu8_epi32(bytes(at)); }
  inline __m256i signed_bytes(const byte_t* at) const { return _mm256_cvtepi8_epi32(bytes(at)); }
};

inline __m256i shift_right(__m256i words, int bits) {
  return _mm256_srl_epi16(words, _mm_cvtsi32_si128(bits));
}

// The 6-bit scale and minimum of sub-block j, out of 12 packed planes (core/dequantise.cc has the bits).
template <bool full>
inline void load_sub_scales(const byte_t* packed, int j, const Lanes<full>& lanes, Group& group) {
  const auto plane = [&](int i) { return lanes.unsigned_bytes(packed + i * lanes.count); };
  __m256i scale, minimum;
  if (j < 4) {
    const __m256i low_six = _mm256_set1_epi32(63);
    scale = _mm256_and_si256(plane(j), low_six);
    minimum = _mm256_and_si256(plane(j + 4), low_six);
  } else {
    const __m256i both = plane(j + 4), low_four = _mm256_set1_epi32(15), top_two = _mm256_set1_epi32(48);
    scale = _mm256_or_si256(_mm256_and_si256(both, low_four),
                            _mm256_and_si256(_mm256_srli_epi32(plane(j - 4), 2), top_two));
    minimum = _mm256_or_si256(_mm256_srli_epi32(both, 4),
                              _mm256_and_si256(_mm256_srli_epi32(plane(j), 2), top_two));
  }
  group.scale = _mm256_mul_ps(group.scale, _mm256_cvtepi32_ps(scale));
  group.bias =
      _mm256_mul_ps(group.bias, _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), minimum)));
}

// Group j of a record.
template <LinearForm form, bool full>
inline void load_group(const byte_t* record, int j, const Lanes<full>& lanes, Group& group) {
  const int n = lanes.count;
  const __m256i low = _mm256_set1_epi8(15);
  group.scale = lanes.halves(record);
  if constexpr (Codes<form>::kBias) group.bias = lanes.halves(record + 2 * n);
  if constexpr (form == LinearForm::kCodes8) {
    const __m256i zero = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q)
      group.quads[q] = _mm256_xor_si256(lanes.dwords(record + (2 + 4 * q) * n), zero);
  } else if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias) {
    const byte_t* codes = record + (Codes<form>::kBias ? 4 : 2) * n;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m256i packed = lanes.dwords(codes + 4 * q * n);
      group.quads[q] = _mm256_and_si256(packed, low);
      group.quads[q + 4] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
    }
  } else if constexpr (form == LinearForm::kCodes4Super) {
    load_sub_scales(record + 4 * n, j, lanes, group);
    const byte_t* codes = record + (16 + j / 2 * 32) * n;
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q)
      group.quads[q] = _mm256_and_si256(shift_right(lanes.dwords(codes + 4 * q * n), j % 2 * 4), low);
  } else {
    const byte_t* scales = record + (2 + 2 * j) * n;
    const __m256 unit = group.scale;
    group.scale = _mm256_mul_ps(unit, _mm256_cvtepi32_ps(lanes.signed_bytes(scales)));
    group.second_scale = _mm256_mul_ps(unit, _mm256_cvtepi32_ps(lanes.signed_bytes(scales + n)));
    const int half = j / 4, run = j % 4;
    const byte_t* bottom = record + (18 + (half * 2 + run % 2) * 32) * n;
    const byte_t* top = record + (18 + 128 + half * 32) * n;
    const __m256i two = _mm256_set1_epi8(3);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const __m256i four_bits =
          _mm256_and_si256(shift_right(lanes.dwords(bottom + 4 * q * n), run / 2 * 4), low);
      const __m256i two_bits = _mm256_and_si256(shift_right(lanes.dwords(top + 4 * q * n), run * 2), two);
      group.quads[q] = _mm256_or_si256(four_bits, _mm256_slli_epi16(two_bits, 4));
    }
  }
}

// The exact sum of code · input code over the quads [first, last), widened as often as int16 needs: 8 quads
// of 4-bit codes, 2 of 6-bit ones (at most 2 · 2 · 63 · 127 = 32,004), each alone with 8 bits.
template <int bits, int first, int last>
inline __m256i dots(const Group& group, const int* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  constexpr int kAtOnce = bits == 4 ? 8 : bits == 6 ? 2 : 1;
  __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int q = first; q < last; ++q) {
    const __m256i input = _mm256_set1_epi32(x[q]);
    const __m256i products = bits == 8 ? _mm256_maddubs_epi16(_mm256_abs_epi8(group.quads[q]),
                                                              _mm256_sign_epi8(input, group.quads[q]))
                                       : _mm256_maddubs_epi16(group.quads[q], input);
    pairs = _mm256_add_epi16(pairs, products);
    if ((q - first + 1) % kAtOnce != 0) continue;
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    pairs = _mm256_setzero_si256();
  }
  return sum;
}

// Eight rows of a panel times M input rows.
template <LinearForm form, int M, bool full>
inline void multiply_half(const byte_t* panel, int64_t groups, const Lanes<full>& lanes, const byte_t* x,
                          __m256 sums[M]) {
  using Form = Codes<form>;
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sums[m] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, x += kInt8GroupBytes * M) {
    Group group;
    load_group<form, full>(panel + g / Form::kGroups * Form::kRowBytes * lanes.count,
                           static_cast<int>(g % Form::kGroups), lanes, group);
    if (lanes.first == 0) {
      const int64_t group_bytes = Form::kRowBytes * lanes.count / Form::kGroups;
      for (int64_t line = 0; line < group_bytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(panel + g * group_bytes + kPrefetchBytes + line),
                     _MM_HINT_T1);
    }
    const float* scales = reinterpret_cast<const float*>(x + M * kGroup);
    const float* code_sums = scales + M;
    const int* negated = reinterpret_cast<const int*>(code_sums + M);
    const int* negated_first = negated + M;
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int* codes = reinterpret_cast<const int*>(x + m * kGroup);
      const __m256 input_scale = _mm256_set1_ps(scales[m]);
      if constexpr (Form::kBits == 6) {
        const __m256i first =
            _mm256_add_epi32(dots<6, 0, 4>(group, codes), _mm256_set1_epi32(Form::kZero * negated_first[m]));
        const __m256i second = _mm256_add_epi32(
            dots<6, 4, 8>(group, codes), _mm256_set1_epi32(Form::kZero * (negated[m] - negated_first[m])));
        sums[m] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), _mm256_mul_ps(group.scale, input_scale), sums[m]);
        sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), _mm256_mul_ps(group.second_scale, input_scale),
                                  sums[m]);
      } else {
        __m256i exact = dots<Form::kBits, 0, 8>(group, codes);
        if constexpr (Form::kZero != 0) {
          exact = _mm256_add_epi32(exact, _mm256_set1_epi32(Form::kZero * negated[m]));
        }
        sums[m] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), _mm256_mul_ps(group.scale, input_scale), sums[m]);
        if constexpr (Form::kBias)
          sums[m] = _mm256_fmadd_ps(group.bias, _mm256_set1_ps(code_sums[m]), sums[m]);
      }
    }
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

// M code rows: M / 2 input rows, whose two products are added.
template <LinearForm form, int M>
void panel_block(const byte_t* panel, int64_t groups, int lanes, const byte_t* x, int64_t n, float* y,
                 const LinearTarget& target) {
  for (int first = 0; first < lanes; first += 8) {
    __m256 sums[M];
    if (lanes == 16) {
      multiply_half<form, M, true>(panel, groups, Lanes<true>(16, first), x, sums);
    } else {
      multiply_half<form, M, false>(panel, groups, Lanes<false>(lanes, first), x, sums);
    }
    const __m256i mask = lane_mask(lanes - first);
    for (int m = 0; m < M; m += 2)
      store_outputs(_mm256_add_ps(sums[m], sums[m + 1]), n + first, mask, target, y + m / 2 * target.stride);
  }
}

// --- Floats ----------------------------------------------------------------------------------------------

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

constexpr int kWeightRows = 2;

#include "kernels/cpu/linear_loops_inl.h"

// After the loops, which they call.
#include "kernels/cpu/linear_forms_inl.h"

constexpr LinearKernels kKernels = {floats, codes, nullptr, nullptr};

}  // namespace

const LinearKernels& avx2_linear_kernels() {
  return kKernels;
}

}  // namespace butter::cpu

#endif
