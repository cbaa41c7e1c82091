// The rotation of the aura formats on the CPU: kernels/rotation.h for many rows at once, in place or not.
//
// Each row is y = H·S·x (rotate_rows) or x = S·Hᵀ·y (rotate_rows_back) in float32, within 1e-6 of the row's
// norm per channel of what kernels/rotation.h gives (another order of the sums). A row's result does not
// depend on the rows beside it. Widths are those that rotation_takes() allows. Nothing is allocated but, at
// the first call with a width of 12, 20 or 28 times a power of two, tables for the rest of the process.
// Thread-safe.
#pragma once

#include <cstdint>

#include "core/cpu_isa.h"
#include "kernels/kv_layout.h"

namespace butter::cpu {

// rows [count][dim], in place: from the model's basis to the format's.
void rotate_rows(Isa isa, const RowShape& shape, int64_t count, float* rows);
// The same from one array to another.
void rotate_rows(Isa isa, const RowShape& shape, int64_t count, const float* from, float* to);
// rows [count][dim], in place: from the format's basis to the model's.
void rotate_rows_back(Isa isa, const RowShape& shape, int64_t count, float* rows);

}  // namespace butter::cpu
