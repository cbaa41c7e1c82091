// Prefill attention on AMX tiles: bf16 products, float32 sums and softmax.
#if defined(__x86_64__)

#include "kernels/cpu/attend_vec_avx512_inl.h"
// Vec first: the file below is written in its terms.
#include "kernels/cpu/attend_inl.h"

namespace butter::cpu {

const AttendKernels& attend_kernels_amx() {
  return kFloatKernels;
}

}  // namespace butter::cpu

#endif
