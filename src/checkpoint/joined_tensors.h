// Weights that a file stores as several tensors, made one: what is above sees their logical shape.
//
//   MLX              X.weight: U32 words [..., out, in · bits / 32]
//                    X.scales, X.biases: F16, BF16 or F32 [..., out, in / group], or
//                    X.scales: U8 exponents alone                      -> X.weight [..., out, in]
//   published MXFP4  X_blocks: U8 [..., out, in / 32, 16]
//                    X_scales: U8 exponents [..., out, in / 32]        -> X [..., out, in]
//
// Leading dimensions are experts. config.json says which modules MLX quantised, and how (mlx_config.h); it is
// held against the shapes. A weight whose parts do not fit is listed as unreadable, with the reason, and
// refused when it is asked for.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/attributes.h"
#include "checkpoint/tensor_table.h"
#include "core/status.h"

namespace butter {

// `table` with its parts joined. Notes are what is odd and harmless, a sentence each.
Result<TensorTable> join_tensors(const Attributes& config, const TensorTable& table,
                                 std::vector<std::string>& notes);

}  // namespace butter
