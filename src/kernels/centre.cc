#include "kernels/centre.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/buffer.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

// Decoded b; channel j of a pair stands with channel j + pairs.
struct Base {
  float values[kMaxCentreDim];
  const uint16_t* exact;

  Base(const std::byte* centre, int dim) : exact(exact_pairs_of(centre, dim)) {
    for (int i = 0; i < dim; ++i) {
      uint16_t bits;
      std::memcpy(&bits, centre + 2 * i, sizeof bits);
      values[i] = fp16_to_float(bits);
    }
  }
};

void order_exact_pairs(const float* b, const RotaryTable& rotary, uint16_t* exact) {
  const int pairs = rotary.pairs(), count = exact_pairs(rotary);
  double weight[kMaxCentreDim / 2];
  for (int j = 0; j < pairs; ++j) {
    const double x = b[j], y = b[j + pairs];
    weight[j] = (x * x + y * y) * rotary.spread(j);
  }
  uint16_t order[kMaxCentreDim / 2];
  std::iota(order, order + pairs, uint16_t{0});
  std::sort(order, order + pairs,
            [&](uint16_t a, uint16_t c) { return weight[a] != weight[c] ? weight[a] > weight[c] : a < c; });
  std::copy_n(order, count, exact);
}

}  // namespace

BlockLayout centre_layout(const std::vector<KvLayerShape>& class_layers) {
  BlockLayout block;
  for (const KvLayerShape& shape : class_layers) {
    LayerLayout layer;
    layer.begin = block.bytes;
    for (int head = 0; head < shape.kv_heads; ++head) {
      layer.heads.push_back({block.bytes, 0, 0});
      block.bytes += round_up(int64_t{2} * shape.key_dim + 2 * (shape.key_dim / 8), 16);
    }
    block.bytes = round_up(block.bytes, Buffer::kAlignment);
    layer.bytes = block.bytes - layer.begin;
    block.layers.push_back(std::move(layer));
  }
  return block;
}

const uint16_t* exact_pairs_of(const std::byte* centre, int dim) {
  return reinterpret_cast<const uint16_t*>(centre + int64_t{2} * dim);
}

CentreId centre_id(const std::byte* centre, int dim) {
  const uint64_t hash = XXH3_64bits(centre, size_t{2} * static_cast<size_t>(dim));
  CentreId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(hash >> (8 * i));
  return id;
}

void make_centre(const float* keys, int dim, const RotaryTable& rotary, std::byte* centre) {
  const int pairs = rotary.pairs();
  double sum[kMaxCentreDim] = {};
  for (int row = kPinnedRows; row < kPageRows; ++row) {
    const float* key = keys + int64_t{row} * dim;
    for (int j = 0; j < pairs; ++j) {
      const PairRotation turn = rotary.rows(j);
      const double cos = turn.cos[row], sin = turn.sin[row], x = key[j], y = key[j + pairs];
      sum[j] += cos * x + sin * y;
      sum[j + pairs] += cos * y - sin * x;
    }
    for (int i = 2 * pairs; i < dim; ++i) sum[i] += key[i];
  }
  float b[kMaxCentreDim];
  for (int i = 0; i < dim; ++i) {
    // Keys are finite in 16 bits, so is their mean; turned, it may be just beyond fp16.
    const double mean = sum[i] / (kPageRows - kPinnedRows);
    const uint16_t bits = float_to_fp16(static_cast<float>(std::clamp(mean, -65504.0, 65504.0)));
    b[i] = fp16_to_float(bits);
    std::memcpy(centre + 2 * i, &bits, sizeof bits);
  }
  order_exact_pairs(b, rotary, reinterpret_cast<uint16_t*>(centre + int64_t{2} * dim));
}

void choose_exact_pairs(int dim, const RotaryTable& rotary, std::byte* centre) {
  const Base base(centre, dim);
  order_exact_pairs(base.values, rotary, reinterpret_cast<uint16_t*>(centre + int64_t{2} * dim));
}

void centre_rows(const std::byte* centre, int dim, const RotaryTable& rotary, int64_t page, float* rows) {
  const Base base(centre, dim);
  const float* b = base.values;
  const int pairs = rotary.pairs();
  float scratch[kMaxCentreDim];
  const PairRotation at_page = rotary.page(page, scratch), middle = rotary.middle();
  float common[kMaxCentreDim];  // c_t of the pairs that are not exact
  float turned[kMaxCentreDim];  // R_page b
  for (int j = 0; j < pairs; ++j) {
    const float x = at_page.cos[j] * b[j] - at_page.sin[j] * b[j + pairs];
    const float y = at_page.sin[j] * b[j] + at_page.cos[j] * b[j + pairs];
    turned[j] = x;
    turned[j + pairs] = y;
    common[j] = middle.cos[j] * x - middle.sin[j] * y;
    common[j + pairs] = middle.sin[j] * x + middle.cos[j] * y;
  }
  for (int i = 2 * pairs; i < dim; ++i) common[i] = b[i];
  for (int row = 0; row < kPageRows; ++row) std::copy_n(common, dim, rows + int64_t{row} * dim);
  for (int e = 0; e < exact_pairs(rotary); ++e) {
    const int j = base.exact[e];
    const PairRotation turn = rotary.rows(j);
    for (int row = 0; row < kPageRows; ++row) {
      float* out = rows + int64_t{row} * dim;
      out[j] = turn.cos[row] * turned[j] - turn.sin[row] * turned[j + pairs];
      out[j + pairs] = turn.sin[row] * turned[j] + turn.cos[row] * turned[j + pairs];
    }
  }
}

uint64_t subtract_centre(const std::byte* centre, int dim, const RotaryTable& rotary, int64_t page,
                         float* keys, float* scratch) {
  centre_rows(centre, dim, rotary, page, scratch);
  uint64_t centred = 0;
  for (int row = 0; row < kPageRows; ++row) {
    float* key = keys + int64_t{row} * dim;
    const float* c = scratch + int64_t{row} * dim;
    // |x - c|² < |x|²  ⟺  c·c < 2 x·c
    double cc = 0, xc = 0;
    for (int i = 0; i < dim; ++i) {
      cc += static_cast<double>(c[i]) * c[i];
      xc += static_cast<double>(key[i]) * c[i];
    }
    if (cc >= 2 * xc) continue;
    centred |= uint64_t{1} << row;
    for (int i = 0; i < dim; ++i) key[i] -= c[i];
  }
  return centred;
}

void prepare_centre(const std::byte* centre, int dim, const RotaryTable& rotary, const float* query,
                    float* out) {
  const Base base(centre, dim);
  const float* b = base.values;
  const int pairs = rotary.pairs(), exact = exact_pairs(rotary);
  const PairRotation middle = rotary.middle();
  float* p = out;
  float* q = out + pairs;
  float* rest = out + 2 * pairs;
  float* exact_p = rest + 1;
  float* exact_q = exact_p + kHalves * exact;
  const auto products = [&](float x, float y, int j, float* along, float* across) {
    *along = query[j] * x + query[j + pairs] * y;
    *across = query[j + pairs] * x - query[j] * y;
  };
  for (int j = 0; j < pairs; ++j) {
    const float x = middle.cos[j] * b[j] - middle.sin[j] * b[j + pairs];
    const float y = middle.sin[j] * b[j] + middle.cos[j] * b[j + pairs];
    products(x, y, j, p + j, q + j);
  }
  for (int e = 0; e < exact; ++e) {
    const int j = base.exact[e];
    float along, across;
    products(b[j], b[j + pairs], j, &along, &across);
    const PairRotation rows = rotary.half_rows(j);
    for (int k = 0; k < kHalves; ++k) {
      const int middle_row = k * kHalfRows + kHalfRows / 2 - 1;
      const float cos = rows.cos[middle_row], sin = rows.sin[middle_row];
      exact_p[k * exact + e] = cos * along + sin * across;
      exact_q[k * exact + e] = cos * across - sin * along;
    }
    p[j] = q[j] = 0;
  }
  *rest = 0;
  for (int i = 2 * pairs; i < dim; ++i) *rest += query[i] * b[i];
}

}  // namespace butter
