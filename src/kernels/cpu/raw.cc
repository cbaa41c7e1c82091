// Raw rows on the CPU: the choice of a codec by instruction set.
#include "kernels/cpu/formats.h"
#include "kernels/reference/formats.h"

namespace butter::cpu {

const RowCodec* raw_codec(Isa) { return &reference::raw_codec(); }

}  // namespace butter::cpu
