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

namespace butter::cpu {
namespace {

constexpr int kRows = 16;  // of a tile
constexpr int kPair = 32;  // bf16 values in a tile's row
constexpr int kTileValues = kRows * kPair;
constexpr int kBlock = 2 * kRows;  // query rows at a time

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Eight full tiles. The fences keep the compiler from moving memory accesses across (g++ 12 declares the
// operand of _tile_loadconfig too small, and drops the stores to the rest of it).
class Tiles {
 public:
  Tiles() {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = kRows;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    __asm__ volatile("" : : : "memory");
  }
  ~Tiles() { _tile_release(); }
};

inline __m512i to_bf16(const float* low, const float* high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low)));
}

inline __m512i to_bf16_some(const float* from, int64_t count) {
  const auto mask = [](int64_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
  };
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(mask(count - 16), from + 16),
                                                       _mm512_maskz_loadu_ps(mask(count), from)));
}

// [count rounded up to 32][dim rounded up to 32].
void pack_queries(const float* rows, int count, int dim, std::byte* packed) {
  const int64_t width = round_up_to(dim, kPair);
  std::byte* to = packed;
  for (int row = 0; row < round_up_to(count, kBlock); ++row) {
    for (int64_t i = 0; i < width; i += kPair, to += 64) {
      const __m512i values =
          row < count ? to_bf16_some(rows + int64_t{row} * dim + i, dim - i) : _mm512_setzero_si512();
      _mm512_storeu_si512(to, values);
    }
  }
}

// A 16 x 16 matrix of 32-bit values, transposed.
inline void transpose(__m512i rows[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(rows[i], rows[i + 1]),
                  b = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]),
                  d = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[4q + c]: column 4l + c of rows 4q..4q+3 in 128-bit lane l.
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x44),
                  b = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xee);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x44),
                  e = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xee);
    rows[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    rows[4 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
    rows[8 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
}

// Tiles [dim/32][4 blocks of 16 keys]: row i holds channels 2i and 2i + 1 of the 16 keys.
void pack_keys(const float* rows, int dim, std::byte* packed) {
  for (int64_t i = 0; i < dim; i += kPair) {
    for (int first = 0; first < kPageRows; first += kRows, packed += 2 * kTileValues) {
      __m512i tile[kRows];
      for (int key = 0; key < kRows; ++key) {
        const float* row = rows + int64_t{first + key} * dim + i;
        tile[key] = i + kPair <= dim ? to_bf16(row, row + 16) : to_bf16_some(row, dim - i);
      }
      transpose(tile);
      for (int row = 0; row < kRows; ++row) _mm512_storeu_si512(packed + 64 * row, tile[row]);
    }
  }
}

// Tiles [dim/16][2 halves of the page]: row i holds keys 2i and 2i + 1, 16 channels.
void pack_values(const float* rows, int dim, std::byte* packed) {
  for (int64_t i = 0; i < dim; i += 16) {
    const auto mask = static_cast<__mmask16>(dim - i >= 16 ? 0xffff : (1u << (dim - i)) - 1);
    for (int key = 0; key < kPageRows; key += 2, packed += 64) {
      const __m512 even = _mm512_maskz_loadu_ps(mask, rows + int64_t{key} * dim + i);
      const __m512 odd = _mm512_maskz_loadu_ps(mask, rows + int64_t{key + 1} * dim + i);
      const auto low = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(even));
      const auto high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(odd));
      const __m512i pairs =
          _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      _mm512_storeu_si512(packed, pairs);
    }
  }
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
inline void score_tiles(const std::byte* queries, int64_t width, const std::byte* keys, float* scores) {
  constexpr int kStride = kPageRows * 4;
  constexpr int64_t kTileBytes = 2 * kTileValues;
  for (int half = 0; half < 2; ++half) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    multiply_2x2(queries, 2 * width, keys + 2 * half * kTileBytes, 4 * kTileBytes, kTileBytes, width / kPair);
    float* to = scores + 32 * half;
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
    _tile_stored(2, to + kRows * kPageRows, kStride);
    _tile_stored(3, to + kRows * kPageRows + 16, kStride);
  }
}

// acc [32][stride] += weights [32][64] · values.
inline void value_tiles(const std::byte* weights, const std::byte* values, int64_t columns, float* acc,
                        int64_t stride) {
  constexpr int kWeightStride = kPageRows * 2;
  constexpr int64_t kTileBytes = 2 * kTileValues;
  const int row_bytes = static_cast<int>(4 * stride);
  float* lower = acc + kRows * stride;
  int64_t column = 0;
  for (; column + 32 <= columns; column += 32, values += 4 * kTileBytes) {
    _tile_loadd(0, acc + column, row_bytes);
    _tile_loadd(1, acc + column + 16, row_bytes);
    _tile_loadd(2, lower + column, row_bytes);
    _tile_loadd(3, lower + column + 16, row_bytes);
    multiply_2x2(weights, kWeightStride, values, kTileBytes, 2 * kTileBytes, 2);
    _tile_stored(0, acc + column, row_bytes);
    _tile_stored(1, acc + column + 16, row_bytes);
    _tile_stored(2, lower + column, row_bytes);
    _tile_stored(3, lower + column + 16, row_bytes);
  }
  if (column == columns) return;
  _tile_loadd(0, acc + column, row_bytes);
  _tile_loadd(2, lower + column, row_bytes);
  multiply_2x1(weights, kWeightStride, values, kTileBytes, 2);
  _tile_stored(0, acc + column, row_bytes);
  _tile_stored(2, lower + column, row_bytes);
}

// One row: scores become bf16 weights; max, sum and acc follow, as in soften_row().
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
  _mm512_storeu_si512(weights, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w1, w0)));
  _mm512_storeu_si512(weights + 64, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w3, w2)));
}

void attend_page(const PrefillBlock& block, int first, int end) {
  const Tiles tiles;
  float* scores = reinterpret_cast<float*>(block.scratch);
  std::byte* weights = block.scratch + int64_t{kBlock} * kPageRows * 4;
  const int64_t width = round_up_to(block.key_dim, kPair);
  const SoftmaxState& state = block.state;
  for (int tile = first / kBlock * kBlock; tile < end; tile += kBlock) {
    score_tiles(block.queries + tile * width * 2, width, block.keys, scores);
    for (int r = 0; r < kBlock; ++r) {
      const int row = tile + r;
      soften_to_bf16(scores + r * kPageRows, block.visible[row], state.stride, state.max + row,
                     state.sum + row, state.acc + row * state.stride, weights + r * kPageRows * 2);
    }
    value_tiles(weights, block.values, state.stride, state.acc + tile * state.stride, state.stride);
  }
}

constexpr AttendKernels kTileKernels = {soften, kBlock, pack_queries, pack_keys, pack_values, attend_page};

}  // namespace

const AttendKernels& attend_kernels_amx() {
  return kTileKernels;
}

}  // namespace butter::cpu

#endif
