// The encoder of the trellis code (kernels/trellis.h) in plain float32: the specification of every fast one.
//
// It looks for the circular path of windows whose values are nearest to a row, by Viterbi's algorithm in two
// passes: one over the row turned by half, whose ends are free, tells the state at the row's own seam; the
// second is bound to it at both ends. Fast forms may choose other paths, within 1 % of the error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace butter::reference {

// Scratch that encoding a row takes.
int64_t trellis_scratch_bytes(int bits, int dim);

// symbols [dim]: the bits that each value adds, for pack_symbols(). values [64]: by window. Of equal paths
// the one with the smaller window wins. row [dim]: finite. Returns the squared error. Pure: any thread.
float trellis_encode(int bits, const float* values, const float* row, int dim, uint8_t* symbols,
                     std::byte* scratch);

}  // namespace butter::reference
