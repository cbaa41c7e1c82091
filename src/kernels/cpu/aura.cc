// Aura rows of 2, 3 and 4 bits on the CPU: the verbs around the kernels of aura_kernels.h.
//
// Queries are turned into the format's basis and made int8 there, by the largest of each head: the rotation
// spreads a query over its channels, so that the step is some 1/40 of the channels' deviation. What is added
// up stands in the kernels' order of channels and is put in order by finish().
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/aura_kernels.h"
#include "kernels/cpu/aura_layout.h"
#include "kernels/cpu/formats.h"
#include "kernels/cpu/rotate.h"
#include "kernels/reference/formats.h"
#include "kernels/trellis.h"

namespace butter::cpu {
namespace {

constexpr float kLargestQuery = 127;

const AuraKernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return aura_kernels_avx512();
  if (isa == Isa::kAvx2) return aura_kernels_avx2();
#endif
  return aura_kernels_portable();
}

int64_t padded(int dim) {
  return (int64_t{dim} + kAuraUnit - 1) / kAuraUnit * kAuraUnit;
}
int64_t query_stride(int dim) {
  return static_cast<int64_t>(sizeof(AuraQuery)) + padded(dim);
}

// Prepared heads one after the other, then a query in float and one of int8 in natural order, to work in.
int64_t prepared_bytes(const RowShape& shape, int heads) {
  return heads * query_stride(shape.dim) + int64_t{4} * shape.dim + padded(shape.dim);
}

// Values [padded], zeros past dim; returns the header.
AuraQuery quantise_query(const RowShape& shape, const float* turned, int8_t* values) {
  float largest = 0;
  for (int j = 0; j < shape.dim; ++j) largest = std::max(largest, std::abs(turned[j]));
  // A query of (nearly) nothing: all its scores are 0.
  const float inverse = largest < 1e-30F ? 0 : kLargestQuery / largest;
  AuraQuery query{};
  for (int j = 0; j < shape.dim; ++j) {
    values[j] = static_cast<int8_t>(std::lrint(turned[j] * inverse));
    query.sum += values[j];
  }
  std::fill(values + shape.dim, values + padded(shape.dim), int8_t{0});
  query.scale = largest / kLargestQuery * trellis_table(shape.bits).step;
  return query;
}

// One unit of 64 values: from the kernels' order of channels to the natural one, or back.
template <bool kToNatural>
void reorder_unit(const int* channels, float* values) {
  float copy[kAuraUnit];
  std::copy_n(values, kAuraUnit, copy);
  for (int i = 0; i < kAuraUnit; ++i) {
    if constexpr (kToNatural) {
      values[channels[i]] = copy[i];
    } else {
      values[i] = copy[channels[i]];
    }
  }
}

template <bool kToNatural>
void reorder(const RowShape& shape, int64_t count, float* rows) {
  if (shape.side == Side::kKey || !aura_interleaves(shape.dim)) return;
  int channels[kAuraUnit];
  for (int i = 0; i < kAuraUnit; ++i) channels[i] = aura_value_channel(shape.bits, shape.dim, i);
  for (int64_t i = 0; i < count * shape.dim; i += kAuraUnit) reorder_unit<kToNatural>(channels, rows + i);
}

// The verbs as plain functions of one instruction set.
template <Isa kIsa>
struct Verbs {
  static void encode(const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                     std::byte* scratch) {
    // Scratch has room for the exchange form: it is less than the rows in float.
    std::byte* exchange = scratch;
    std::byte* rest = scratch + kPageRows * (trellis_row_bytes(shape.bits, shape.dim) + 1);
    reference::aura_codec().encode(shape, rows, exchange, tail, rest);
    aura_import(shape, exchange, record);
  }

  static void decode(const RowShape& shape, const Record& record, float* rows) {
    expand(shape, record, rows);
    finish(shape, record.rows, rows);
  }

  static void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
    std::byte* work = prepared + heads * query_stride(shape.dim);
    auto* turned = reinterpret_cast<float*>(work);
    auto* values = reinterpret_cast<int8_t*>(work + int64_t{4} * shape.dim);
    for (int h = 0; h < heads; ++h, prepared += query_stride(shape.dim)) {
      rotate_rows(kIsa, shape, 1, queries + h * shape.dim, turned);
      const AuraQuery query = quantise_query(shape, turned, values);
      std::memcpy(prepared, &query, sizeof query);
      kernels_of(kIsa).order_query(shape, values, reinterpret_cast<int8_t*>(prepared + sizeof query));
    }
  }

  static void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                    float* scores) {
    kernels_of(kIsa).score(shape, prepared, heads, record, scores);
  }

  static void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record,
                         float* acc) {
    kernels_of(kIsa).accumulate(shape, weights, heads, record, acc);
  }

  static void finish(const RowShape& shape, int heads, float* acc) {
    reorder<true>(shape, heads, acc);
    rotate_rows_back(kIsa, shape, heads, acc);
  }

  static void turn(const RowShape& shape, int64_t count, float* rows) {
    rotate_rows(kIsa, shape, count, rows);
    reorder<false>(shape, count, rows);
  }

  static void expand(const RowShape& shape, const Record& record, float* rows) {
    kernels_of(kIsa).expand(shape, record, rows);
  }

  static constexpr RowCodec kCodec = {encode, decode, prepared_bytes, prepare,     score,      accumulate,
                                      finish, turn,   expand,         aura_export, aura_import};
};

}  // namespace

const RowCodec* aura_codec(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return &Verbs<Isa::kAvx512>::kCodec;
    case Isa::kAvx2:
      return &Verbs<Isa::kAvx2>::kCodec;
    default:
      return &Verbs<Isa::kPortable>::kCodec;
  }
}

}  // namespace butter::cpu
