// Codebook: the table of a trellis code as a file of text, and how well it codes.
//
//   # 64 int8 levels in window order, then the float value of one step
//   -103  126  -26 ...
//   0.0199705197
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/status.h"
#include "kernels/trellis.h"

namespace butter {

using TrellisValues = std::array<float, kTrellisStates>;  // by window

TrellisValues values_of(const TrellisTable& table);
// The nearest table: the largest value becomes level 127.
TrellisTable quantised(const TrellisValues& values);

Result<TrellisTable> read_codebook(const std::string& path);
Status write_codebook(const TrellisTable& table, const std::string& path);

// A mean over rows, and its standard error.
struct MeanError {
  double mean = 0;
  double deviation = 0;
};

// The squared error of a value, over `rows` Gaussian rows turned onto the sphere of radius sqrt(dim).
MeanError measure(int bits, const TrellisValues& values, int dim, int rows, uint64_t seed);

}  // namespace butter
