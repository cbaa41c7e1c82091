// The trellis search, compiled for AVX-512 (VBMI): 32 rows at a time with costs of 8 bits.
//
// The 64 windows of a row are the bytes of a vector, [h][q] as in the table: so a step is one line of the
// table added to the costs so far, spread by one byte permute. The minimum over h halves a vector `bits`
// times, and the freed halves take other rows in: eight rows, A to H, end in one vector (with 2 bits, in
// two):
//
//   A, B .. G, H    64 bytes each                                 32 bytes of A beside those of B: AB, CD,
//   EF, GH AB, CD, EF, GH  whole 16-byte lanes change places             lanes A C B D, and E G F H those two
//   qwords change places (3 and 4 bits)           qwords A E C G B F D H that            dwords change places
//   within rows (4 bits)
//
// That is 20 to 24 instructions a step and four rows, half of them on the shuffle port. The outcome of each
// comparison goes to memory as it is, 64 bits; all 32 rows are led back together, a row being a 16-bit lane,
// with variable shifts. Costs are brought down by each row's least every few steps; sums saturate.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/aura_seal_kernels.h"

namespace butter::cpu {
namespace {

constexpr int kBlockRows = 8;
constexpr int kBlocks = 4;
constexpr int kRows = kBlockRows * kBlocks;

// Rows of a block in the order of their letters.
constexpr int kRowOf[kBlockRows] = {0, 2, 4, 6, 1, 3, 5, 7};

// Finer costs would err less on most rows, and much more on the few whose costs then saturate.
constexpr SealMetric kMetrics[] = {  // cells, range, scale, knee, warm_up, lap, normalise
    {512, 4, 48, 128, 28, 28, 4},
    {512, 4, 128, 96, 24, 24, 4},
    {512, 4, 400, 80, 12, 12, 4}};

using Bytes = __m512i;

struct alignas(64) ByteTable {
  uint8_t bytes[64];
};

template <int bits>
struct Shape {
  static constexpr int kShared = kTrellisStates >> bits;
  static constexpr int kVectors = bits == 2 ? 2 : 1;        // of the state of a block
  static constexpr int kKeptBytes = bits == 2 ? 192 : 256;  // of a value
};

// Where the letter's costs begin in the state: [vector · 64 + byte].
template <int bits>
constexpr int state_begin(int letter) {
  constexpr int kLane[4] = {0, 2, 1, 3};  // A, B, C, D in A C B D
  const int lane = kLane[letter % 4];
  return bits == 2 ? letter / 4 * 64 + 16 * lane : 16 * lane + 8 * (letter / 4);
}

// For each byte of a letter's line, the state that its window follows.
template <int bits>
constexpr ByteTable spread_of(int letter) {
  constexpr int kShared = Shape<bits>::kShared;
  ByteTable table{};
  for (int i = 0; i < 64; ++i) {
    const int h = i / kShared, q = i % kShared;
    const int window = q << bits | h;
    table.bytes[i] = static_cast<uint8_t>(state_begin<bits>(letter) % 64 + (window & (kShared - 1)));
  }
  return table;
}

template <int bits>
struct SpreadTables {
  ByteTable letter[kBlockRows];
};

template <int bits>
constexpr SpreadTables<bits> make_spreads() {
  SpreadTables<bits> tables{};
  for (int letter = 0; letter < kBlockRows; ++letter) tables.letter[letter] = spread_of<bits>(letter);
  return tables;
}

template <int bits>
constexpr SpreadTables<bits> kSpreads = make_spreads<bits>();

Bytes load(const void* from) {
  return _mm512_load_si512(from);
}

void keep(uint8_t* to, __mmask64 mask) {
  std::memcpy(to, &mask, sizeof mask);
}

// The lesser of two vectors. Where kKeep, writes which bytes are y's.
template <bool kKeep>
Bytes lesser(Bytes x, Bytes y, uint8_t* kept) {
  if constexpr (kKeep) keep(kept, _mm512_cmplt_epu8_mask(y, x));
  return _mm512_min_epu8(x, y);
}

template <int bits>
struct Block {
  Bytes state[Shape<bits>::kVectors];
};

// What a block of 8 rows reads.
struct BlockRows {
  const uint8_t* costs;
  const uint16_t* cells;
  int64_t dim;
};

// Costs of letter's windows at value j.
template <int bits, int letter>
Bytes window_costs(const Block<bits>& block, const BlockRows& rows, int64_t j) {
  const uint8_t* line = rows.costs + rows.cells[kRowOf[letter] * rows.dim + j];
  const Bytes before = _mm512_permutexvar_epi8(load(kSpreads<bits>.letter[letter].bytes),
                                               block.state[bits == 2 ? letter / 4 : 0]);
  return _mm512_adds_epu8(before, load(line));
}

// Lanes 0 and 1: the halves of a; 2 and 3: of b, the upper half first.
template <bool kKeep>
Bytes halve(Bytes a, Bytes b, uint8_t* kept) {
  const Bytes x = _mm512_mask_blend_epi64(0xf0, a, b);
  const Bytes y = _mm512_shuffle_i64x2(a, b, 0x4e);
  return lesser<kKeep>(x, y, kept);
}

// Four letters to one vector, lanes A C B D. kept: two qwords of the first halving, and `second`.
template <int bits, int first, bool kKeep>
Bytes four_rows(const Block<bits>& block, const BlockRows& rows, int64_t j, uint8_t* kept, uint8_t* second) {
  const Bytes ab = halve<kKeep>(window_costs<bits, first>(block, rows, j),
                                window_costs<bits, first + 1>(block, rows, j), kept);
  const Bytes cd = halve<kKeep>(window_costs<bits, first + 2>(block, rows, j),
                                window_costs<bits, first + 3>(block, rows, j), kept + 8);
  const Bytes x = _mm512_mask_blend_epi64(0xcc, ab, cd);
  const Bytes y = _mm512_permutex2var_epi64(ab, _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13), cd);
  return lesser<kKeep>(x, y, second);
}

// One value of a block. kept: what is kept of a value, 64 bits a comparison, at the block's 16-byte lane:
//
//   [4 blocks][AB, CD]  [4 blocks][EF, GH]  [4 blocks][A C B D, E G F H]  [4 blocks][third, fourth halving]
//
template <int bits, bool kKeep>
void step(const BlockRows& rows, int64_t j, Block<bits>& block, uint8_t* kept) {
  const Bytes abcd = four_rows<bits, 0, kKeep>(block, rows, j, kept, kept + 128);
  const Bytes efgh = four_rows<bits, 4, kKeep>(block, rows, j, kept + 64, kept + 136);
  if constexpr (bits == 2) {
    block.state[0] = abcd;
    block.state[1] = efgh;
    return;
  }
  const Bytes x = _mm512_mask_blend_epi64(0xaa, abcd, efgh);
  const Bytes y = _mm512_alignr_epi8(efgh, abcd, 8);
  Bytes all = lesser<kKeep>(x, y, kept + 192);
  if constexpr (bits == 4) {
    all = lesser<kKeep>(all, _mm512_shuffle_epi32(all, _MM_PERM_CDAB), kept + 200);
  }
  block.state[0] = all;
}

// Each row's least cost, in all of its bytes.
template <int bits>
Bytes least(Bytes state) {
  if constexpr (bits == 2) state = _mm512_min_epu8(state, _mm512_shuffle_epi32(state, _MM_PERM_BADC));
  if constexpr (bits <= 3) state = _mm512_min_epu8(state, _mm512_shuffle_epi32(state, _MM_PERM_CDAB));
  state = _mm512_min_epu8(state, _mm512_rol_epi32(state, 16));
  return _mm512_min_epu8(state, _mm512_rol_epi32(state, 8));
}

constexpr int kTogether = 2;  // blocks that walk together, to fill each other's waits

// Values first to end of kTogether blocks. kept: of value 0, at the lane of the first block.
template <int bits, bool kKeep>
void forward(const BlockRows& rows, int normalise, int first, int end, Block<bits>* blocks, uint8_t* kept) {
  for (int j = first; j < end; ++j) {
    uint8_t* kept_value = kept + int64_t{j} * Shape<bits>::kKeptBytes;
    for (int b = 0; b < kTogether; ++b) {
      const BlockRows block_rows = {rows.costs, rows.cells + b * kBlockRows * rows.dim, rows.dim};
      step<bits, kKeep>(block_rows, j, blocks[b], kept_value + 16 * b);
    }
    if ((j - first) % normalise != normalise - 1) continue;
    for (int b = 0; b < kTogether; ++b) {
      for (Bytes& state : blocks[b].state) state = _mm512_subs_epu8(state, least<bits>(state));
    }
  }
}

// The cheapest state of each row of a block.
template <int bits>
void cheapest(const Block<bits>& block, uint16_t* states) {
  for (int letter = 0; letter < kBlockRows; ++letter) {
    const int begin = state_begin<bits>(letter);
    const Bytes state = block.state[begin / 64];
    const uint64_t equal = _mm512_cmpeq_epu8_mask(state, least<bits>(state));
    states[kRowOf[letter]] = static_cast<uint16_t>(__builtin_ctzll(equal >> (begin % 64)));
  }
}

// Costs of 0 for the given state of each row, and out of reach for the others.
template <int bits>
void start_at(const uint16_t* states, Block<bits>& block) {
  alignas(64) uint8_t costs[64 * Shape<bits>::kVectors];
  std::memset(costs, 255, sizeof costs);
  for (int letter = 0; letter < kBlockRows; ++letter) {
    uint8_t* own = costs + state_begin<bits>(letter) + states[kRowOf[letter]];
    own[0] = 0;
    if (bits == 4) own[4] = 0;  // there twice
  }
  for (int i = 0; i < Shape<bits>::kVectors; ++i) block.state[i] = load(costs + 64 * i);
}

// --- the way back: 32 rows, one in each 16-bit lane

// A bit for each row of a block, as words of ones: rows whose comparison had the upper half first.
Bytes rows_with(uint32_t rows) {
  return _mm512_movm_epi16(rows * 0x01010101u);
}

// All ones in the lanes whose bit at `place` is 1; `last` minus the place is how far it is from the top.
Bytes bit_at(Bytes words, Bytes last_minus_place) {
  return _mm512_srai_epi16(_mm512_sllv_epi16(words, last_minus_place), 15);
}

Bytes select(Bytes mask, Bytes yes, Bytes no) {
  return _mm512_ternarylogic_epi64(mask, yes, no, 0xca);
}
// a | (b & c)
Bytes or_and(Bytes a, Bytes b, Bytes c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0xf8);
}

// The outcomes of one value in the order of rows: for each, words whose bits are the bytes of a 16-byte lane.
struct Outcomes {
  Bytes low_half, high_half;  // of the first halving, of bytes 0 to 15 and 16 to 31 of 32
  Bytes second;
  Bytes third;  // and fourth, in the upper byte
};

template <int bits>
Outcomes outcomes_of(const uint8_t* kept) {
  constexpr uint32_t kOdd = 0xaaaaaaaa;
  const Bytes ab_cd = load(kept), ef_gh = load(kept + 64);
  const Bytes flip_first = rows_with(0b11001100), flip_second = rows_with(0b11110000);
  Outcomes out;
  out.low_half = _mm512_mask_blend_epi16(kOdd, ab_cd, _mm512_slli_epi32(ef_gh, 16));
  out.high_half = _mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(ab_cd, 16), ef_gh);
  out.low_half = _mm512_xor_si512(out.low_half, flip_first);
  out.high_half = _mm512_xor_si512(out.high_half, flip_first);
  const Bytes words =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15));
  out.second = _mm512_xor_si512(_mm512_shuffle_epi8(load(kept + 128), words), flip_second);
  if constexpr (bits > 2) {
    const Bytes pairs =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 4, 12, 5, 13, 2, 10, 3, 11, 6, 14, 7, 15));
    const Bytes flip_third = _mm512_and_si512(rows_with(0b10101010), _mm512_set1_epi16(0xff));
    out.third = _mm512_xor_si512(_mm512_shuffle_epi8(load(kept + 192), pairs), flip_third);
  }
  return out;
}

// The windows of a value, of what they leave to the next. (Inlined always, since it
// takes a vector: see accumulate_vectors() in aura_avx512.cc.)
template <int bits>
inline __attribute__((always_inline)) Bytes windows(const uint8_t* kept, Bytes q) {
  const Outcomes out = outcomes_of<bits>(kept);
  const Bytes last = _mm512_set1_epi16(15);
  Bytes window = _mm512_slli_epi16(q, bits), place = _mm512_sub_epi16(last, q);
  if constexpr (bits == 4) {
    const Bytes bit = bit_at(out.third, _mm512_sub_epi16(_mm512_set1_epi16(7), q));
    window = or_and(window, bit, _mm512_set1_epi16(1));
    place = _mm512_andnot_si512(_mm512_and_si512(bit, _mm512_set1_epi16(4)), place);
  }
  if constexpr (bits >= 3) {
    const Bytes bit = bit_at(out.third, place);
    window = or_and(window, bit, _mm512_set1_epi16(1 << (bits - 3)));
    place = _mm512_andnot_si512(_mm512_and_si512(bit, _mm512_set1_epi16(8)), place);
  }
  const Bytes upper = bit_at(out.second, place);
  window = or_and(window, upper, _mm512_set1_epi16(1 << (bits - 2)));
  const Bytes top = bit_at(select(upper, out.high_half, out.low_half), place);
  return or_and(window, top, _mm512_set1_epi16(1 << (bits - 1)));
}

template <int bits>
Bytes before(Bytes window) {
  return _mm512_and_si512(window, _mm512_set1_epi16(Shape<bits>::kShared - 1));
}

// Puts the bits that value i of a group of 16 adds, the top ones of its window, into the group's words.
template <int bits, int i>
void put_symbol(Bytes window, Bytes* words) {
  constexpr int kWord = bits * i / 16, kPlace = bits * i % 16, kFrom = kTrellisWindowBits - bits;
  const Bytes symbol_bits = _mm512_set1_epi16(static_cast<int16_t>((((1 << bits) - 1) << kPlace) & 0xffff));
  const Bytes moved = kPlace >= kFrom ? _mm512_slli_epi16(window, kPlace >= kFrom ? kPlace - kFrom : 0)
                                      : _mm512_srli_epi16(window, kPlace >= kFrom ? 0 : kFrom - kPlace);
  words[kWord] = or_and(words[kWord], moved, symbol_bits);
  if constexpr (kPlace + bits > 16) {
    words[kWord + 1] = _mm512_or_si512(words[kWord + 1], _mm512_srli_epi16(window, kFrom + 16 - kPlace));
  }
}

// Values i down to 0 of the group that begins at value `first`, those of them below `count`.
template <int bits, int i>
void group_back(const uint8_t* kept, int count, Bytes& q, Bytes* words) {
  if (i < count) {
    const Bytes window = windows<bits>(kept + i * Shape<bits>::kKeptBytes, q);
    put_symbol<bits, i>(window, words);
    q = before<bits>(window);
  }
  if constexpr (i > 0) group_back<bits, i - 1>(kept, count, q, words);
}

// Codes of 32 rows from what the last value leaves.
template <int bits>
void trace_back(const uint8_t* kept, int dim, const uint16_t* seams, uint8_t* codes) {
  const int64_t row_bytes = bits * dim / 8;
  Bytes q = load(seams);
  for (int first = (dim - 1) / 16 * 16; first >= 0; first -= 16) {
    const int count = dim - first < 16 ? dim - first : 16;
    Bytes words[bits + 1] = {};
    const uint8_t* kept_group = kept + int64_t{first} * Shape<bits>::kKeptBytes;
    group_back<bits, 15>(kept_group, count, q, words);
    alignas(64) uint16_t out[bits][kRows];
    for (int w = 0; w < bits; ++w) _mm512_store_si512(out[w], words[w]);
    for (int r = 0; r < kRows; ++r) {
      uint8_t* to = codes + r * row_bytes + bits * first / 8;
      uint16_t row_words[bits];
      for (int w = 0; w < bits; ++w) row_words[w] = out[w][r];
      if (count == 16) {
        std::memcpy(to, row_words, sizeof row_words);
      } else {
        std::memcpy(to, row_words, static_cast<size_t>(bits * count / 8));
      }
    }
  }
}

// --- products

// <y, levels> and <levels, levels> of a row whose bits end with a byte.
template <int bits>
SealedRow multiply(const int8_t* level_of, const float* y, int dim, const uint8_t* codes) {
  // Qword g of a chunk: the byte before that of channel 8g, and those of 8 channels.
  alignas(64) uint8_t gather[64], shifts[64];
  for (int i = 0; i < 64; ++i) {
    gather[i] = static_cast<uint8_t>((bits * (i / 8) + i % 8) & 63);
    shifts[i] = static_cast<uint8_t>(8 + bits * (i % 8 + 1) - kTrellisWindowBits);
  }
  const Bytes bytes_of = load(gather), shift = load(shifts), levels = _mm512_loadu_si512(level_of);
  const int64_t row_bytes = bits * dim / 8;
  __m512 product[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  Bytes square = _mm512_setzero_si512();
  for (int first = 0; first < dim; first += 64) {
    const int count = dim - first < 64 ? dim - first : 64;
    const __mmask64 here = ~__mmask64{0} >> (64 - count);
    const uint8_t* from = codes + bits * first / 8;
    Bytes bytes = _mm512_maskz_loadu_epi8((~__mmask64{0} >> (64 - bits * count / 8)) << 1, from - 1);
    const uint8_t earlier = first == 0 ? codes[row_bytes - 1] : from[-1];
    bytes = _mm512_mask_set1_epi8(bytes, 1, static_cast<char>(earlier));
    const Bytes window = _mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(bytes_of, bytes));
    const Bytes level = _mm512_maskz_permutexvar_epi8(here, window, levels);
    const Bytes size = _mm512_abs_epi8(level);
    square = _mm512_dpbusd_epi32(square, size, size);
    const auto add = [&](__m128i part, int at) {
      if (at >= count) return;
      const __mmask16 lanes = static_cast<__mmask16>(here >> at);
      const __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(part));
      __m512& sum = product[at / 16 % 2];
      sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, y + first + at), x, sum);
    };
    add(_mm512_castsi512_si128(level), 0);
    add(_mm512_extracti32x4_epi32(level, 1), 16);
    add(_mm512_extracti32x4_epi32(level, 2), 32);
    add(_mm512_extracti32x4_epi32(level, 3), 48);
  }
  return {_mm512_reduce_add_ps(_mm512_add_ps(product[0], product[1])),
          static_cast<float>(_mm512_reduce_add_epi32(square))};
}

// --- 32 rows

template <int bits>
void seal_rows(const SealMetric& metric, const int8_t* levels, const void* costs, const SealRows& rows,
               uint8_t* kept, uint8_t* codes, SealedRow* sealed) {
  const int dim = rows.dim;
  const int warm_up = metric.warm_up < dim ? metric.warm_up : dim, lap = metric.lap < dim ? metric.lap : dim;
  alignas(64) uint16_t seams[kRows];
  const auto rows_of = [&](int block) {
    return BlockRows{static_cast<const uint8_t*>(costs), rows.cells + block * kBlockRows * dim, dim};
  };
  for (int block = 0; block < kBlocks; block += kTogether) {
    Block<bits> blocks[kTogether] = {};
    forward<bits, false>(rows_of(block), metric.normalise, dim - warm_up, dim, blocks, kept);
    forward<bits, true>(rows_of(block), metric.normalise, 0, lap, blocks, kept + 16 * block);
    for (int b = 0; b < kTogether; ++b) cheapest(blocks[b], seams + (block + b) * kBlockRows);
  }
  Bytes q = load(seams);
  for (int j = lap - 1; j >= 0; --j) q = before<bits>(windows<bits>(kept + j * Shape<bits>::kKeptBytes, q));
  _mm512_store_si512(seams, q);
  for (int block = 0; block < kBlocks; block += kTogether) {
    Block<bits> blocks[kTogether];
    for (int b = 0; b < kTogether; ++b) start_at(seams + (block + b) * kBlockRows, blocks[b]);
    forward<bits, true>(rows_of(block), metric.normalise, 0, dim, blocks, kept + 16 * block);
  }
  trace_back<bits>(kept, dim, seams, codes);
  const int64_t row_bytes = bits * dim / 8;
  for (int r = 0; r < kRows; ++r)
    sealed[r] = multiply<bits>(levels, rows.turned + r * dim, dim, codes + r * row_bytes);
}

void seal(const SealMetric& metric, const int8_t* levels, int bits, const void* costs, const SealRows& rows,
          std::byte* scratch, uint8_t* codes, SealedRow* sealed) {
  auto* kept = reinterpret_cast<uint8_t*>(scratch);
  if (bits == 2) return seal_rows<2>(metric, levels, costs, rows, kept, codes, sealed);
  if (bits == 3) return seal_rows<3>(metric, levels, costs, rows, kept, codes, sealed);
  seal_rows<4>(metric, levels, costs, rows, kept, codes, sealed);
}

int64_t scratch_bytes(int bits, int dim) {
  return int64_t{dim} * (bits == 2 ? Shape<2>::kKeptBytes : Shape<4>::kKeptBytes);
}

__mmask16 first_lanes(int count) {
  return count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1);
}

float square_sum(const float* values, int dim) {
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int j = 0; j < dim; j += 16) {
    const __m512 x = _mm512_maskz_loadu_ps(first_lanes(dim - j), values + j);
    sum[j / 16 % 2] = _mm512_fmadd_ps(x, x, sum[j / 16 % 2]);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
}

void to_cells(const float* y, int dim, float factor, int cells, uint16_t* out) {
  const __m512 middle = _mm512_set1_ps(0.5f * static_cast<float>(cells)), factors = _mm512_set1_ps(factor);
  const __m512 last = _mm512_set1_ps(static_cast<float>(cells - 1));
  for (int j = 0; j < dim; j += 16) {
    const __mmask16 lanes = first_lanes(dim - j);
    __m512 cell = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, y + j), factors, middle);
    cell = _mm512_min_ps(_mm512_max_ps(cell, _mm512_setzero_ps()), last);
    const __m512i offset = _mm512_slli_epi32(_mm512_cvttps_epi32(cell), 6);
    _mm512_mask_cvtepi32_storeu_epi16(out + j, lanes, offset);
  }
}

}  // namespace

const SealKernel kSealAvx512 = {kMetrics, false, kRows, scratch_bytes, square_sum, to_cells, seal};

}  // namespace butter::cpu

#endif
