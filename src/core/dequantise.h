// dequantise_row: the values that the bytes of one tensor row stand for, in plain scalar text.
//
// This is the specification of the block layouts (those of the GGUF file format): kernels and weight
// repackers are compared with it, bit for bit where they keep float32. It is not meant to be fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace butter {

// Writes `elements` floats to `out` from the row that starts at `row`, which may be unaligned.
// `elements` is a whole number of blocks; `dtype` is F32, F16, BF16 or a quantised type.
void dequantise_row(DType dtype, const std::byte* row, int64_t elements, float* out);

}  // namespace butter
