// Attention on codes that are whole numbers, for any CPU: see codes_inl.h.
#include "kernels/cpu/codes_dot_portable_inl.h"
// Dot first: the file below is written in its terms.
#include "kernels/cpu/codes_inl.h"

namespace butter::cpu {

const CodeKernelTable& code_kernels_portable() {
  return kCodeKernels;
}

}  // namespace butter::cpu
