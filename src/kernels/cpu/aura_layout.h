// The order of the bytes of an aura record (2, 3, 4 bits) on the CPU, for all instruction sets: the 64
// scales, then the codes. A page is read from end to end that way, which is what the memory's prefetcher is
// good at.
//
// Widths that are a multiple of 64: a unit is 64 channels of all rows, and units follow one another. Within a
// unit the bytes are interleaved so that a vector holds the same place of several rows:
//
//   keys            [8 blocks of 8 rows][bits][8 rows][8 bytes]     a lane of 8 bytes is one row
//   values, 2 bits  [16 quads][8 pieces][4 rows][2 bytes]           a lane of 8 bytes is one piece of 4 rows;
//   values, 4 bits  [16 quads][2 a][8 n][4 rows][2 bytes]           piece 2n + a
//   values, 3 bits  [8 pairs of quads][3 a][4 n][2 quads][4 rows][2 bytes]     piece 3n + a
//
// where a piece is 2 bytes of a row's codes (8, 4, 16/3 channels), and quad t is the rows t, t + 16, t + 32,
// t + 48: that is how four vectors of softmax weights pack into one. Rows of keys and the scales are in
// natural order. Codes of other widths keep the exchange form's order.
//
// Accumulators of values stand in the order in which the vectors give them, value_channel(); it is part of
// the CPU's basis, so turn() and finish() know it and nothing else does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"

namespace butter::cpu {

constexpr int kAuraUnit = 64;

inline const uint8_t* aura_scales(const std::byte* record) {
  return reinterpret_cast<const uint8_t*>(record);
}
inline const std::byte* aura_codes(const std::byte* record) {
  return record + kPageRows;
}

// Whether rows of a width are interleaved.
bool aura_interleaves(int dim);

// Where byte `byte` of the codes of a row stands among a record's codes.
int64_t aura_code_offset(const RowShape& shape, int row, int64_t byte);

// The channel (of a unit of 64) that place i (of the unit) of a value accumulator holds.
int aura_value_channel(int bits, int dim, int i);

// 64 channels of all rows, from `first` (a multiple of 64) on, row by row: the byte of codes before them,
// those bytes, and zeros. (What lies past a row's end is zeros too.)
constexpr int kAuraGatheredBytes = 40;
void aura_gather(const RowShape& shape, const std::byte* codes, int first,
                 uint8_t (*rows)[kAuraGatheredBytes]);

// The exchange form of a record to the CPU's order, and back.
void aura_import(const RowShape& shape, const std::byte* exchange, std::byte* record);
void aura_export(const RowShape& shape, const std::byte* record, std::byte* exchange);

}  // namespace butter::cpu
