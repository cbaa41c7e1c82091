// dequantise_row: the values that the bytes of one tensor row stand for, in plain scalar text.
//
// This is the specification of the block layouts (those of the GGUF file format) and of MLX's codes: kernels
// and weight repackers are compared with it, bit for bit where they keep float32. It is not meant to be fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/tensor_view.h"

namespace butter {

// Writes `elements` floats to `out` from the row that starts at `row`, which may be unaligned.
// `elements` is a whole number of blocks; `dtype` is F32, F16, BF16 or a quantised type.
void dequantise_row(DType dtype, const std::byte* row, int64_t elements, float* out);

// Row `row` of a tensor of any such type, MLX too; `out` has room for its columns.
void dequantise_row(const TensorView& tensor, int64_t row, float* out);

}  // namespace butter
