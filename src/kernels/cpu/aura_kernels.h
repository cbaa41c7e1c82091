// The kernels behind cpu/aura.cc, one table for each instruction set: reading aura records of 2, 3 and 4 bits
// in the order of aura_layout.h.
//
// Products of codes are exact integers: queries are int8 by the largest of a head, softmax weights (times the
// row's scale) are u8 by the largest of a head and page, levels are int8 by definition. So all instruction
// sets give the same scores and sums but for the order of the last few float operations.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"

namespace butter::cpu {

// One prepared query head: a header, then int8 values in the order of the kernels, zeros up to the next
// multiple of 64 channels.
struct AuraQuery {
  float scale;       // what 1 is worth, the table's step included: scores are scale · 2^u · n · (sum of
                     // products)
  int32_t sum;       // of the values
  int8_t spare[56];  // to a whole line
};

struct AuraKernels {
  // Query values in natural order, [dim rounded up to 64], to the kernels' order.
  void (*order_query)(const RowShape& shape, const int8_t* natural, int8_t* ordered);
  // As in RowCodec, for shape.bits 2, 3, 4. Accumulators and expanded values in aura_value_channel's order,
  // expanded keys in natural order of the rotated basis.
  void (*score)(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                float* scores);
  void (*accumulate)(const RowShape& shape, const float* weights, int heads, const Record& record,
                     float* acc);
  void (*expand)(const RowShape& shape, const Record& record, float* rows);
};

// Whether this is compiled for a sanitizer: then few sizes of a group of heads are made, since each is an
// instance of the kernels, and instrumented ones take minutes to compile. Larger groups are taken in parts.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAuraSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kAuraSanitized = true;
#else
constexpr bool kAuraSanitized = false;
#endif
#else
constexpr bool kAuraSanitized = false;
#endif

const AuraKernels& aura_kernels_portable();
#if defined(__x86_64__)
const AuraKernels& aura_kernels_avx2();
const AuraKernels& aura_kernels_avx512();
#endif

}  // namespace butter::cpu
