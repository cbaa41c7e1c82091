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

#include "core/quant_levels.h"
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
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 18;  // groups of 32 and bytes of one row in a record
};
template <>
struct Codes<LinearForm::kCodes4Bias> {
  static constexpr int kBits = 4, kZero = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 20;
};
template <>
struct Codes<LinearForm::kCodes8> {
  static constexpr int kBits = 8, kZero = 0;  // they are made signed when loaded
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 34;
};
template <>
struct Codes<LinearForm::kCodes4Super> {
  static constexpr int kBits = 4, kZero = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 144;
};
template <>
struct Codes<LinearForm::kCodes6Super> {
  static constexpr int kBits = 6, kZero = 32;
  static constexpr bool kBias = false, kHalves = true;  // a scale for each 16 columns
  static constexpr int kGroups = 8, kRowBytes = 210;
};
template <>
struct Codes<LinearForm::kCodes5> {
  static constexpr int kBits = 5, kZero = 16;
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 22;
};
template <>
struct Codes<LinearForm::kCodes5Bias> {
  static constexpr int kBits = 5, kZero = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 24;
};
template <>
struct Codes<LinearForm::kCodes5Super> {
  static constexpr int kBits = 5, kZero = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 176;
};
template <>
struct Codes<LinearForm::kCodes2Super> {
  static constexpr int kBits = 2, kZero = 0;
  static constexpr bool kBias = true, kHalves = true;
  static constexpr int kGroups = 8, kRowBytes = 84;
};
template <>
struct Codes<LinearForm::kCodes3Super> {
  static constexpr int kBits = 3, kZero = 4;
  static constexpr bool kBias = false, kHalves = true;
  static constexpr int kGroups = 8, kRowBytes = 110;
};
template <>
struct Codes<LinearForm::kLevels> {
  static constexpr int kBits = 8, kZero = 0;  // levels are signed
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 18;
};
template <>
struct Codes<LinearForm::kLevelsSuper> {
  static constexpr int kBits = 8, kZero = 0;
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 136;
};
template <>
struct Codes<LinearForm::kLevelsFp4> {
  static constexpr int kBits = 5, kZero = 16;  // levels as level + 16, up to 28
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 17;
};

// Codes of any bits behind scales and biases.
template <int bits>
struct AffineCodes {
  static constexpr int kBits = bits;
  static constexpr int kZero = bits == 8 ? -128 : 0;  // those of 8 bits are made signed when loaded
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 0, kRowBytes = 0;  // the weight's
};
template <>
struct Codes<LinearForm::kAffine2> : AffineCodes<2> {};
template <>
struct Codes<LinearForm::kAffine3> : AffineCodes<3> {};
template <>
struct Codes<LinearForm::kAffine4> : AffineCodes<4> {};
template <>
struct Codes<LinearForm::kAffine5> : AffineCodes<5> {};
template <>
struct Codes<LinearForm::kAffine6> : AffineCodes<6> {};
template <>
struct Codes<LinearForm::kAffine8> : AffineCodes<8> {};

#include "kernels/cpu/linear_panel_inl.h"

// In L2, ahead of the reader by this many bytes (linear_avx512.cc has figures).
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

// Eight lanes of a tail panel: all ones where a row is.
inline __m256i lane_mask(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// What a record says of all its groups.
struct RecordHead {
  __m256 scale;
  __m256 bias;    // where the form has one; what minima are multiplied by in the super forms
  SubScales sub;  // where kPacksScales
};

struct Group {
  __m256 scale;
  __m256 second_scale;  // of columns 16..31, where the form has halves
  __m256 bias;
  __m256 second_bias;
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
      : count(full ? 16 : lanes),
        first(first_row),
        here(lanes - first_row < 8 ? lanes - first_row : 8),
        mask(lane_mask(here)) {}

  inline __m128i words(const byte_t* at) const {
    at += 2 * first;
    if constexpr (full) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    alignas(16) unsigned short padded[8] = {};
    for (int i = 0; i < here; ++i) __builtin_memcpy(&padded[i], at + 2 * i, 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
  }
  inline __m256 halves(const byte_t* at) const { return _mm256_cvtph_ps(words(at)); }
  inline __m256i dwords(const byte_t* at) const {
    at += 4 * first;
    if constexpr (full) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), mask);
  }
  // Of an affine form, from `at` on.
  inline __m256 scales(const byte_t* at, ScaleType type) const {
    if (type == ScaleType::kF16) return halves(at);
    if (type == ScaleType::kF32) return _mm256_castsi256_ps(dwords(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words(at)), 16));
  }
  inline __m128i bytes(const byte_t* at) const {
    at += first;
    if constexpr (full) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    alignas(16) byte_t padded[16] = {};
    for (int i = 0; i < here; ++i) padded[i] = at[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
  }
  inline __m256i unsigned_bytes(const byte_t* at) const { return _mm256_cvtepu8_epi32(bytes(at)); }
  // Sub-scales, as floats.
  inline __m256 signed_bytes(const void* at) const {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(static_cast<const byte_t*>(at))));
  }
};

// The scale of IQ4_XS's group j, less 32: low bits in four planes of bytes, top bits in one of words.
template <bool full>
inline __attribute__((always_inline)) __m256 split_scale(const byte_t* planes, int j,
                                                         const Lanes<full>& lanes) {
  const auto field = [](__m256i dwords, int shift, int mask) __attribute__((always_inline)) {
    const __m256i shifted = _mm256_srlv_epi32(dwords, _mm256_set1_epi32(shift));
    return _mm256_and_si256(shifted, _mm256_set1_epi32(mask));
  };
  const __m256i top = field(_mm256_cvtepu16_epi32(lanes.words(planes)), 2 * j, 3);
  const __m256i bottom = field(lanes.unsigned_bytes(planes + (2 + j / 2) * lanes.count), j % 2 * 4, 15);
  const __m256i scale = _mm256_or_si256(bottom, _mm256_slli_epi32(top, 4));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(scale, _mm256_set1_epi32(32)));
}

// 2^(exponent − 128); the smallest two are subnormal.
template <bool full>
inline __m256 load_exponents(const byte_t* at, const Lanes<full>& lanes) {
  const __m256i exponent = lanes.unsigned_bytes(at);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponent);
  const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponent);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}

template <bool full>
inline __attribute__((always_inline)) void load_nibbles(const byte_t* codes, const Lanes<full>& lanes,
                                                        Group& group) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m256i packed = lanes.dwords(codes + 4 * q * lanes.count);
    group.quads[q] = _mm256_and_si256(packed, low);
    group.quads[q + 4] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
  }
}

// `mask`'s bits from bit `shift` of every byte of a run.
template <bool full>
inline __attribute__((always_inline)) void load_fields(const byte_t* run, int shift, int mask,
                                                       const Lanes<full>& lanes, Group& group) {
  const __m256i field = _mm256_set1_epi8(static_cast<char>(mask));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    group.quads[q] =
        _mm256_and_si256(_mm256_srli_epi16(lanes.dwords(run + 4 * q * lanes.count), shift), field);
  }
}

// Adds `value` to the codes whose byte of `quad` has the bits of `wanted`, one in each byte.
inline __m256i add_where_set(__m256i codes, __m256i quad, __m256i wanted, int value) {
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(quad, wanted), wanted);
  return _mm256_or_si256(codes, _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(value))));
}

// Adds 16 to the codes whose bit is set in their lane's dword: bit k is column k's.
inline __attribute__((always_inline)) void add_fifth_bits(__m256i dwords, Group& group) {
  const __m256i first_bytes =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m256i order = _mm256_add_epi8(first_bytes, _mm256_set1_epi8(static_cast<char>(q / 2)));
    const __m256i bits = _mm256_set1_epi32(q % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    group.quads[q] = add_where_set(group.quads[q], _mm256_shuffle_epi8(dwords, order), bits, 16);
  }
}

// `codes` with the bits that stand at `from` in the bytes of a plane put in at `to`; `mask` is where they go.
template <int from, int to>
inline __m256i put_field(__m256i codes, __m256i plane, int mask) {
  __m256i moved = plane;
  if constexpr (from > to) moved = _mm256_srli_epi16(plane, from - to);
  if constexpr (from < to) moved = _mm256_slli_epi16(plane, to - from);
  return _mm256_or_si256(codes, _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask))));
}

// The bits that stand at `from` in each code's byte of a run, put in at `to`; `mask` is where they go.
template <bool full>
inline __attribute__((always_inline)) void put_run(const byte_t* run, int from, int to, int mask,
                                                   const Lanes<full>& lanes, Group& group) {
  const __m256i field = _mm256_set1_epi8(static_cast<char>(mask));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m256i quad = lanes.dwords(run + 4 * q * lanes.count);
    const __m256i moved = from < to ? _mm256_slli_epi16(quad, to - from) : _mm256_srli_epi16(quad, from - to);
    group.quads[q] = _mm256_or_si256(group.quads[q], _mm256_and_si256(moved, field));
  }
}

// Two bits of each code, from two planes, put in at `to`.
template <int to, bool full>
inline void put_pairs(const byte_t* planes, const Lanes<full>& lanes, Group& group) {
#pragma GCC unroll 2
  for (int p = 0; p < 2; ++p) {
    const __m256i plane = lanes.dwords(planes + 4 * p * lanes.count);
    __m256i* quads = group.quads + 4 * p;
    quads[0] = put_field<0, to>(quads[0], plane, 3 << to);
    quads[1] = put_field<2, to>(quads[1], plane, 3 << to);
    quads[2] = put_field<4, to>(quads[2], plane, 3 << to);
    quads[3] = put_field<6, to>(quads[3], plane, 3 << to);
  }
}

// One bit of each code, from one plane.
template <int to, bool full>
inline void put_ones(const byte_t* plane_at, const Lanes<full>& lanes, Group& group) {
  const __m256i plane = lanes.dwords(plane_at);
  __m256i* quads = group.quads;
  quads[0] = put_field<0, to>(quads[0], plane, 1 << to);
  quads[1] = put_field<1, to>(quads[1], plane, 1 << to);
  quads[2] = put_field<2, to>(quads[2], plane, 1 << to);
  quads[3] = put_field<3, to>(quads[3], plane, 1 << to);
  quads[4] = put_field<4, to>(quads[4], plane, 1 << to);
  quads[5] = put_field<5, to>(quads[5], plane, 1 << to);
  quads[6] = put_field<6, to>(quads[6], plane, 1 << to);
  quads[7] = put_field<7, to>(quads[7], plane, 1 << to);
}

// The codes of 32 columns of an affine form; those of 8 bits are made signed.
template <int bits, bool full>
inline __attribute__((always_inline)) void load_planes(const byte_t* codes, const Lanes<full>& lanes,
                                                       Group& group) {
  const int n = lanes.count;
  if constexpr (bits == 8) {
    const __m256i zero = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = _mm256_xor_si256(lanes.dwords(codes + 4 * q * n), zero);
  } else if constexpr (bits >= 4) {
    load_nibbles(codes, lanes, group);
  } else {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = _mm256_setzero_si256();
    put_pairs<0>(codes, lanes, group);
  }
  if constexpr (bits == 3) put_ones<2>(codes + 8 * n, lanes, group);
  if constexpr (bits == 5) put_ones<4>(codes + 16 * n, lanes, group);
  if constexpr (bits == 6) put_pairs<4>(codes + 16 * n, lanes, group);
}

// Codes become the levels that they stand for, plus `zero`.
inline __attribute__((always_inline)) void look_up(const int8_t (&levels)[16], int zero, Group& group) {
  const __m128i signed_levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_add_epi8(signed_levels, _mm_set1_epi8(static_cast<char>(zero))));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) group.quads[q] = _mm256_shuffle_epi8(table, group.quads[q]);
}

// The scales that all groups of a record share, which are of type `type` in the affine forms.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_head(const byte_t* record, ScaleType type,
                                                     const Lanes<full>& lanes, RecordHead& head) {
  const int n = lanes.count;
  if constexpr (kIsAffine<form>) {
    head.scale = lanes.scales(record, type);
    head.bias = lanes.scales(record + scale_bytes(type) * n, type);
  } else if constexpr (form == LinearForm::kLevelsFp4) {
    head.scale = load_exponents(record, lanes);
  } else {
    head.scale = lanes.halves(record);
    if constexpr (Codes<form>::kBias) head.bias = lanes.halves(record + 2 * n);
    if constexpr (Codes<form>::kBias && Codes<form>::kGroups == 8)
      head.bias = _mm256_xor_ps(head.bias, _mm256_set1_ps(-0.0f));
  }
  if constexpr (kPacksScales<form>) unpack_sub_scales<form>(record, n, head.sub);
}

// The scales of group j.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_scales(const byte_t* record, int j, const RecordHead& head,
                                                       const Lanes<full>& lanes, Group& group) {
  const int n = lanes.count;
  group.scale = head.scale;
  if constexpr (Codes<form>::kBias) group.bias = head.bias;
  if constexpr (Codes<form>::kHalves) {
    const void* scales = kPacksScales<form> ? static_cast<const void*>(head.sub.scale) : record + 2 * n;
    const auto* at = static_cast<const byte_t*>(scales) + 2 * j * n;
    group.scale = _mm256_mul_ps(head.scale, lanes.signed_bytes(at));
    group.second_scale = _mm256_mul_ps(head.scale, lanes.signed_bytes(at + n));
    if constexpr (Codes<form>::kBias) {
      group.bias = _mm256_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + 2 * j * n));
      group.second_bias = _mm256_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + (2 * j + 1) * n));
    }
  } else if constexpr (form == LinearForm::kLevelsSuper) {
    group.scale = _mm256_mul_ps(head.scale, split_scale(record + 2 * n, j, lanes));
  } else if constexpr (kPacksScales<form>) {
    group.scale = _mm256_mul_ps(head.scale, lanes.signed_bytes(head.sub.scale + j * n));
    if constexpr (Codes<form>::kBias)
      group.bias = _mm256_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + j * n));
  }
}

// The codes of group j.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_codes(const byte_t* record, int j, ScaleType type,
                                                      const Lanes<full>& lanes, Group& group) {
  const int n = lanes.count;
  constexpr int kScaleBytes = Codes<form>::kBias ? 4 : 2;  // of fp16
  if constexpr (kIsAffine<form>) {
    load_planes<kAffineBits<form>>(record + (2 * scale_bytes(type) + 4 * kAffineBits<form> * j) * n, lanes,
                                   group);
  } else if constexpr (form == LinearForm::kCodes8) {
    load_planes<8>(record + 2 * n, lanes, group);
  } else if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias) {
    load_nibbles(record + kScaleBytes * n, lanes, group);
  } else if constexpr (form == LinearForm::kCodes5 || form == LinearForm::kCodes5Bias) {
    load_nibbles(record + (kScaleBytes + 4) * n, lanes, group);
    add_fifth_bits(lanes.dwords(record + kScaleBytes * n), group);
  } else if constexpr (form == LinearForm::kCodes4Super) {
    load_fields(record + (16 + j / 2 * 32) * n, j % 2 * 4, 15, lanes, group);
  } else if constexpr (form == LinearForm::kCodes5Super) {
    load_fields(record + (48 + j / 2 * 32) * n, j % 2 * 4, 15, lanes, group);
    put_ones<4>(record + (16 + 4 * j) * n, lanes, group);
  } else if constexpr (form == LinearForm::kCodes2Super) {
    load_fields(record + (20 + j / 4 * 32) * n, j % 4 * 2, 3, lanes, group);
  } else if constexpr (form == LinearForm::kCodes3Super) {
    load_fields(record + (46 + j / 4 * 32) * n, j % 4 * 2, 3, lanes, group);
    put_ones<2>(record + (14 + 4 * j) * n, lanes, group);
  } else if constexpr (form == LinearForm::kCodes6Super) {
    const int half = j / 4, run = j % 4;
    load_fields(record + (18 + (half * 2 + run % 2) * 32) * n, run / 2 * 4, 15, lanes, group);
    put_run(record + (18 + 128 + half * 32) * n, 2 * run, 4, 48, lanes, group);
  } else {
    constexpr bool kFp4 = form == LinearForm::kLevelsFp4, kSuper = form == LinearForm::kLevelsSuper;
    load_nibbles(record + (kFp4 ? 1 : kSuper ? 8 + 16 * j : 2) * n, lanes, group);
    look_up(kFp4 ? kFp4Levels : kIq4Levels, Codes<form>::kZero, group);
  }
}

// The exact sum of code · input code over the quads [first, last), widened as often as int16 needs: 8 quads
// of 4-bit codes, 4 of 5-bit ones (at most 4 · 2 · 31 · 127 = 31,496), 2 of 6-bit ones (2 · 2 · 63 · 127 =
// 32,004), each alone with 8 bits.
template <int bits, int first, int last>
inline __m256i dots(const Group& group, const int* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  constexpr int kMost = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  constexpr int kAtOnce = kMost < last - first ? kMost : last - first;
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

// What a group of 32 columns adds to the sums of M input rows.
template <LinearForm form, int M>
inline __attribute__((always_inline)) void add_group(const Group& group, const byte_t* x, __m256 sums[M]) {
  using Form = Codes<form>;
  const float* scales = reinterpret_cast<const float*>(x + M * kGroup);
  const float* code_sums = scales + M;
  const int* negated = reinterpret_cast<const int*>(code_sums + M);
  const int* negated_first = negated + M;
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const int* codes = reinterpret_cast<const int*>(x + m * kGroup);
    const __m256 input_scale = _mm256_set1_ps(scales[m]);
    if constexpr (Form::kHalves) {
      const __m256i first_sum = _mm256_set1_epi32(negated_first[m]);
      const __m256i second_sum = _mm256_sub_epi32(_mm256_set1_epi32(negated[m]), first_sum);
      __m256i first = dots<Form::kBits, 0, 4>(group, codes), second = dots<Form::kBits, 4, 8>(group, codes);
      if constexpr (Form::kZero != 0) {
        constexpr int kShift = __builtin_ctz(Form::kZero);  // a power of two
        first = _mm256_add_epi32(first, _mm256_slli_epi32(first_sum, kShift));
        second = _mm256_add_epi32(second, _mm256_slli_epi32(second_sum, kShift));
      }
      sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), _mm256_mul_ps(group.scale, input_scale), sums[m]);
      sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), _mm256_mul_ps(group.second_scale, input_scale),
                                sums[m]);
      if constexpr (Form::kBias) {
        // bias · first + second bias · second = (bias − second bias) · first + second bias · both
        const __m256 first_codes = _mm256_mul_ps(input_scale, _mm256_cvtepi32_ps(first_sum));
        sums[m] = _mm256_fnmadd_ps(_mm256_sub_ps(group.bias, group.second_bias), first_codes, sums[m]);
        sums[m] = _mm256_fmadd_ps(group.second_bias, _mm256_set1_ps(code_sums[m]), sums[m]);
      }
    } else {
      __m256i exact = dots<Form::kBits, 0, 8>(group, codes);
      if constexpr (Form::kZero != 0) {
        exact = _mm256_add_epi32(exact, _mm256_set1_epi32(Form::kZero * negated[m]));
      }
      sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), _mm256_mul_ps(group.scale, input_scale), sums[m]);
      if constexpr (Form::kBias) sums[m] = _mm256_fmadd_ps(group.bias, _mm256_set1_ps(code_sums[m]), sums[m]);
    }
  }
}

// Eight rows of a panel times M input rows.
template <LinearForm form, int M, bool full>
inline void multiply_half(const Panel<form>& panel, const Lanes<full>& lanes, const byte_t* x,
                          __m256 sums[M]) {
  const int record_groups = panel.record_groups();
  const int64_t record_bytes = int64_t{panel.row_bytes()} * lanes.count,
                group_bytes = record_bytes / record_groups;
  const byte_t* ahead = panel.data + kPrefetchBytes;
  __m256 total[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) total[m] = _mm256_setzero_ps();
  RecordHead head;
  const byte_t* record = panel.data;
  const auto step = [&](int j) __attribute__((always_inline)) {
    Group group;
    load_scales<form, full>(record, j, head, lanes, group);
    load_codes<form, full>(record, j, panel.scales, lanes, group);
    if (lanes.first == 0) prefetch<form>(ahead, group_bytes);
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
void panel_block(const Panel<form>& panel, int lanes, const byte_t* x, int64_t n, float* y,
                 const LinearTarget& target) {
  for (int first = 0; first < lanes; first += 8) {
    __m256 sums[M];
    if (lanes == 16) {
      multiply_half<form, M, true>(panel, Lanes<true>(16, first), x, sums);
    } else {
      multiply_half<form, M, false>(panel, Lanes<false>(lanes, first), x, sums);
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
