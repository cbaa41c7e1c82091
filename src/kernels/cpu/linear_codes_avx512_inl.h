// How the AVX-512 and AMX kernels read a group of 32 columns of a coded weight. Included once by each, inside
// its own anonymous namespace, after <immintrin.h>, linear_kernels.h and quant_levels.h.
//
// A lane is a row of the panel. Codes come as 8 quads of unsigned bytes, value = scale · code + bias; the
// form's zero point is the caller's to take off where it multiplies codes, and part of `bias` where
// zero_in_bias.

using byte_t = unsigned char;

template <LinearForm form>
struct Codes;
template <>
struct Codes<LinearForm::kCodes4> {
  static constexpr int kZeroShift = 3;  // zero point 8
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 18;  // groups of 32 and bytes of one row in a record
};
template <>
struct Codes<LinearForm::kCodes4Bias> {
  static constexpr int kZeroShift = 0;  // none
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 20;
};
template <>
struct Codes<LinearForm::kCodes8> {
  static constexpr int kZeroShift = 7;  // zero point 128
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 34;
};
template <>
struct Codes<LinearForm::kCodes4Super> {
  static constexpr int kZeroShift = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 144;
};
template <>
struct Codes<LinearForm::kCodes6Super> {
  static constexpr int kZeroShift = 5;                  // zero point 32
  static constexpr bool kBias = false, kHalves = true;  // a scale for each 16 columns
  static constexpr int kGroups = 8, kRowBytes = 210;
};
template <>
struct Codes<LinearForm::kCodes5> {
  static constexpr int kZeroShift = 4;  // zero point 16
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 22;
};
template <>
struct Codes<LinearForm::kCodes5Bias> {
  static constexpr int kZeroShift = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 24;
};
template <>
struct Codes<LinearForm::kCodes5Super> {
  static constexpr int kZeroShift = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 176;
};
template <>
struct Codes<LinearForm::kCodes2Super> {
  static constexpr int kZeroShift = 0;
  static constexpr bool kBias = true, kHalves = true;
  static constexpr int kGroups = 8, kRowBytes = 84;
};
template <>
struct Codes<LinearForm::kCodes3Super> {
  static constexpr int kZeroShift = 2;  // zero point 4
  static constexpr bool kBias = false, kHalves = true;
  static constexpr int kGroups = 8, kRowBytes = 110;
};
template <>
struct Codes<LinearForm::kLevels> {
  static constexpr int kZeroShift = 7;  // levels as level + 128
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 18;
};
template <>
struct Codes<LinearForm::kLevelsSuper> {
  static constexpr int kZeroShift = 7;
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 8, kRowBytes = 136;
};
template <>
struct Codes<LinearForm::kLevelsFp4> {
  static constexpr int kZeroShift = 4;  // levels as level + 16
  static constexpr bool kBias = false, kHalves = false;
  static constexpr int kGroups = 1, kRowBytes = 17;
};

// Codes of any bits behind scales and biases.
struct AffineCodes {
  static constexpr int kZeroShift = 0;
  static constexpr bool kBias = true, kHalves = false;
  static constexpr int kGroups = 0, kRowBytes = 0;  // the weight's
};
template <>
struct Codes<LinearForm::kAffine2> : AffineCodes {};
template <>
struct Codes<LinearForm::kAffine3> : AffineCodes {};
template <>
struct Codes<LinearForm::kAffine4> : AffineCodes {};
template <>
struct Codes<LinearForm::kAffine5> : AffineCodes {};
template <>
struct Codes<LinearForm::kAffine6> : AffineCodes {};
template <>
struct Codes<LinearForm::kAffine8> : AffineCodes {};

#include "kernels/cpu/linear_panel_inl.h"

struct Group {
  __m512 scale;
  __m512 second_scale;  // of columns 16..31, where the form has halves
  __m512 bias;          // where it has one
  __m512 second_bias;   // of columns 16..31, where it has both
  __m512i quads[8];     // lane, column 4·quad + byte
};

// What is loaded of a panel with `lanes` rows; a full one needs no mask.
template <bool full>
struct Lanes {
  int count;
  __mmask16 mask;

  explicit Lanes(int lanes) : count(full ? 16 : lanes), mask(static_cast<__mmask16>((1u << lanes) - 1)) {}

  inline __m256i words(const byte_t* at) const {
    if constexpr (full) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_maskz_loadu_epi16(mask, at);
  }
  inline __m512 halves(const byte_t* at) const { return _mm512_cvtph_ps(words(at)); }
  inline __m512i dwords(const byte_t* at) const {
    if constexpr (full) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi32(mask, at);
  }
  // Of an affine form, from `at` on.
  inline __m512 scales(const byte_t* at, ScaleType type) const {
    if (type == ScaleType::kF16) return halves(at);
    if (type == ScaleType::kF32) return _mm512_castsi512_ps(dwords(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words(at)), 16));
  }
  inline __m128i bytes(const byte_t* at) const {
    if constexpr (full) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm_maskz_loadu_epi8(mask, at);
  }
  inline __m512i unsigned_bytes(const byte_t* at) const { return _mm512_cvtepu8_epi32(bytes(at)); }
  inline __m512i signed_bytes(const byte_t* at) const { return _mm512_cvtepi8_epi32(bytes(at)); }
};

// The 6-bit scale and minimum of sub-block j, out of 12 packed planes (core/dequantise.cc has the bits).
template <bool full>
inline void load_sub_scales(const byte_t* packed, int j, Lanes<full> lanes, Group& group) {
  const auto plane = [&](int i) { return lanes.unsigned_bytes(packed + i * lanes.count); };
  __m512i scale, minimum;
  if (j < 4) {
    const __m512i low_six = _mm512_set1_epi32(63);
    scale = _mm512_and_si512(plane(j), low_six);
    minimum = _mm512_and_si512(plane(j + 4), low_six);
  } else {
    const __m512i both = plane(j + 4), low_four = _mm512_set1_epi32(15), top_two = _mm512_set1_epi32(48);
    scale = _mm512_or_si512(_mm512_and_si512(both, low_four),
                            _mm512_and_si512(_mm512_srli_epi32(plane(j - 4), 2), top_two));
    minimum = _mm512_or_si512(_mm512_srli_epi32(both, 4),
                              _mm512_and_si512(_mm512_srli_epi32(plane(j), 2), top_two));
  }
  group.scale = _mm512_mul_ps(group.scale, _mm512_cvtepi32_ps(scale));
  group.bias =
      _mm512_mul_ps(group.bias, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), minimum)));
}

// A 4-bit scale (low) and minimum (high) for each half of group j.
template <bool full>
inline void load_half_scales_and_minima(const byte_t* pairs, int j, Lanes<full> lanes, Group& group) {
  const __m512i low = _mm512_set1_epi32(15);
  const __m512i first = lanes.unsigned_bytes(pairs + 2 * j * lanes.count);
  const __m512i second = lanes.unsigned_bytes(pairs + (2 * j + 1) * lanes.count);
  const auto minimum = [](__m512i pair) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_srli_epi32(pair, 4)));
  };
  const __m512 unit = group.scale, minimum_unit = group.bias;
  group.scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(_mm512_and_si512(first, low)));
  group.second_scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(_mm512_and_si512(second, low)));
  group.bias = _mm512_mul_ps(minimum_unit, minimum(first));
  group.second_bias = _mm512_mul_ps(minimum_unit, minimum(second));
}

// `mask`'s bits from bit `shift` of every dword.
inline __m512i dword_field(__m512i dwords, int shift, int mask) {
  return _mm512_and_si512(_mm512_srl_epi32(dwords, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(mask));
}

// unit · (a scale of four low and two high bits, less 32)
inline __m512 six_bit_scale(__m512 unit, __m512i bottom, __m512i top) {
  const __m512i scale = _mm512_or_si512(bottom, _mm512_slli_epi32(top, 4));
  return _mm512_mul_ps(unit, _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32))));
}

// The scale of sub-block s of 16 columns, out of 12 packed planes.
template <bool full>
inline __m512 half_scale(const byte_t* packed, int s, Lanes<full> lanes, __m512 unit) {
  const auto plane = [&](int i) { return lanes.unsigned_bytes(packed + i * lanes.count); };
  return six_bit_scale(unit, dword_field(plane(s % 8), s / 8 * 4, 15),
                       dword_field(plane(8 + s % 4), s / 4 * 2, 3));
}

// The scale of group j: top bits in a plane of words, low bits in four of bytes.
template <bool full>
inline __m512 split_scale(const byte_t* planes, int j, Lanes<full> lanes, __m512 unit) {
  const __m512i top = _mm512_cvtepu16_epi32(lanes.words(planes));
  const __m512i bottom = lanes.unsigned_bytes(planes + (2 + j / 2) * lanes.count);
  return six_bit_scale(unit, dword_field(bottom, j % 2 * 4, 15), dword_field(top, 2 * j, 3));
}

// 2^(exponent − 128); the smallest two are subnormal.
template <bool full>
inline __m512 load_exponents(const byte_t* at, Lanes<full> lanes) {
  const __m512i exponent = lanes.unsigned_bytes(at), one = _mm512_set1_epi32(1);
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, one), 23);
  const __mmask16 small = _mm512_cmple_epu32_mask(exponent, one);
  return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), exponent));
}

template <bool full>
inline void load_nibbles(const byte_t* codes, Lanes<full> lanes, Group& group) {
  const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512i packed = lanes.dwords(codes + 4 * q * lanes.count);
    group.quads[q] = _mm512_and_si512(packed, low);
    group.quads[q + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
  }
}

// `mask`'s bits from bit `shift` of every byte of a run.
template <bool full>
inline void load_fields(const byte_t* run, int shift, int mask, Lanes<full> lanes, Group& group) {
  const __m512i shifts = _mm512_set1_epi16(static_cast<short>(shift));
  const __m512i field = _mm512_set1_epi8(static_cast<char>(mask));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    group.quads[q] =
        _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(run + 4 * q * lanes.count), shifts), field);
  }
}

// Adds `value` to the codes whose bit j in a run is set.
template <bool full>
inline void add_top_bits(const byte_t* run, int j, int value, Lanes<full> lanes, Group& group) {
  const __m512i bit = _mm512_set1_epi8(static_cast<char>(1 << j));
  const __m512i add = _mm512_set1_epi8(static_cast<char>(value));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __mmask64 set = _mm512_test_epi8_mask(lanes.dwords(run + 4 * q * lanes.count), bit);
    group.quads[q] = _mm512_mask_add_epi8(group.quads[q], set, group.quads[q], add);
  }
}

// Adds 16 to the codes whose bit is set in their lane's dword: bit k is column k's.
inline void add_fifth_bits(__m512i dwords, Group& group) {
  const __m512i add = _mm512_set1_epi8(16);
  const __m512i first_bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m512i order = _mm512_add_epi8(first_bytes, _mm512_set1_epi8(static_cast<char>(q / 2)));
    const __m512i bits = _mm512_set1_epi32(q % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(dwords, order), bits);
    group.quads[q] = _mm512_mask_add_epi8(group.quads[q], set, group.quads[q], add);
  }
}

// `codes` with the bits that stand at `from` in the bytes of a plane put in at `to`; `mask` is where they go.
template <int from, int to>
inline __m512i put_field(__m512i codes, __m512i plane, int mask) {
  __m512i moved = plane;
  if constexpr (from > to) moved = _mm512_srli_epi16(plane, from - to);
  if constexpr (from < to) moved = _mm512_slli_epi16(plane, to - from);
  constexpr int kOrAnd = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(codes, moved, _mm512_set1_epi8(static_cast<char>(mask)), kOrAnd);
}

// Two bits of each code, from two planes, put in at `to`.
template <int to, bool full>
inline void put_pairs(const byte_t* planes, Lanes<full> lanes, Group& group) {
#pragma GCC unroll 2
  for (int p = 0; p < 2; ++p) {
    const __m512i plane = lanes.dwords(planes + 4 * p * lanes.count);
    __m512i* quads = group.quads + 4 * p;
    quads[0] = put_field<0, to>(quads[0], plane, 3 << to);
    quads[1] = put_field<2, to>(quads[1], plane, 3 << to);
    quads[2] = put_field<4, to>(quads[2], plane, 3 << to);
    quads[3] = put_field<6, to>(quads[3], plane, 3 << to);
  }
}

// One bit of each code, from one plane.
template <int to, bool full>
inline void put_ones(const byte_t* plane_at, Lanes<full> lanes, Group& group) {
  const __m512i plane = lanes.dwords(plane_at);
  __m512i* quads = group.quads;
  quads[0] = put_field<0, to>(quads[0], plane, 1 << to);
  quads[1] = put_field<1, to>(quads[1], plane, 1 << to);
  quads[2] = put_field<2, to>(quads[2], plane, 1 << to);
  quads[3] = put_field<3, to>(quads[3], plane, 1 << to);
  quads[4] = put_field<4, to>(quads[4], plane, 1 << to);
  quads[5] = put_field<5, to>(quads[5], plane, 1 << to);
  quads[6] = put_field<6, to>(quads[6], plane, 1 << to);
  quads[7] = put_field<7, to>(quads[7], plane, 1 << to);
}

// Group j of a record of an affine form.
template <LinearForm form, bool full>
inline void load_affine(const byte_t* record, int j, ScaleType scales, Lanes<full> lanes, Group& group) {
  constexpr int kBits = kAffineBits<form>;
  const int n = lanes.count, scale_row = scale_bytes(scales) * n;
  group.scale = lanes.scales(record, scales);
  group.bias = lanes.scales(record + scale_row, scales);
  const byte_t* codes = record + 2 * scale_row + j * 4 * kBits * n;
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = lanes.dwords(codes + 4 * q * n);
  } else if constexpr (kBits >= 4) {
    load_nibbles(codes, lanes, group);
  } else {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = _mm512_setzero_si512();
    put_pairs<0>(codes, lanes, group);
  }
  if constexpr (kBits == 3) put_ones<2>(codes + 8 * n, lanes, group);
  if constexpr (kBits == 5) put_ones<4>(codes + 16 * n, lanes, group);
  if constexpr (kBits == 6) put_pairs<4>(codes + 16 * n, lanes, group);
}

// Codes become the levels that they stand for, plus `zero`.
inline void look_up(const int8_t (&levels)[16], int zero, Group& group) {
  const __m128i signed_levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_add_epi8(signed_levels, _mm_set1_epi8(static_cast<char>(zero))));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) group.quads[q] = _mm512_shuffle_epi8(table, group.quads[q]);
}

// Group j of a record in the forms whose codes are not whole nibbles or bytes: scales first.
template <LinearForm form, bool full>
inline void load_odd_codes(const byte_t* record, int j, Lanes<full> lanes, Group& group) {
  const int n = lanes.count;
  if constexpr (form == LinearForm::kCodes5 || form == LinearForm::kCodes5Bias) {
    const byte_t* fifth = record + (Codes<form>::kBias ? 4 : 2) * n;
    load_nibbles(fifth + 4 * n, lanes, group);
    add_fifth_bits(lanes.dwords(fifth), group);
  } else if constexpr (form == LinearForm::kCodes5Super) {
    load_sub_scales(record + 4 * n, j, lanes, group);
    load_fields(record + (48 + j / 2 * 32) * n, j % 2 * 4, 15, lanes, group);
    add_top_bits(record + 16 * n, j, 16, lanes, group);
  } else if constexpr (form == LinearForm::kCodes2Super) {
    load_half_scales_and_minima(record + 4 * n, j, lanes, group);
    load_fields(record + (20 + j / 4 * 32) * n, j % 4 * 2, 3, lanes, group);
  } else {
    const __m512 unit = group.scale;
    group.scale = half_scale(record + 2 * n, 2 * j, lanes, unit);
    group.second_scale = half_scale(record + 2 * n, 2 * j + 1, lanes, unit);
    load_fields(record + (46 + j / 4 * 32) * n, j % 4 * 2, 3, lanes, group);
    add_top_bits(record + 14 * n, j, 4, lanes, group);
  }
}

// Group j of a record in the forms with a table of levels.
template <LinearForm form, bool full>
inline void load_levels(const byte_t* record, int j, Lanes<full> lanes, Group& group) {
  const int n = lanes.count;
  if constexpr (form == LinearForm::kLevelsFp4) {
    group.scale = load_exponents(record, lanes);
    load_nibbles(record + n, lanes, group);
    look_up(kFp4Levels, 1 << Codes<form>::kZeroShift, group);
  } else {
    group.scale = lanes.halves(record);
    constexpr bool kSuper = form == LinearForm::kLevelsSuper;
    if constexpr (kSuper) group.scale = split_scale(record + 2 * n, j, lanes, group.scale);
    load_nibbles(record + (kSuper ? 8 + 16 * j : 2) * n, lanes, group);
    look_up(kIq4Levels, 1 << Codes<form>::kZeroShift, group);
  }
}

template <LinearForm form>
constexpr bool kHasLevels =
    form == LinearForm::kLevels || form == LinearForm::kLevelsSuper || form == LinearForm::kLevelsFp4;

// Group j of a record, whose scales are `scales` in the affine forms.
template <LinearForm form, bool full>
inline void load_group(const byte_t* record, int j, ScaleType scales, Lanes<full> lanes, Group& group) {
  if constexpr (kHasLevels<form>) return load_levels<form>(record, j, lanes, group);
  if constexpr (kAffineBits < form >> 0) return load_affine<form>(record, j, scales, lanes, group);
  const int n = lanes.count;
  const __m512i low = _mm512_set1_epi8(15);
  group.scale = lanes.halves(record);
  if constexpr (Codes<form>::kBias) group.bias = lanes.halves(record + 2 * n);
  if constexpr (form == LinearForm::kCodes8) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = lanes.dwords(record + (2 + 4 * q) * n);
  } else if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias) {
    load_nibbles(record + (Codes<form>::kBias ? 4 : 2) * n, lanes, group);
  } else if constexpr (form == LinearForm::kCodes4Super) {
    load_sub_scales(record + 4 * n, j, lanes, group);
    load_fields(record + (16 + j / 2 * 32) * n, j % 2 * 4, 15, lanes, group);
  } else if constexpr (form != LinearForm::kCodes6Super) {
    load_odd_codes<form>(record, j, lanes, group);
  } else {
    const byte_t* sub_scales = record + (2 + 2 * j) * n;
    const __m512 unit = group.scale;
    group.scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(lanes.signed_bytes(sub_scales)));
    group.second_scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(lanes.signed_bytes(sub_scales + n)));
    const int half = j / 4, run = j % 4;
    const byte_t* bottom = record + (18 + (half * 2 + run % 2) * 32) * n;
    const byte_t* top = record + (18 + 128 + half * 32) * n;
    const __m512i bottom_shift = _mm512_set1_epi16(static_cast<short>(run / 2 * 4));
    const __m512i top_shift = _mm512_set1_epi16(static_cast<short>(run * 2));
    const __m512i two = _mm512_set1_epi8(3);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const __m512i four_bits =
          _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(bottom + 4 * q * n), bottom_shift), low);
      const __m512i two_bits =
          _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(top + 4 * q * n), top_shift), two);
      group.quads[q] = _mm512_or_si512(four_bits, _mm512_slli_epi16(two_bits, 4));
    }
  }
}
