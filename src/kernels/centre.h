// The centre of keys: what the keys of a layer and KV head have in common before RoPE, taken off before they
// are coded (docs/kv-cache-internals.md). It costs no bits and is the largest lever on quality.
//
//   b    mean over positions 4..63 of R_{-t} k_t, in fp16; made when position 63 has been written
//   c_t  R_t b for a quarter of the RoPE pairs, those where it matters most (the exact ones); for the others
//        R at the page's middle; channels without RoPE: b itself
//
// A row is coded as x - c_t where that makes its norm smaller (RecordTail::centred), else as it is. Attention
// adds q·c_t to the scores of those rows: exact, since both sides form c_t from the same fp16 b. Every sealed
// page says in its tails which b that was.
//
// A centre is a block of the page pool, one part for each (layer, KV head): fp16 b[key_dim], then the exact
// pairs as uint16[key_dim / 8] (rotary / 8 of them are in use).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_layout.h"
#include "kernels/rotary_table.h"

namespace butter {

// Keys that are centred are no wider.
constexpr int kMaxCentreDim = 1024;

// Layout of a centre: RecordOffsets::key of each head.
BlockLayout centre_layout(const std::vector<KvLayerShape>& class_layers);

// The centre of one layer of a sequence. Null base: there is none, keys are coded as they are.
struct CentreView {
  std::byte* base = nullptr;
  const LayerLayout* layout = nullptr;
  const RotaryTable* rotary = nullptr;  // never null where base is not
  explicit operator bool() const { return base != nullptr; }
  std::byte* head(int kv_head) const { return base + layout->heads[static_cast<size_t>(kv_head)].key; }
};

// From the raw keys of positions 0..63, [64][dim].
void make_centre(const float* keys, int dim, const RotaryTable& rotary, std::byte* centre);

// The exact pairs of a centre whose b, finite, has been written.
void choose_exact_pairs(int dim, const RotaryTable& rotary, std::byte* centre);

// c_t of the 64 rows of a page, [64][dim].
void centre_rows(const std::byte* centre, int dim, const RotaryTable& rotary, int64_t page, float* rows);

// Takes c_t off the keys of a page, [64][dim], where that makes their norm smaller, and says where.
// `scratch`: 64 · dim floats.
uint64_t subtract_centre(const std::byte* centre, int dim, const RotaryTable& rotary, int64_t page,
                         float* keys, float* scratch);

// A page's rows in halves of 32. Seen from a half's middle (15.5, 47.5) its rows stand in pairs, i + 1/2
// before it and as much behind it, whose cosines are the same and whose sines differ in sign.
constexpr int kHalves = 2;
constexpr int kHalfRows = kPageRows / kHalves;

// A query's side of q·c_t, worked out once for all pages. Of row m_k ± i, m_k the middle of half k, i = 1/2,
// 3/2, ..., of the page that begins at t0:
//   q·c_t = Σ_pairs cos(θ t0) p + sin(θ t0) q  (middle of the page: exact pairs 0)  + rest
//         + Σ_exact cos(θ i) (cos(θ t0) P_k + sin(θ t0) Q_k) ± sin(θ i) (cos(θ t0) Q_k - sin(θ t0) P_k)
// as floats: p[pairs] q[pairs] | rest | P[2][exact] Q[2][exact].
constexpr int64_t centre_query_floats(int dim) {
  return 2 * int64_t{dim} + 32;
}
void prepare_centre(const std::byte* centre, int dim, const RotaryTable& rotary, const float* query,
                    float* out);
inline int exact_pairs(const RotaryTable& rotary) {
  return rotary.pairs() / 4;
}
constexpr int max_exact_pairs(int dim) {
  return dim / 8;
}
// The first 48 bits of XXH3-64 of b.
CentreId centre_id(const std::byte* centre, int dim);
// The exact pairs of a centre, [exact_pairs()].
const uint16_t* exact_pairs_of(const std::byte* centre, int dim);

}  // namespace butter
