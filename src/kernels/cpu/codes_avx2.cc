// Attention on codes that are whole numbers, compiled for AVX2: see codes_inl.h.
#if defined(__x86_64__)

#include "kernels/cpu/codes_dot_avx2_inl.h"
// Dot first: the file below is written in its terms.
#include "kernels/cpu/codes_inl.h"

namespace butter::cpu {

const CodeKernelTable& code_kernels_avx2() {
  return kCodeKernels;
}

}  // namespace butter::cpu

#endif
