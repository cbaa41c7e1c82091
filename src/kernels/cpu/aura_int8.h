// aura with 8 bits: rotated rows as whole numbers with one scale byte a row. The aura codec's verbs for
// bits == 8 (cpu/aura.cc), for every instruction set.
#pragma once

#include "kernels/row_format.h"

namespace butter::cpu {

// All verbs, export and import too, for shapes of 8 bits.
const RowCodec& aura_int8_codec(Isa isa);

}  // namespace butter::cpu
