// rotated: a row format that exists for tests only, and proves that attention works in a basis of the
// format's own.
//
// A row x is stored as y = H·S·x in float32: S random signs, H an orthonormal Hadamard matrix. Nothing is
// lost, so whatever holds for raw rows holds for rotated ones within rounding: through sealing, windows,
// fork, truncate and merge. One codec, in plain scalar text, serves the reference and every instruction set.
#pragma once

#include "kernels/row_format.h"

namespace butter {

// Also in the table of formats, as "rotated", from the first call on.
const RowFormat& rotated_format();

}  // namespace butter
