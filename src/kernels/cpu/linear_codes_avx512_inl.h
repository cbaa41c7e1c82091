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

// What a record says of all its groups.
struct RecordHead {
  __m512 scale;
  __m512 bias;    // where the form has one; what minima are multiplied by in the super forms
  SubScales sub;  // where kPacksScales
};

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
  // Sub-scales, as floats.
  inline __m512 signed_bytes(const void* at) const {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(static_cast<const byte_t*>(at))));
  }
};

// The scale of IQ4_XS's group j, less 32: low bits in four planes of bytes, top bits in one of words.
template <bool full>
inline __attribute__((always_inline)) __m512 split_scale(const byte_t* planes, int j, Lanes<full> lanes) {
  const auto field = [](__m512i dwords, int shift, int mask) __attribute__((always_inline)) {
    const __m512i shifted = _mm512_srlv_epi32(dwords, _mm512_set1_epi32(shift));
    return _mm512_and_si512(shifted, _mm512_set1_epi32(mask));
  };
  const __m512i top = field(_mm512_cvtepu16_epi32(lanes.words(planes)), 2 * j, 3);
  const __m512i bottom = field(lanes.unsigned_bytes(planes + (2 + j / 2) * lanes.count), j % 2 * 4, 15);
  const __m512i scale = _mm512_or_si512(bottom, _mm512_slli_epi32(top, 4));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
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
inline __attribute__((always_inline)) void load_nibbles(const byte_t* codes, Lanes<full> lanes,
                                                        Group& group) {
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
inline __attribute__((always_inline)) void load_fields(const byte_t* run, int shift, int mask,
                                                       Lanes<full> lanes, Group& group) {
  const __m512i shifts = _mm512_set1_epi16(static_cast<short>(shift));
  const __m512i field = _mm512_set1_epi8(static_cast<char>(mask));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    group.quads[q] =
        _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(run + 4 * q * lanes.count), shifts), field);
  }
}

// Adds 16 to the codes whose bit is set in their lane's dword: bit k is column k's.
inline __attribute__((always_inline)) void add_fifth_bits(__m512i dwords, Group& group) {
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
inline __attribute__((always_inline)) void put_pairs(const byte_t* planes, Lanes<full> lanes, Group& group) {
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
inline __attribute__((always_inline)) void put_ones(const byte_t* plane_at, Lanes<full> lanes, Group& group) {
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

// The codes of 32 columns of an affine form.
template <int bits, bool full>
inline __attribute__((always_inline)) void load_planes(const byte_t* codes, Lanes<full> lanes, Group& group) {
  const int n = lanes.count;
  if constexpr (bits == 8) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = lanes.dwords(codes + 4 * q * n);
  } else if constexpr (bits >= 4) {
    load_nibbles(codes, lanes, group);
  } else {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = _mm512_setzero_si512();
    put_pairs<0>(codes, lanes, group);
  }
  if constexpr (bits == 3) put_ones<2>(codes + 8 * n, lanes, group);
  if constexpr (bits == 5) put_ones<4>(codes + 16 * n, lanes, group);
  if constexpr (bits == 6) put_pairs<4>(codes + 16 * n, lanes, group);
}

// Codes become the levels that they stand for, plus `zero`.
inline __attribute__((always_inline)) void look_up(const int8_t (&levels)[16], int zero, Group& group) {
  const __m128i signed_levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_add_epi8(signed_levels, _mm_set1_epi8(static_cast<char>(zero))));
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) group.quads[q] = _mm512_shuffle_epi8(table, group.quads[q]);
}

// The codes of Q6_K's group j: low four bits, then top two.
template <bool full>
inline __attribute__((always_inline)) void load_six_bits(const byte_t* record, int j, Lanes<full> lanes,
                                                         Group& group) {
  const int n = lanes.count, half = j / 4, run = j % 4;
  const byte_t* top = record + (18 + 128 + half * 32) * n;
  load_fields(record + (18 + (half * 2 + run % 2) * 32) * n, run / 2 * 4, 15, lanes, group);
  const __m512i shifts = _mm512_set1_epi16(static_cast<short>(run * 2)), two = _mm512_set1_epi8(3);
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m512i bits = _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(top + 4 * q * n), shifts), two);
    group.quads[q] = _mm512_or_si512(group.quads[q], _mm512_slli_epi16(bits, 4));
  }
}

// The scales that all groups of a record share, which are of type `type` in the affine forms.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_head(const byte_t* record, ScaleType type, Lanes<full> lanes,
                                                     RecordHead& head) {
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
      head.bias = _mm512_xor_ps(head.bias, _mm512_set1_ps(-0.0f));
  }
  if constexpr (kPacksScales<form>) unpack_sub_scales<form>(record, n, head.sub);
}

// The scales of group j.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_scales(const byte_t* record, int j, const RecordHead& head,
                                                       Lanes<full> lanes, Group& group) {
  const int n = lanes.count;
  group.scale = head.scale;
  if constexpr (Codes<form>::kBias) group.bias = head.bias;
  if constexpr (Codes<form>::kHalves) {
    const void* scales = kPacksScales<form> ? static_cast<const void*>(head.sub.scale) : record + 2 * n;
    const auto* at = static_cast<const byte_t*>(scales) + 2 * j * n;
    group.scale = _mm512_mul_ps(head.scale, lanes.signed_bytes(at));
    group.second_scale = _mm512_mul_ps(head.scale, lanes.signed_bytes(at + n));
    if constexpr (Codes<form>::kBias) {
      group.bias = _mm512_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + 2 * j * n));
      group.second_bias = _mm512_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + (2 * j + 1) * n));
    }
  } else if constexpr (form == LinearForm::kLevelsSuper) {
    group.scale = _mm512_mul_ps(head.scale, split_scale(record + 2 * n, j, lanes));
  } else if constexpr (kPacksScales<form>) {
    group.scale = _mm512_mul_ps(head.scale, lanes.signed_bytes(head.sub.scale + j * n));
    if constexpr (Codes<form>::kBias)
      group.bias = _mm512_mul_ps(head.bias, lanes.signed_bytes(head.sub.minimum + j * n));
  }
}

// The codes of group j.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_codes(const byte_t* record, int j, ScaleType type,
                                                      Lanes<full> lanes, Group& group) {
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
    load_six_bits(record, j, lanes, group);
  } else {
    constexpr bool kFp4 = form == LinearForm::kLevelsFp4, kSuper = form == LinearForm::kLevelsSuper;
    load_nibbles(record + (kFp4 ? 1 : kSuper ? 8 + 16 * j : 2) * n, lanes, group);
    look_up(kFp4 ? kFp4Levels : kIq4Levels, 1 << Codes<form>::kZeroShift, group);
  }
}

// Group j of a record.
template <LinearForm form, bool full>
inline __attribute__((always_inline)) void load_group(const byte_t* record, int j, ScaleType type,
                                                      const RecordHead& head, Lanes<full> lanes,
                                                      Group& group) {
  load_scales<form, full>(record, j, head, lanes, group);
  load_codes<form, full>(record, j, type, lanes, group);
}
