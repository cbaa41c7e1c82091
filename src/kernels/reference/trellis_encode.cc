#include "kernels/reference/trellis_encode.h"

#include <array>
#include <limits>

#include "core/check.h"
#include "kernels/trellis.h"

namespace butter::reference {
namespace {

constexpr int kAnySeam = -1;
constexpr float kNever = std::numeric_limits<float>::infinity();

using Costs = std::array<float, kTrellisStates>;  // by window, or by what two windows share

// A window and the one before it share 6 - bits bits: the low ones of the later are the high ones of the
// earlier.
struct Trellis {
  int bits;
  const float* values;
  int dim;
  std::byte* dropped;  // [dim][shared]: the bits that the best window before has and the later one has not

  int shared() const { return kTrellisStates >> bits; }
  std::byte& dropped_at(int j, int overlap) const { return dropped[j * shared() + overlap]; }
};

// For each overlap the cheapest window that leaves it; remembers which.
Costs best_before(const Trellis& trellis, int j, const Costs& costs) {
  Costs best{};
  for (int overlap = 0; overlap < trellis.shared(); ++overlap) {
    float cheapest = kNever;
    int choice = 0;
    for (int low = 0; low < 1 << trellis.bits; ++low) {
      const float cost = costs[static_cast<size_t>(overlap << trellis.bits | low)];
      if (!(cost < cheapest)) continue;
      cheapest = cost;
      choice = low;
    }
    best[static_cast<size_t>(overlap)] = cheapest;
    trellis.dropped_at(j, overlap) = static_cast<std::byte>(choice);
  }
  return best;
}

// By overlap, what comes before the row: nothing, or what its own last window leaves.
Costs before_first(int seam) {
  Costs best{};
  if (seam == kAnySeam) return best;
  best.fill(kNever);
  best[static_cast<size_t>(seam)] = 0;
  return best;
}

// The costs of every window at the last value, having walked the row turned by `turn` values.
Costs walk(const Trellis& trellis, const float* row, int turn, int seam) {
  Costs costs{};
  for (int j = 0; j < trellis.dim; ++j) {
    const Costs best = j > 0 ? best_before(trellis, j, costs) : before_first(seam);
    const float x = row[(j + turn) % trellis.dim];
    for (int first = 0; first < kTrellisStates; first += trellis.shared()) {
      for (int overlap = 0; overlap < trellis.shared(); ++overlap) {
        const float error = x - trellis.values[first + overlap];
        costs[static_cast<size_t>(first + overlap)] = best[static_cast<size_t>(overlap)] + error * error;
      }
    }
  }
  return costs;
}

int cheapest_end(const Trellis& trellis, const Costs& costs, int seam) {
  int choice = -1;
  for (int window = 0; window < kTrellisStates; ++window) {
    if (seam != kAnySeam && window >> trellis.bits != seam) continue;
    if (choice < 0 || costs[static_cast<size_t>(window)] < costs[static_cast<size_t>(choice)]) {
      choice = window;
    }
  }
  return choice;
}

// The window one value earlier on the path that ends in `window` at value j.
int window_before(const Trellis& trellis, int j, int window) {
  const int overlap = window % trellis.shared();
  return overlap << trellis.bits | static_cast<int>(trellis.dropped_at(j, overlap));
}

// What the last window of the row leaves to its first, by a free walk that has the seam in its middle.
int find_seam(const Trellis& trellis, const float* row) {
  const int turn = trellis.dim / 2;
  int window = cheapest_end(trellis, walk(trellis, row, turn, kAnySeam), kAnySeam);
  const int last = trellis.dim - 1 - turn;  // where the row's last value stands
  for (int j = trellis.dim - 1; j > last; --j) window = window_before(trellis, j, window);
  return window >> trellis.bits;
}

}  // namespace

int64_t trellis_scratch_bytes(int bits, int dim) {
  return int64_t{dim} * (kTrellisStates >> bits);
}

float trellis_encode(int bits, const float* values, const float* row, int dim, uint8_t* symbols,
                     std::byte* scratch) {
  BUTTER_CHECK(bits >= 2 && bits <= 4 && dim >= kTrellisWindowBits);
  const Trellis trellis = {bits, values, dim, scratch};
  const int seam = find_seam(trellis, row);
  const Costs costs = walk(trellis, row, 0, seam);
  int window = cheapest_end(trellis, costs, seam);
  const float error = costs[static_cast<size_t>(window)];
  for (int j = dim - 1; j >= 0; --j) {
    symbols[j] = static_cast<uint8_t>(window / trellis.shared());
    if (j > 0) window = window_before(trellis, j, window);
  }
  return error;
}

}  // namespace butter::reference
