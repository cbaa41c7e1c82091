// quantise_row: float32 rows as 8-bit codes with a scale for every 32 columns, as the coded weights' kernels
// read them (Int8Rows in linear_kernels.h).
//
// code = round(x · 127 / max|x|) of its group, half to even; scale = max|x| / 127. The error of a value is at
// most half a scale. A group that holds NaN or an infinity has scale NaN, which reaches every result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu_isa.h"

namespace butter::cpu {

// Row `index` of a block of `block` rows whose records begin at `records`.
struct Int8RowPlace {
  std::byte* records = nullptr;
  int64_t record_bytes = 0;
  int block = 1;
  int index = 0;
};

void quantise_row(Isa isa, const float* x, int64_t groups, const Int8RowPlace& place);

}  // namespace butter::cpu
