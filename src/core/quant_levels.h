// The values that the 4-bit codes of the types with level tables stand for. Data only: the kernels' files,
// each compiled for one instruction set, read it too.
#pragma once

#include <cstdint>

namespace butter {

// IQ4_NL and IQ4_XS: close where weights are many, far apart at the ends.
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// MXFP4: twice the E2M1 numbers of the OCP Microscaling Formats specification, so that all are whole; code 8
// is minus zero there, which a whole number has not got.
inline constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace butter
