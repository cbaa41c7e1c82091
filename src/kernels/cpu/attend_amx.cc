// Prefill attention on AMX tiles: bf16 products, float32 sums and softmax.
//
// 32 query rows at a time, two tiles. Scores: A = queries [16 rows][32 channels], B = keys, of which a tile
// holds 16 channel pairs of 16 keys. Values: A = weights [16 rows][32 keys], B = 16 pairs of keys by 16
// channels; the sums are read from and written back to the block's state, which stays in L2. Two by two tiles
// share their loads. A tile product takes 16 cycles: at d 64 a page of 32 rows is 32 of them, about as much
// as its softmax takes. Decode rows have too few heads to fill a tile: they use the AVX-512 kernels.
#if defined(__x86_64__)

#include "kernels/cpu/attend_vec_avx512_inl.h"
// Vec first: the file below is written in its terms.
#include "kernels/cpu/attend_inl.h"
#include "kernels/cpu/tiles_amx_inl.h"

namespace butter::cpu {
namespace {

constexpr int kRows = 16;          // of a tile
constexpr int kPair = 32;          // bf16 values in a tile's row
constexpr int kBlock = 2 * kRows;  // query rows at a time

// Bytes of one part of a page.
constexpr int64_t key_bytes(int dim) {
  return kPageRows * round_up_to(dim, kPair) * 2;
}
constexpr int64_t value_bytes(int dim) {
  return kPageRows * round_up_to(dim, 16) * 2;
}

// [count rounded up to 32][part][dim rounded up to 32].
template <int parts>
void pack_queries(const float* rows, int count, int dim, std::byte* packed) {
  const int64_t width = round_up_to(dim, kPair);
  std::byte* to = packed;
  for (int row = 0; row < round_up_to(count, kBlock); ++row, rows += dim, to += parts * width * 2) {
    for (int64_t i = 0; i < width; i += kPair) {
      const int64_t left = row < count ? dim - i : 0;
      _mm512_storeu_si512(to + 2 * i, load_tile_row<0>(rows + i, left));
      if constexpr (parts == 2) _mm512_storeu_si512(to + 2 * (width + i), load_tile_row<1>(rows + i, left));
    }
  }
}

// Tiles [dim/32][4 blocks of 16 keys]: row i holds channels 2i and 2i + 1 of the 16 keys.
template <int part>
void pack_key_part(const float* rows, int dim, std::byte* packed) {
  for (int64_t i = 0; i < dim; i += kPair) {
    for (int first = 0; first < kPageRows; first += kRows, packed += kTileBytes) {
      __m512i tile[kRows];
      for (int key = 0; key < kRows; ++key)
        tile[key] = load_tile_row<part>(rows + int64_t{first + key} * dim + i, dim - i);
      transpose_16x16(tile);
      for (int row = 0; row < kRows; ++row) _mm512_storeu_si512(packed + 64 * row, tile[row]);
    }
  }
}

template <int parts>
void pack_keys(const float* rows, int dim, std::byte* packed) {
  pack_key_part<0>(rows, dim, packed);
  if constexpr (parts == 2) pack_key_part<1>(rows, dim, packed + key_bytes(dim));
}

// Tiles [dim/16][2 halves of the page]: row i holds keys 2i and 2i + 1, 16 channels.
template <int part>
void pack_value_part(const float* rows, int dim, std::byte* packed) {
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = first_lanes(dim - i);
    for (int key = 0; key < kPageRows; key += 2, packed += 64) {
      const __m512 even = part_of<part>(_mm512_maskz_loadu_ps(mask, rows + int64_t{key} * dim + i));
      const __m512 odd = part_of<part>(_mm512_maskz_loadu_ps(mask, rows + int64_t{key + 1} * dim + i));
      const auto low = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(even));
      const auto high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(odd));
      const __m512i pairs =
          _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      _mm512_storeu_si512(packed, pairs);
    }
  }
}

template <int parts>
void pack_values(const float* rows, int dim, std::byte* packed) {
  pack_value_part<0>(rows, dim, packed);
  if constexpr (parts == 2) pack_value_part<1>(rows, dim, packed + value_bytes(dim));
}

// Tiles 0..3 are sums [2][2], 4 and 5 rows, 6 and 7 columns. `depth` steps: a tile of rows is 64 bytes
// further, one of columns `b_step` bytes.
inline void multiply_2x2(const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_step,
                         int64_t b_next, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    _tile_loadd(6, b + k * b_step, 64);
    _tile_loadd(7, b + k * b_step + b_next, 64);
    _tile_loadd(4, a + k * 64, static_cast<int>(a_stride));
    _tile_loadd(5, a + k * 64 + kRows * a_stride, static_cast<int>(a_stride));
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

inline void multiply_2x1(const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_step,
                         int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    _tile_loadd(6, b + k * b_step, 64);
    _tile_loadd(4, a + k * 64, static_cast<int>(a_stride));
    _tile_loadd(5, a + k * 64 + kRows * a_stride, static_cast<int>(a_stride));
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
  }
}

// scores [32][64] = queries · keys.
template <int parts>
inline void score_tiles(const std::byte* queries, int dim, const std::byte* keys, float* scores) {
  constexpr int kStride = kPageRows * 4;
  const int64_t width = round_up_to(dim, kPair);
  for (int half = 0; half < 2; ++half) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int pair = 0; pair < part_pairs(parts, parts); ++pair) {
      const auto [query_part, key_part] = kPartPairs[pair];
      multiply_2x2(queries + query_part * width * 2, parts * width * 2,
                   keys + key_part * key_bytes(dim) + 2 * half * kTileBytes, 4 * kTileBytes, kTileBytes,
                   width / kPair);
    }
    float* to = scores + 32 * half;
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
    _tile_stored(2, to + kRows * kPageRows, kStride);
    _tile_stored(3, to + kRows * kPageRows + 16, kStride);
  }
}

// acc [32][columns] += weights [32][part][64] · values.
template <int parts>
inline void value_tiles(const std::byte* weights, const std::byte* values, int64_t columns, float* acc) {
  constexpr int kWeightStride = parts * kPageRows * 2;
  const int64_t part_bytes = kPageRows * columns * 2;
  const int row_bytes = static_cast<int>(4 * columns);
  float* lower = acc + kRows * columns;
  int64_t column = 0;
  for (; column + 32 <= columns; column += 32, values += 4 * kTileBytes) {
    _tile_loadd(0, acc + column, row_bytes);
    _tile_loadd(1, acc + column + 16, row_bytes);
    _tile_loadd(2, lower + column, row_bytes);
    _tile_loadd(3, lower + column + 16, row_bytes);
    for (int pair = 0; pair < part_pairs(parts, parts); ++pair) {
      const auto [weight_part, value_part] = kPartPairs[pair];
      multiply_2x2(weights + weight_part * kPageRows * 2, kWeightStride, values + value_part * part_bytes,
                   kTileBytes, 2 * kTileBytes, 2);
    }
    _tile_stored(0, acc + column, row_bytes);
    _tile_stored(1, acc + column + 16, row_bytes);
    _tile_stored(2, lower + column, row_bytes);
    _tile_stored(3, lower + column + 16, row_bytes);
  }
  if (column == columns) return;
  _tile_loadd(0, acc + column, row_bytes);
  _tile_loadd(2, lower + column, row_bytes);
  for (int pair = 0; pair < part_pairs(parts, parts); ++pair) {
    const auto [weight_part, value_part] = kPartPairs[pair];
    multiply_2x1(weights + weight_part * kPageRows * 2, kWeightStride, values + value_part * part_bytes,
                 kTileBytes, 2);
  }
  _tile_stored(0, acc + column, row_bytes);
  _tile_stored(2, lower + column, row_bytes);
}

// One row: scores become bf16 weights [part][64]; max, sum and acc follow, as in soften_row().
template <int parts>
inline void soften_to_bf16(float* scores, uint64_t visible, int64_t columns, float* max, float* sum,
                           float* acc, std::byte* weights) {
  if (visible != ~uint64_t{0}) hide_scores(scores, visible);
  const __m512 s0 = _mm512_loadu_ps(scores), s1 = _mm512_loadu_ps(scores + 16);
  const __m512 s2 = _mm512_loadu_ps(scores + 32), s3 = _mm512_loadu_ps(scores + 48);
  const float page_max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(s0, s1), _mm512_max_ps(s2, s3)));
  if (page_max > *max) {
    const float factor = exp2_of(*max - page_max);
    *max = page_max;
    *sum *= factor;
    multiply(acc, columns, factor);
  }
  const __m512 shift = _mm512_set1_ps(*max);
  const __m512 w0 = Vec::exp2(_mm512_sub_ps(s0, shift)), w1 = Vec::exp2(_mm512_sub_ps(s1, shift));
  const __m512 w2 = Vec::exp2(_mm512_sub_ps(s2, shift)), w3 = Vec::exp2(_mm512_sub_ps(s3, shift));
  *sum += _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(w0, w1), _mm512_add_ps(w2, w3)));
  _mm512_storeu_si512(weights, to_bf16(w0, w1));
  _mm512_storeu_si512(weights + 64, to_bf16(w2, w3));
  if constexpr (parts == 2) {
    _mm512_storeu_si512(weights + 128, to_bf16(after_bf16(w0), after_bf16(w1)));
    _mm512_storeu_si512(weights + 192, to_bf16(after_bf16(w2), after_bf16(w3)));
  }
}

template <int parts>
void attend_page(const PrefillBlock& block, int first, int end) {
  const Tiles tiles;
  float* scores = reinterpret_cast<float*>(block.scratch);
  std::byte* weights = block.scratch + int64_t{kBlock} * kPageRows * 4;
  const int64_t query_bytes = parts * round_up_to(block.key_dim, kPair) * 2;
  const SoftmaxState& state = block.state;
  for (int tile = first / kBlock * kBlock; tile < end; tile += kBlock) {
    score_tiles<parts>(block.queries + tile * query_bytes, block.key_dim, block.keys, scores);
    for (int r = 0; r < kBlock; ++r) {
      const int row = tile + r;
      soften_to_bf16<parts>(scores + r * kPageRows, block.visible[row], state.stride, state.max + row,
                            state.sum + row, state.acc + row * state.stride,
                            weights + r * parts * kPageRows * 2);
    }
    value_tiles<parts>(weights, block.values, state.stride, state.acc + tile * state.stride);
  }
}

template <int parts>
constexpr AttendKernels kTileKernels = {soften,
                                        add_centre,
                                        kBlock,
                                        pack_queries<parts>,
                                        pack_keys<parts>,
                                        pack_values<parts>,
                                        attend_page<parts>};

}  // namespace

const AttendKernels& attend_kernels_amx(Products products) {
  return products == Products::kBf16 ? kTileKernels<1> : kTileKernels<2>;
}

}  // namespace butter::cpu

#endif
