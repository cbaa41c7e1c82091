// Aura records for any CPU: see aura_portable_inl.h.
#include "kernels/cpu/aura_portable_inl.h"

namespace butter::cpu {
namespace {

constexpr AuraKernels kKernels = {plain::order_query, plain::score, plain::accumulate, plain::expand};

}  // namespace

const AuraKernels& aura_kernels_portable() {
  return kKernels;
}

}  // namespace butter::cpu
