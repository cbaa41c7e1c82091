// quantise_row: float32 rows as 8-bit codes with a scale for every 32 columns, as the coded weights' kernels
// read them (Int8Rows in linear_kernels.h).
//
// A row becomes two rows of codes. The first: code = round(x · 127 / max|x|) of its group, half to even, with
// scale = max|x| / 127. The second is the same of what the first leaves over, so that their sum is off by at
// most max|x| / (127 · 508): 8 bits alone cost a KLD of 4e-3 on the default model, both together none that
// can be measured (docs/quality.md). A group that holds NaN or an infinity has scale NaN, which reaches every
// result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu_isa.h"

namespace butter::cpu {

// Code rows `index` and `index` + 1 of a block of `block` code rows whose records begin at `records`.
struct Int8RowPlace {
  std::byte* records = nullptr;
  int64_t record_bytes = 0;
  int block = 1;
  int index = 0;
};

void quantise_row(Isa isa, const float* x, int64_t groups, const Int8RowPlace& place);

}  // namespace butter::cpu
