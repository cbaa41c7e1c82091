// Raw rows on the CPU: the choice of a codec by instruction set.
#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/formats.h"

namespace butter::cpu {

const RowCodec* raw_codec([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return &raw_codec_avx512();
  if (isa == Isa::kAvx2) return &raw_codec_avx2();
#endif
  return &raw_codec_portable();
}

}  // namespace butter::cpu
