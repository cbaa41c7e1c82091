// The linear op for many rows on AMX tiles, in bf16 with float32 sums.
//
// A worker takes 32 outputs at a time: it expands their weights into bf16 tiles in its scratch (32 · columns
// values, which stay in L2 for all input rows), then walks the prepared rows 32 at a time. Four tiles of
// results stay in registers over all columns; each step of 32 columns loads two tiles of rows and two of
// weights, 4 KiB, for four products. A tile of weights is [column pair][output] with the pair side by side,
// as vdpbf16ps and tdpbf16ps want it. A result row depends on its own input row alone, in column order.
//
// Weights that hold more than a bf16, and the rows that meet them, stand in two parts, one after the other;
// so do rows of which more than a bf16 is wanted.
//
// Stays apart from linear_avx512.cc so that only this file is compiled for AMX.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/quant_levels.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/tiles_amx_inl.h"

namespace butter::cpu {
namespace {

#include "kernels/cpu/linear_codes_avx512_inl.h"

constexpr int64_t kStep = 32;  // columns of a tile

// --- Input rows ------------------------------------------------------------------------------------------

template <int part>
void pack_part(const float* x, int64_t columns, std::byte* out) {
  for (int64_t k = 0; k < columns; k += kStep, out += 2 * kTileBytes)
    _mm512_store_si512(out, load_tile_row<part>(x + k, columns - k));
}

void pack_tile_row(const float* x, int64_t columns, int parts, std::byte* out) {
  pack_part<0>(x, columns, out);
  if (parts == 2) pack_part<1>(x, columns, out + (columns + kStep - 1) / kStep * 2 * kTileBytes);
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
// high one. vpermps reads only the low four bits of an index, so it is mask and conversion in one. (Inlined
// always, and the next one too: they take vectors.)
inline __attribute__((always_inline)) void expand_nibbles(__m512i packed, __m512 scale, __m512 bias,
                                                          byte_t* tile, int q) {
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

inline __attribute__((always_inline)) void expand_bytes(__m512i codes, __m512 scale, __m512 bias,
                                                        byte_t* tile, int q) {
  const __m512i low = _mm512_set1_epi32(255);
  const auto value = [&](int shift) __attribute__((always_inline)) {
    const __m512i code = _mm512_and_si512(_mm512_srli_epi32(codes, static_cast<unsigned>(shift)), low);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), scale, bias);
  };
  store_pairs(value(0), value(8), tile + 64 * (2 * q));
  store_pairs(value(16), value(24), tile + 64 * (2 * q + 1));
}

// One group of a record as a tile. Lanes without a row are zero.
template <LinearForm form, bool full>
inline void expand_group(const byte_t* record, int j, ScaleType type, const RecordHead& head,
                         Lanes<full> lanes, byte_t* tile) {
  using Form = Codes<form>;
  if constexpr (form == LinearForm::kCodes4 || form == LinearForm::kCodes4Bias ||
                form == LinearForm::kAffine4) {
    const __m512 bias = Form::kBias ? head.bias : _mm512_mul_ps(head.scale, _mm512_set1_ps(-8.0f));
    const int first = kIsAffine<form> ? 2 * scale_bytes(type) + 16 * j : Form::kBias ? 4 : 2;
    const byte_t* codes = record + first * lanes.count;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q)
      expand_nibbles(lanes.dwords(codes + 4 * q * lanes.count), head.scale, bias, tile, q);
  } else {
    Group group;
    load_group<form, full>(record, j, type, head, lanes, group);
    if constexpr (!Form::kHalves) {
      group.second_scale = group.scale;
      if constexpr (Form::kBias) group.second_bias = group.bias;
    }
    const __m512 zero = _mm512_set1_ps(-static_cast<float>(1 << Form::kZeroShift));
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      const __m512 scale = q < 4 ? group.scale : group.second_scale;
      __m512 bias;
      if constexpr (Form::kBias) {
        bias = q < 4 ? group.bias : group.second_bias;
      } else {
        bias = _mm512_mul_ps(scale, zero);
      }
      expand_bytes(group.quads[q], scale, bias, tile, q);
    }
  }
}

template <LinearForm form, bool full>
inline void expand_panel(const Panel<form>& panel, Lanes<full> lanes, byte_t* tiles) {
  const int record_groups = panel.record_groups();
  const byte_t* record = panel.data;
  RecordHead head;
  for (int64_t g = 0; g < panel.groups; g += record_groups, record += panel.row_bytes() * lanes.count) {
    load_head<form, full>(record, panel.scales, lanes, head);
    for (int j = 0; j < record_groups; ++j, tiles += kTileBytes)
      expand_group<form, full>(record, j, panel.scales, head, lanes, tiles);
  }
}

// The panel of 16 outputs from row n, as columns / 32 tiles.
template <LinearForm form>
void expand_codes(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  const Panel<form> panel(weight, n);
  const int64_t lanes = weight.rows - n;
  if (lanes >= kPanelRows) return expand_panel<form, true>(panel, Lanes<true>(16), tiles);
  expand_panel<form, false>(panel, Lanes<false>(static_cast<int>(lanes)), tiles);
}

// 32 columns of a row, those of the mask, as one part of bf16 values.
template <LinearForm form, int part>
inline __m512i load_columns(const byte_t* row, int64_t k, int64_t count) {
  if constexpr (form == LinearForm::kF32) {
    return load_tile_row<part>(reinterpret_cast<const float*>(row) + k, count);
  } else {
    const __mmask32 mask = count >= kStep ? ~0u : (1u << count) - 1;
    const __m512i words = _mm512_maskz_loadu_epi16(mask, row + 2 * k);
    if constexpr (form == LinearForm::kBF16) return words;
    return to_bf16(part_of<part>(_mm512_cvtph_ps(_mm512_castsi512_si256(words))),
                   part_of<part>(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1))));
  }
}

template <LinearForm form, int part = 0>
void expand_floats(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  const int64_t lanes = weight.rows - n < kPanelRows ? weight.rows - n : kPanelRows;
  const int64_t row_bytes = weight.columns * (form == LinearForm::kF32 ? 4 : 2);
  const auto* data = reinterpret_cast<const byte_t*>(weight.data) + n * row_bytes;
  for (int64_t k = 0; k < weight.columns; k += kStep, tiles += kTileBytes) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      rows[i] = i < lanes ? load_columns<form, part>(data + i * row_bytes, k, weight.columns - k)
                          : _mm512_setzero_si512();
    }
    transpose_16x16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tiles + 64 * i, rows[i]);
  }
}

template <LinearForm form>
void expand_two_parts(const LinearMatrix& weight, int64_t n, byte_t* tiles) {
  expand_floats<form, 0>(weight, n, tiles);
  expand_floats<form, 1>(weight, n, tiles + (weight.columns + kStep - 1) / kStep * kTileBytes);
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
    case LinearForm::kCodes5:
      return expand_codes<LinearForm::kCodes5>(weight, n, tiles);
    case LinearForm::kCodes5Bias:
      return expand_codes<LinearForm::kCodes5Bias>(weight, n, tiles);
    case LinearForm::kCodes5Super:
      return expand_codes<LinearForm::kCodes5Super>(weight, n, tiles);
    case LinearForm::kCodes2Super:
      return expand_codes<LinearForm::kCodes2Super>(weight, n, tiles);
    case LinearForm::kCodes3Super:
      return expand_codes<LinearForm::kCodes3Super>(weight, n, tiles);
    case LinearForm::kLevels:
      return expand_codes<LinearForm::kLevels>(weight, n, tiles);
    case LinearForm::kLevelsSuper:
      return expand_codes<LinearForm::kLevelsSuper>(weight, n, tiles);
    case LinearForm::kLevelsFp4:
      return expand_codes<LinearForm::kLevelsFp4>(weight, n, tiles);
    case LinearForm::kAffine2:
      return expand_codes<LinearForm::kAffine2>(weight, n, tiles);
    case LinearForm::kAffine3:
      return expand_codes<LinearForm::kAffine3>(weight, n, tiles);
    case LinearForm::kAffine4:
      return expand_codes<LinearForm::kAffine4>(weight, n, tiles);
    case LinearForm::kAffine5:
      return expand_codes<LinearForm::kAffine5>(weight, n, tiles);
    case LinearForm::kAffine6:
      return expand_codes<LinearForm::kAffine6>(weight, n, tiles);
    case LinearForm::kAffine8:
      return expand_codes<LinearForm::kAffine8>(weight, n, tiles);
    case LinearForm::kF32:
      return expand_two_parts<LinearForm::kF32>(weight, n, tiles);
    case LinearForm::kF16:
      return expand_two_parts<LinearForm::kF16>(weight, n, tiles);
    case LinearForm::kBF16:
      return expand_floats<LinearForm::kBF16>(weight, n, tiles);
  }
}

// --- Results ---------------------------------------------------------------------------------------------

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
    first_mask_ = first_lanes(outputs);
    second_mask_ = first_lanes(outputs - kPanelRows);
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
  const LinearTarget target_;
  const float* results_ = nullptr;
  float* y_ = nullptr;
  int64_t n_ = 0;
  int64_t rows_ = 0;
  int64_t row_ = 0;
  __mmask16 first_mask_ = 0;
  __mmask16 second_mask_ = 0;
};

// A block of rows [part][column/32][2 tiles] and one or two panels of weights [panel][part][column/32].
struct Operands {
  const std::byte* rows;
  const byte_t* weights;
  int64_t steps;  // tiles over the columns
  int weight_parts;
  int products;  // of parts (kPartPairs)
};

bool in_two_parts(LinearForm form) {
  return form == LinearForm::kF32 || form == LinearForm::kF16;
}

// [2][2] tiles of float32 results. Meanwhile the block before goes to y, a few rows a step: in one piece
// behind the products it would fill the reorder buffer, and the tile unit would wait.
template <int row_tiles, int panels>
void multiply_tiles(const Operands& operands, float* results, Drain& drain) {
  const int64_t steps = operands.steps, panel_bytes = operands.weight_parts * steps * kTileBytes;
  const int64_t rows_a_step = (kTileRows + steps - 1) / steps;
  __asm__ volatile("" ::: "memory");  // what the tile loads read is written by now
  _tile_zero(0);
  if constexpr (panels == 2) _tile_zero(1);
  if constexpr (row_tiles == 2) _tile_zero(2);
  if constexpr (row_tiles == 2 && panels == 2) _tile_zero(3);
  for (int pair = 0; pair < operands.products; ++pair) {
    const std::byte* rows = operands.rows + kPartPairs[pair].a * steps * 2 * kTileBytes;
    const byte_t* weights = operands.weights + kPartPairs[pair].b * steps * kTileBytes;
    for (int64_t step = 0; step < steps; ++step, rows += 2 * kTileBytes, weights += kTileBytes) {
      _tile_loadd(4, rows, 64);
      _tile_loadd(6, weights, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (panels == 2) {
        _tile_loadd(7, weights + panel_bytes, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (row_tiles == 2) {
        _tile_loadd(5, rows + kTileBytes, 64);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (panels == 2) _tile_dpbf16ps(3, 5, 7);
      }
      for (int64_t i = 0; i < rows_a_step; ++i) drain.store_row();
    }
  }
  _tile_stored(0, results, 64);
  if constexpr (panels == 2) _tile_stored(1, results + 256, 64);
  if constexpr (row_tiles == 2) _tile_stored(2, results + 512, 64);
  if constexpr (row_tiles == 2 && panels == 2) _tile_stored(3, results + 768, 64);
  __asm__ volatile("" ::: "memory");
}

void multiply_block(const Operands& operands, int64_t row_count, int panels, float* results, Drain& drain) {
  if (row_count > 16) {
    if (panels == 2) return multiply_tiles<2, 2>(operands, results, drain);
    return multiply_tiles<2, 1>(operands, results, drain);
  }
  if (panels == 2) return multiply_tiles<1, 2>(operands, results, drain);
  return multiply_tiles<1, 1>(operands, results, drain);
}

void tiles(const LinearMatrix& weight, const TileRows& x, int64_t begin, int64_t end,
           const LinearTarget& target, std::byte* scratch) {
  const int64_t steps = (weight.columns + kStep - 1) / kStep;
  const int weight_parts = in_two_parts(weight.form) ? 2 : 1;
  const int products = part_pairs(x.parts, weight_parts);
  const int64_t panel_bytes = weight_parts * steps * kTileBytes;
  auto* weights = reinterpret_cast<byte_t*>(scratch);
  auto* results = reinterpret_cast<float*>(scratch + 2 * panel_bytes);
  auto* other_results = results + 1024;
  Drain drain(target);
  const Tiles registers;
  for (int64_t n = begin; n < end; n += 2 * kPanelRows) {
    const int panels = end - n > kPanelRows ? 2 : 1;
    for (int p = 0; p < panels; ++p) expand(weight, n + p * kPanelRows, weights + p * panel_bytes);
    for (int64_t first = 0; first < x.rows; first += kTileRows) {
      const int64_t rows = x.rows - first < kTileRows ? x.rows - first : kTileRows;
      multiply_block({x.data + first * x.parts * steps * 64, weights, steps, weight_parts, products}, rows,
                     panels, results, drain);
      drain.finish();
      drain.start(results, first, rows, n, end - n);
      float* next = other_results;
      other_results = results;
      results = next;
    }
  }
  drain.finish();
}

}  // namespace

const LinearKernels& amx_linear_kernels() {
  static const LinearKernels kernels = {avx512_linear_kernels().floats, avx512_linear_kernels().codes, tiles,
                                        pack_tile_row};
  return kernels;
}

}  // namespace butter::cpu

#endif
