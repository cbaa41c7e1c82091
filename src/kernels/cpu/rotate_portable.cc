// The rotation, for any CPU: see rotate_inl.h.
#include "kernels/cpu/attend_vec_portable_inl.h"

namespace butter::cpu {
namespace {

struct Lanes {
  // One step of a Hadamard transform along the lanes: lane i becomes x[i] + x[i + k], or x[i - k] - x[i].
  template <int k>
  static Vec::F mix(Vec::F x) {
    if constexpr (k == 2) return Vec::F{x[2], x[3], x[0], x[1]} + x * Vec::F{1, 1, -1, -1};
    return Vec::F{x[1], x[0], x[3], x[2]} + x * Vec::F{1, -1, 1, -1};
  }

  // No block is smaller than a vector.
  template <int size>
  static Vec::F repeat(const float* block) {
    return Vec::load(block);
  }
};

}  // namespace
}  // namespace butter::cpu

// Vec and Lanes first: the file below is written in their terms.
#include "kernels/cpu/rotate_inl.h"

namespace butter::cpu {

const RotateKernel kRotatePortable = {Vec::kLanes, rotate};

}  // namespace butter::cpu
