// The linear op for many rows on AMX tiles, in bf16 with float32 sums.
//
// A worker takes 32 outputs at a time: it expands their weights into bf16 tiles in its scratch (32 · columns
// values, which stay in L2 for all input rows), then walks the prepared rows 32 at a time. Four tiles of
// results stay in registers over all columns; each step of 32 columns loads two tiles of rows and two of
// weights, 4 KiB, for four products. A tile of weights is [column pair][output] with the pair side by side,
// as vdpbf16ps and tdpbf16ps want it. A result row depends on its own input row alone, in column order.
//
// Stays apart from linear_avx512.cc so that only this file is compiled for AMX.
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/linear_kernels.h"

namespace butter::cpu {
namespace {

#include "kernels/cpu/linear_codes_avx512_inl.h"

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kStep = 32;  // columns of a tile

// --- Input rows ------------------------------------------------------------------------------------------

inline __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

void pack_tile_row(const float* x, int64_t columns, std::byte* out) {
  int64_t k = 0;
  for (; k + kStep <= columns; k += kStep, out += 2 * kTileBytes)
    _mm512_store_si512(out, to_bf16(_mm512_loadu_ps(x + k), _mm512_loadu_ps(x + k + 16)));
  if (k == columns) return;
  const unsigned mask = (1u << (columns - k)) - 1;
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x + k);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + k + 16);
  _mm512_store_si512(out, to_bf16(low, high));
}

// --- Weights to tiles ------------------------------------------------------------------------------------

// Words low[0] high[0] low[1] high[1]...: a tile row from the values of its even and of its odd column.
inline void store_pairs(__m512 even, __m512 odd, byte_t* tile_row) {
  alignas(64) static constexpr unsigned short kInterleave[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                                 21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                                 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kInterleave);
  _mm512_store_si512(tile_row, _mm512_permutexvar_epi16(order, to_bf16(even, odd)));
}

// 4-bit codes of one vector: byte b of lane n holds column 4q + b in its low nibble and 16 + 4q + b in its
// high one. vpermps reads only the low four bits of an index, so it is mask and conversion in one.
inline void expand_nibbles(__m512i packed, __m512 scale, __m512 bias, byte_t* tile, int q) {
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto value = [&](int shift) __attribute__((always_inline)) {
    const __m512i index = _mm512_srli_epi32(packed, static_cast<unsigned>(shift));
    return _mm512_fmadd_ps(_mm512_permutexvar_ps(index, values), scale, bias);
  };
  store_pairs(value(0), value(8), tile + 64 * (2 * q));
  store_pairs(value(16), value(24), tile + 64 * (2 * q + 1));
  store_pairs(value(4), value(12), tile + 64 * (8 + 2 * q));
  store_pairs(value(20), value(28), tile + 64 * (9 + 2 * q));
}

inline void expand_bytes(__m512i codes, __m512 scale, __m512 bias, byte_t* tile, int q) {
  const __m512i low = _mm512_set1_epi32(255);
  const auto value = [&](int shift) __attribute__((always_inline)) {
    const __m512i code = _mm512_and_si512(_mm512_srli_epi32(codes, static_cast<unsigned>(shift)), low);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), scale, bias);
  };
  store_pairs(value(0), value(8), tile + 64 * (2 * q));
  store_pairs(value(16), value(24), tile + 64 * (2 * q + 1));
}

// One group of a panel as a tile. Lanes without a row are zero.
template <LinearForm form, bool full>
inline void expand_group(const byte_t* record, int j, Lanes<full> lanes, byte_t* tile) {
  using Form = Codes<form>;
  if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias) {
    const __m512 scale = lanes.halves(record);
    __m512 bias = _mm512_mul_ps(scale, _mm512_set1_ps(-8.0f));
    if constexpr (Form::kBias) bias = lanes.halves(record + 2 * lanes.count);
    const byte_t* codes = record + (Form::kBias ? 4 : 2) * lanes.count;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q)
      expand_nibbles(lanes.dwords(codes + 4 * q * lanes.count), scale, bias, tile, q);
  } else {
    Group group;
    load_group<form, full>(record, j, lanes, group);
    if constexpr (!Form::kHalves) group.second_scale = group.scale;
    const __m512 zero = _mm512_set1_ps(-static_cast<float>(1 << Form::kZeroShift));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const __m512 scale = q < 4 ? group.scale : group.second_scale;
      __m512 bias;
      if constexpr (Form::kBias) {
        bias = group.bias;
      } else {
        bias = _mm512_mul_ps(scale, zero);
      }
      expand_bytes(group.quads[q], scale, bias, tile, q);
    }
  }
}

template <LinearForm form, bool full>
inline void expand_panel(const byte_t* panel, int64_t groups, Lanes<full> lanes, byte_t* tiles) {
  using Form = Codes<form>;
  for (int64_t g = 0; g < groups; ++g, tiles += kTileBytes) {
    const byte_t* record = panel + g / Form::kGroups * Form::kRowBytes * lanes.count;
    expand_group<form, full>(record, static_cast<int>(g % Form::kGroups), lanes, tiles);
  }
}

// The panel of 16 outputs from row n, as columns / 32 tiles.
template <LinearForm form>
void expand_codes(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  const int64_t groups = weight.columns / kGroup;
  const int64_t row_bytes = groups / Codes<form>::kGroups * Codes<form>::kRowBytes;
  const byte_t* panel = reinterpret_cast<const byte_t*>(weight.data) + n * row_bytes;
  const int64_t lanes = weight.rows - n;
  if (lanes >= kPanelRows) return expand_panel<form, true>(panel, groups, Lanes<true>(16), tiles);
  expand_panel<form, false>(panel, groups, Lanes<false>(static_cast<int>(lanes)), tiles);
}

// Rows of dwords to columns of dwords.
inline void transpose_16x16(__m512i rows[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    half[i] = _mm512_unpacklo_epi64(low01, low23);      // columns 0, 4, 8, 12 of four rows
    half[i + 1] = _mm512_unpackhi_epi64(low01, low23);  // columns 1, 5, 9, 13
    half[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    half[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(half[i], half[i + 4], 0x88);  // blocks 0, 2 of rows 0..3, 4..7
    const __m512i b = _mm512_shuffle_i32x4(half[i], half[i + 4], 0xdd);  // blocks 1, 3
    const __m512i c = _mm512_shuffle_i32x4(half[i + 8], half[i + 12], 0x88);  // the same of rows 8..15
    const __m512i d = _mm512_shuffle_i32x4(half[i + 8], half[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    rows[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

template <LinearForm form>
inline __m512i load_bf16(const byte_t* at, __mmask32 mask) {
  const __m512i words = _mm512_maskz_loadu_epi16(mask, at);
  if constexpr (form == LinearForm::kBF16) return words;
  return to_bf16(_mm512_cvtph_ps(_mm512_castsi512_si256(words)),
                 _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1)));
}

template <LinearForm form>
void expand_floats(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  const int64_t lanes = weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows;
  const auto* data = reinterpret_cast<const byte_t*>(weight.data) + n * weight.columns * 2;
  for (int64_t k = 0; k < weight.columns; k += kStep, tiles += kTileBytes) {
    const int64_t left = weight.columns - k;
    const __mmask32 mask = left >= kStep ? ~0u : (1u << left) - 1;
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      rows[i] =
          i < lanes ? load_bf16<form>(data + (i * weight.columns + k) * 2, mask) : _mm512_setzero_si512();
    transpose_16x16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tiles + 64 * i, rows[i]);
  }
}

void expand(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  switch (weight.form) {
    case LinearForm::kCodes4:
      return expand_codes<LinearForm::kCodes4>(weight, n, tiles);
    case LinearForm::kCodes4Bias:
      return expand_codes<LinearForm::kCodes4Bias>(weight, n, tiles);
    case LinearForm::kCodes8:
      return expand_codes<LinearForm::kCodes8>(weight, n, tiles);
    case LinearForm::kCodes4Super:
      return expand_codes<LinearForm::kCodes4Super>(weight, n, tiles);
    case LinearForm::kCodes6Super:
      return expand_codes<LinearForm::kCodes6Super>(weight, n, tiles);
    case LinearForm::kF16:
      return expand_floats<LinearForm::kF16>(weight, n, tiles);
    case LinearForm::kBF16:
      return expand_floats<LinearForm::kBF16>(weight, n, tiles);
    default:
      return;
  }
}

// --- Tiles -----------------------------------------------------------------------------------------------

// Tiles 0..3 hold results [row tile][panel], 4 and 5 rows, 6 and 7 weights. All are 16 rows of 64 bytes.
void configure_tiles() {
  struct Config {
    unsigned char palette = 1;
    unsigned char start_row = 0;
    unsigned char reserved[14] = {};
    unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  alignas(64) static const Config config;
  // The compiler believes that the instruction reads a word; this makes all of it written by now.
  __asm__ volatile("" ::: "memory");
  _tile_loadconfig(&config);
  __asm__ volatile("" ::: "memory");
}

inline void store_outputs(__m512 sum, int64_t n, __mmask16 mask, const LinearTarget& target, float* y) {
  if (target.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, target.bias + n));
  if (target.accumulate) {
    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y + n),
                        _mm512_mul_ps(sum, _mm512_set1_ps(target.multiplier)));
  }
  _mm512_mask_storeu_ps(y + n, mask, sum);
}

// A block of results, [row tile][panel][16][16], on its way to y, 16 outputs of a row at a time.
class Drain {
 public:
  explicit Drain(const LinearTarget& target) : target_(target) {}

  void start(const float* results, int64_t first_row, int64_t rows, int64_t n, int64_t outputs) {
    results_ = results;
    y_ = target_.y + first_row * target_.stride;
    n_ = n;
    rows_ = rows;
    row_ = 0;
    first_mask_ = mask_of(outputs);
    second_mask_ = mask_of(outputs - kPanelRows);
  }

  inline void store_row() {
    if (row_ == rows_) return;
    const float* from = results_ + row_ / 16 * 512 + row_ % 16 * 16;
    store_outputs(_mm512_load_ps(from), n_, first_mask_, target_, y_);
    if (second_mask_ != 0)
      store_outputs(_mm512_load_ps(from + 256), n_ + kPanelRows, second_mask_, target_, y_);
    y_ += target_.stride;
    ++row_;
  }

  void finish() {
    while (row_ < rows_) store_row();
  }

 private:
  static __mmask16 mask_of(int64_t lanes) {
    return static_cast<__mmask16>(lanes >= kPanelRows ? 0xffffu : lanes > 0 ? (1u << lanes) - 1 : 0u);
  }

  const LinearTarget target_;
  const float* results_ = nullptr;
  float* y_ = nullptr;
  int64_t n_ = 0;
  int64_t rows_ = 0;
  int64_t row_ = 0;
  __mmask16 first_mask_ = 0;
  __mmask16 second_mask_ = 0;
};

// [2][2] tiles of float32 results from `steps` tiles of each operand. Meanwhile the block before goes to y, a
// few rows a step: in one piece behind the products it would fill the reorder buffer, and the tile unit would
// wait.
template <int row_tiles, int panels>
void multiply_tiles(const std::byte* rows, const byte_t* weights, int64_t steps, float* results,
                    Drain& drain) {
  const byte_t* second = weights + steps * kTileBytes;
  const int64_t rows_a_step = (kTileRows + steps - 1) / steps;
  __asm__ volatile("" ::: "memory");  // what the tile loads read is written by now
  _tile_zero(0);
  if constexpr (panels == 2) _tile_zero(1);
  if constexpr (row_tiles == 2) _tile_zero(2);
  if constexpr (row_tiles == 2 && panels == 2) _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (panels == 2) {
      _tile_loadd(7, second, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (row_tiles == 2) {
      _tile_loadd(5, rows + kTileBytes, 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (panels == 2) _tile_dpbf16ps(3, 5, 7);
    }
    for (int64_t i = 0; i < rows_a_step; ++i) drain.store_row();
    rows += 2 * kTileBytes;
    weights += kTileBytes;
    second += kTileBytes;
  }
  _tile_stored(0, results, 64);
  if constexpr (panels == 2) _tile_stored(1, results + 256, 64);
  if constexpr (row_tiles == 2) _tile_stored(2, results + 512, 64);
  if constexpr (row_tiles == 2 && panels == 2) _tile_stored(3, results + 768, 64);
  __asm__ volatile("" ::: "memory");
}

void multiply_block(const std::byte* rows, int64_t row_count, const byte_t* weights, int panels,
                    int64_t steps, float* results, Drain& drain) {
  if (row_count > 16) {
    if (panels == 2) return multiply_tiles<2, 2>(rows, weights, steps, results, drain);
    return multiply_tiles<2, 1>(rows, weights, steps, results, drain);
  }
  if (panels == 2) return multiply_tiles<1, 2>(rows, weights, steps, results, drain);
  return multiply_tiles<1, 1>(rows, weights, steps, results, drain);
}

void tiles(const LinearMatrix& weight, const TileRows& x, int64_t begin, int64_t end,
           const LinearTarget& target, std::byte* scratch) {
  const int64_t steps = (weight.columns + kStep - 1) / kStep;
  auto* weights = reinterpret_cast<byte_t*>(scratch);
  auto* results = reinterpret_cast<float*>(scratch + 2 * steps * kTileBytes);
  auto* other_results = results + 1024;
  Drain drain(target);
  configure_tiles();
  for (int64_t n = begin; n < end; n += 2 * kPanelRows) {
    const int panels = end - n > kPanelRows ? 2 : 1;
    for (int p = 0; p < panels; ++p) expand(weight, n + p * kPanelRows, weights + p * steps * kTileBytes);
    for (int64_t first = 0; first < x.rows; first += kTileRows) {
      const int64_t rows = x.rows - first < kTileRows ? x.rows - first : kTileRows;
      multiply_block(x.data + first * steps * 64, rows, weights, panels, steps, results, drain);
      drain.finish();
      drain.start(results, first, rows, n, end - n);
      float* next = other_results;
      other_results = results;
      results = next;
    }
  }
  drain.finish();
  _tile_release();
}

}  // namespace

const LinearKernels& amx_linear_kernels() {
  static const LinearKernels kernels = {avx512_linear_kernels().floats, avx512_linear_kernels().codes, tiles,
                                        pack_tile_row};
  return kernels;
}

}  // namespace butter::cpu

#endif
