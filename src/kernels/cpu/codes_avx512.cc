// Attention on codes that are whole numbers, compiled for AVX-512 VNNI: see codes_inl.h.
#if defined(__x86_64__)

#include "kernels/cpu/codes_dot_avx512_inl.h"
// Dot first: the file below is written in its terms.
#include "kernels/cpu/codes_inl.h"

namespace butter::cpu {

const CodeKernelTable& code_kernels_avx512() {
  return kCodeKernels;
}

}  // namespace butter::cpu

#endif
