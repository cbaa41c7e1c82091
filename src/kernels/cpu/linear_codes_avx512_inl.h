// How the AVX-512 and AMX kernels read a group of 32 columns of a coded weight. Included once by each, inside
// its own anonymous namespace, after <immintrin.h> and linear_kernels.h.
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

struct Group {
  __m512 scale;
  __m512 second_scale;  // of columns 16..31, where the form has halves
  __m512 bias;          // where it has one
  __m512i quads[8];     // lane, column 4·quad + byte
};

// What is loaded of a panel with `lanes` rows; a full one needs no mask.
template <bool full>
struct Lanes {
  int count;
  __mmask16 mask;

  explicit Lanes(int lanes) : count(full ? 16 : lanes), mask(static_cast<__mmask16>((1u << lanes) - 1)) {}

  inline __m512 halves(const byte_t* at) const {
    if constexpr (full) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
  }
  inline __m512i dwords(const byte_t* at) const {
    if constexpr (full) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi32(mask, at);
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

// Group j of a record.
template <LinearForm form, bool full>
inline void load_group(const byte_t* record, int j, Lanes<full> lanes, Group& group) {
  const int n = lanes.count;
  const __m512i low = _mm512_set1_epi8(15);
  group.scale = lanes.halves(record);
  if constexpr (Codes<form>::kBias) group.bias = lanes.halves(record + 2 * n);
  if constexpr (form == LinearForm::kCodes8) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) group.quads[q] = lanes.dwords(record + (2 + 4 * q) * n);
  } else if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias) {
    const byte_t* codes = record + (Codes<form>::kBias ? 4 : 2) * n;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i packed = lanes.dwords(codes + 4 * q * n);
      group.quads[q] = _mm512_and_si512(packed, low);
      group.quads[q + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
  } else if constexpr (form == LinearForm::kCodes4Super) {
    load_sub_scales(record + 4 * n, j, lanes, group);
    const byte_t* codes = record + (16 + j / 2 * 32) * n;
    const __m512i shift = _mm512_set1_epi16(static_cast<short>(j % 2 * 4));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q)
      group.quads[q] = _mm512_and_si512(_mm512_srlv_epi16(lanes.dwords(codes + 4 * q * n), shift), low);
  } else {
    const byte_t* scales = record + (2 + 2 * j) * n;
    const __m512 unit = group.scale;
    group.scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(lanes.signed_bytes(scales)));
    group.second_scale = _mm512_mul_ps(unit, _mm512_cvtepi32_ps(lanes.signed_bytes(scales + n)));
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
