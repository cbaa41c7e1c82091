// Attention on the CPU.
#include "kernels/attention.h"

namespace butter::cpu {

int64_t attend_scratch_bytes(const AttendLimits&) { return 0; }

void attend(const AttendBatch& batch, Isa, std::byte*, const Worker& worker) {
  if (worker.index() == 0) reference::attend(batch);
  worker.barrier();
}

}  // namespace butter::cpu
