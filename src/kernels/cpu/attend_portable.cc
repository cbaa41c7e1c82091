// Attention and raw rows, for any CPU: see attend_inl.h and raw_inl.h.
#include "kernels/cpu/attend_vec_portable_inl.h"
// Vec first: the files below are written in its terms.
#include "kernels/cpu/attend_inl.h"
#include "kernels/cpu/raw_inl.h"

namespace butter::cpu {

const AttendKernels& attend_kernels_portable() {
  return kFloatKernels;
}
const RowCodec& raw_codec_portable() {
  return kRawCodec;
}

}  // namespace butter::cpu
