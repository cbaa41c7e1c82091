// The kernels of the formats whose codes are whole numbers (affine, and aura with 8 bits), one table for each
// instruction set. Records have the order of bytes of codes_layout.h; widths are those that it takes.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function: the
// linker might keep the copy that an older CPU cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"

namespace butter::cpu {

// Verbs as those of RowCodec, for shape.bits and shape.group. Queries and accumulators have the basis of the
// codes: turning is the caller's.
struct CodeKernels {
  int64_t (*prepared_bytes)(const RowShape& shape, int heads);
  void (*prepare)(const RowShape& shape, const float* queries, int heads, std::byte* prepared);
  void (*score)(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                float* scores);
  void (*accumulate)(const RowShape& shape, const float* weights, int heads, const Record& record,
                     float* acc);
  void (*expand)(const RowShape& shape, const Record& record, float* rows);
  // rows [64][dim] to codes [64][dim], one in a byte. Of affine: also the planes of s and m, as a record
  // holds them. Of 8-bit integers: with the scales [64] given.
  void (*encode_affine)(const RowShape& shape, const float* rows, uint8_t* codes, std::byte* planes);
  void (*encode_integers)(int dim, const float* rows, const float* scales, uint8_t* codes);
  // largest [64] = the largest magnitude of each of 64 rows.
  void (*find_largest)(int dim, const float* rows, float* largest);
};

struct CodeKernelTable {
  CodeKernels affine;
  CodeKernels integers;  // of 8 bits with a scale byte: aura's
};

// The table of an instruction set.
const CodeKernelTable& code_kernels(Isa isa);

const CodeKernelTable& code_kernels_portable();
#if defined(__x86_64__)
const CodeKernelTable& code_kernels_avx2();
const CodeKernelTable& code_kernels_avx512();
#endif

}  // namespace butter::cpu
