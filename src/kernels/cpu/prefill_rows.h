// Where decode ends: one number for attention and linear ops.
#pragma once

namespace butter::cpu {

// From this many rows on, work runs on the prefill kernels; fewer rows are bound by the memory that they
// read.
constexpr int kPrefillRows = 16;

}  // namespace butter::cpu
