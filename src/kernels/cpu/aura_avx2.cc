#if defined(__x86_64__)
#include "kernels/cpu/aura_portable_inl.h"

namespace butter::cpu {
namespace {

constexpr AuraKernels kKernels = {plain::order_query, plain::score, plain::accumulate, plain::expand};

}  // namespace

const AuraKernels& aura_kernels_avx2() {
  return kKernels;
}

}  // namespace butter::cpu
#endif
