// aura_encode: seals a page of the aura formats of 2, 3 and 4 bits on the CPU (kernels/trellis.h).
//
// It does what the reference codec's encode() does: turns the rows by H·S, searches each row's trellis path,
// packs its bits, and stores the unbiased scales as bytes. The record is in the exchange form: codes
// [64 rows][trellis_row_bytes()], scales [64].
//
// The path is searched with small integers for costs and a lap over the seam instead of a second pass, so
// codes differ from the reference's, and between instruction sets; the mean squared error of each is within
// 1 % of the reference's. A row's code depends on the row and its place in the page alone.
//
// Pure, allocates nothing: any thread. At the first call per number of bits a table is made.
#pragma once

#include <cstddef>

#include "core/cpu_isa.h"
#include "kernels/row_format.h"

namespace butter::cpu {

// Scratch that aura_encode() takes; within encode_scratch_bytes().
constexpr int64_t aura_encode_scratch_bytes(int dim) {
  return (int64_t{48} << 10) + int64_t{9} * kPageRows * dim;
}

// rows [64][dim], finite. tail: the exponent of the shape's side is set. scratch: aligned to 64.
void aura_encode(Isa isa, const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                 std::byte* scratch);

}  // namespace butter::cpu
