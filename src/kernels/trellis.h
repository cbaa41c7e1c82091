// The trellis code of the aura formats with 2, 3 and 4 bits: what the bits of a coded row mean.
//
// A row of `dim` values is one circular stream of bits·dim bits; bit i stands in byte i/8 at place i%8. Value
// j adds the bits [bits·j, bits·(j+1)) and is read through a window of the 6 newest bits:
//
//   window j = stream bits [bits·(j+1) - 6, bits·(j+1)), modulo bits·dim; the oldest bit is the lowest
//   value j  = step · levels[window j]                    (the row's scale comes on top)
//
// So any value can be read without its neighbours, and a chain of values is a path through 64 states whose
// ends meet ("tail-biting"). The tables were found by tools/trellis_search for Gaussian values of variance 1.
//
// Pure functions: any thread. `bits` is 2, 3 or 4, `dim` at least 8.
#pragma once

#include <array>
#include <cstdint>

namespace butter {

constexpr int kTrellisWindowBits = 6;
constexpr int kTrellisStates = 1 << kTrellisWindowBits;

struct TrellisTable {
  std::array<int8_t, kTrellisStates> levels;  // by window
  float step;                                 // the value of one level
};

const TrellisTable& trellis_table(int bits);

// Bytes of one coded row.
inline int64_t trellis_row_bytes(int bits, int dim) {
  return (int64_t{bits} * dim + 7) / 8;
}

// Walks the values of a row in order. A view: the row outlives it.
class TrellisReader {
 public:
  TrellisReader(int bits, const uint8_t* row_bits, int dim);
  // The window of the next value. There are dim of them.
  int next();

 private:
  const int bits_;
  const uint8_t* const row_bits_;
  int first_bit_ = 0;  // of the next value
  int window_ = 0;
};

// The levels [dim] of a row, in units of the table's step.
void decode_levels(int bits, const uint8_t* row_bits, int dim, int8_t* levels);

// Writes the row whose value j adds the bits symbols[j] < 2^bits: trellis_row_bytes() bytes.
void pack_symbols(int bits, const uint8_t* symbols, int dim, uint8_t* row_bits);

}  // namespace butter
