// The CPU codecs, one file a format, chosen by instruction set at run time.
#pragma once

#include "kernels/row_format.h"

namespace butter::cpu {

const RowCodec* raw_codec(Isa isa);
const RowCodec* affine_codec(Isa isa);  // bits 4, 6, 8; any group
const RowCodec* aura_codec(Isa isa);    // bits 2, 3, 4

}  // namespace butter::cpu
