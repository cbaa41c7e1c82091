// Attention and raw rows, compiled for AVX2, FMA and F16C: see attend_inl.h and raw_inl.h.
#if defined(__x86_64__)

#include "kernels/cpu/attend_vec_avx2_inl.h"
// Vec first: the files below are written in its terms.
#include "kernels/cpu/attend_inl.h"
#include "kernels/cpu/raw_inl.h"

namespace butter::cpu {

const AttendKernels& attend_kernels_avx2() {
  return kFloatKernels;
}
const RowCodec& raw_codec_avx2() {
  return kRawCodec;
}

}  // namespace butter::cpu

#endif
