// The CPU codecs, one file a format, chosen by instruction set at run time.
#pragma once

#include "kernels/row_format.h"

namespace butter::cpu {

const RowCodec* raw_codec(Isa isa);

}  // namespace butter::cpu
