// The axes of the matrix, generated from the tables of formats and instruction sets. Where the whole is not
// asked for (BUTTER_WHOLE_MATRIX), each axis keeps the values that differ in kind.
#pragma once

#include <string>
#include <vector>

#include "core/cpu_isa.h"
#include "kernels/window.h"
#include "support/sanitized.h"

namespace butter {

#ifdef BUTTER_WHOLE_MATRIX
constexpr bool kWholeMatrix = true;
#else
constexpr bool kWholeMatrix = false;
#endif

// Scheme strings: every lossy format, pairs of formats that share no code, and plain forms.
std::vector<std::string> matrix_schemes();

// One of each kind of kernel, for what does not depend on the number of bits.
std::vector<std::string> scheme_kinds();

std::vector<Window> matrix_windows();
// Fixtures of tests/data/fixtures.
std::vector<std::string> matrix_models();
// Tokens fed at once.
std::vector<size_t> matrix_chunks();

// A device and, on the CPU, its instruction set.
struct MatrixDevice {
  std::string name;
  Isa isa = Isa::kPortable;
  std::string label;  // in names of tests

  bool reference() const { return name == "reference"; }
};
// The reference and the CPU: the whole matrix with its best instruction set, or the one that BUTTER_ISA
// names; the subset with the best and AVX2.
const std::vector<MatrixDevice>& matrix_devices();

}  // namespace butter
