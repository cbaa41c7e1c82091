// Aura rows of 2, 3 and 4 bits on the CPU: the verbs around the kernels of aura_kernels.h. (Those of 8 bits:
// aura_int8.h.)
//
// Queries are turned into the format's basis and made int8 there, by the largest of each head: the rotation
// spreads a query over its channels, so that the step is some 1/40 of the channels' deviation. What is added
// up stands in the kernels' order of channels and is put in order by finish().
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/aura_kernels.h"
#include "kernels/cpu/aura_layout.h"
#include "kernels/cpu/aura_seal.h"
#include "kernels/cpu/formats.h"
#include "kernels/cpu/rotate.h"
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

// Prepared heads one after the other, then the queries in float and one of int8 in natural order, to work in.
int64_t prepared_bytes(const RowShape& shape, int heads) {
  return heads * (query_stride(shape.dim) + int64_t{4} * shape.dim) + padded(shape.dim);
}

// The largest size; NaN where a value is NaN or infinite.
float largest_of(const float* values, int count) {
  float largest[4] = {}, poison[4] = {};  // x − x: 0, or NaN
  for (int j = 0; j < count; j += 4) {    // widths are multiples of 8
    for (int i = 0; i < 4; ++i) {
      const float size = std::abs(values[j + i]);
      largest[i] = largest[i] < size ? size : largest[i];
      poison[i] += size - size;
    }
  }
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3])) +
         ((poison[0] + poison[1]) + (poison[2] + poison[3]));
}

// The nearest whole number, halves to even, of a small one: what is added leaves no bits for a fraction.
int32_t nearest(float x) {
  constexpr float kWhole = 0x1.8p23F;
  return std::bit_cast<int32_t>(x + kWhole) - std::bit_cast<int32_t>(kWhole);
}

// What makes every score NaN.
AuraQuery no_query(const RowShape& shape, int8_t* values) {
  std::fill_n(values, padded(shape.dim), int8_t{0});
  AuraQuery query{};
  query.scale = NAN;
  return query;
}

// Values [padded], zeros past dim; returns the header.
AuraQuery quantise_query(const RowShape& shape, const float* turned, int8_t* values) {
  const float largest = largest_of(turned, shape.dim);
  if (std::isnan(largest)) return no_query(shape, values);
  // A query of (nearly) nothing: all its scores are 0.
  const float inverse = largest < 1e-30F ? 0 : kLargestQuery / largest;
  AuraQuery query{};
  int32_t sum = 0;
  for (int j = 0; j < shape.dim; ++j) {
    const int32_t value = nearest(turned[j] * inverse);
    values[j] = static_cast<int8_t>(value);
    sum += value;
  }
  std::fill(values + shape.dim, values + padded(shape.dim), int8_t{0});
  query.sum = sum;
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
    aura_encode(kIsa, shape, rows, record, tail, scratch);
    const int64_t bytes = kPageRows * (trellis_row_bytes(shape.bits, shape.dim) + 1);
    std::memcpy(scratch, record, static_cast<size_t>(bytes));
    aura_import(shape, scratch, record);
  }

  static void decode(const RowShape& shape, const Record& record, float* rows) {
    expand(shape, record, rows);
    finish(shape, record.rows, rows);
  }

  static void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
    auto* turned = reinterpret_cast<float*>(prepared + heads * query_stride(shape.dim));
    auto* values = reinterpret_cast<int8_t*>(turned + int64_t{heads} * shape.dim);
    rotate_rows(kIsa, shape, heads, queries, turned);
    for (int h = 0; h < heads; ++h, prepared += query_stride(shape.dim), turned += shape.dim) {
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
