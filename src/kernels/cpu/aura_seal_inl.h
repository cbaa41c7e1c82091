// The trellis search with int16 costs, for aura_seal_{portable,avx2}.cc.
//
// A vector holds costs of one row, in the order [h][q] (see aura_seal_kernels.h). A step adds a line of the
// table to the costs so far of the states that each window follows, and takes the minimum over h. Costs are
// multiples of 2^bits, and the table's also hold their h: so the minimum carries the choice in its low bits,
// which is what the way back reads, one 16-bit load a value. About 15 to 25 instructions a step; a few rows
// go together, since a step waits for the one before it.
//
// Costs are brought down by those of state 0 every few steps. Any state is two values away from any other, so
// within int16 there is room for normalise + 2 steps of the largest cost either way.
//
// The instruction set's own are kRows, the rows that go together, and
//   Trellis<bits>     State, the costs of each q: load() and store() as [q], step() of one value, clear(),
//                     which takes h away, normalised()
//   multiply_group()  adds <y, levels> and <levels, levels> of 16 values to those of their row
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/aura_seal_kernels.h"

namespace butter::cpu {
namespace {

constexpr int16_t kNever = 16000;

// Finer costs would err less on most rows, and much more on the few whose costs then meet their limit.
constexpr SealMetric kMetrics[] = {  // cells, range, scale, knee, warm_up, lap, normalise
    {512, 4, 96, 256, 28, 28, 4},
    {512, 4, 192, 128, 24, 24, 4},
    {512, 4, 400, 80, 16, 16, 2}};

template <int bits>
struct Walk {
  static constexpr int kShared = kTrellisStates >> bits;
  static constexpr int kChoice = (1 << bits) - 1;
  using State = typename Trellis<bits>::State;

  const int16_t* costs;
  const SealRows& rows;
  int normalise;
  int16_t* kept;  // [dim][kRows][kShared], of values from the first after the warm-up

  // Values first to end of all rows.
  template <bool kKeep>
  void forward(int first, int end, State* state) const {
    for (int j = first; j < end; ++j) {
      for (int r = 0; r < kRows; ++r) {
        const int16_t* line = costs + rows.cells[r * rows.dim + j];
        const State best = Trellis<bits>::step(state[r], line);
        if constexpr (kKeep) Trellis<bits>::store(kept + (j * kRows + r) * kShared, best);
        state[r] = Trellis<bits>::clear(best);
      }
      if ((j - first) % normalise == normalise - 1) {
        for (int r = 0; r < kRows; ++r) state[r] = Trellis<bits>::normalised(state[r]);
      }
    }
  }

  // The window of value j on the way that leaves q to the next.
  int window(int j, int r, int q) const {
    return (q << bits) | (kept[(j * kRows + r) * kShared + q] & kChoice);
  }
};

template <int bits>
int cheapest(const typename Trellis<bits>::State& state) {
  constexpr int kShared = kTrellisStates >> bits;
  int16_t costs[kShared];
  Trellis<bits>::store(costs, state);
  int best = 0;
  for (int q = 1; q < kShared; ++q) {
    if (costs[q] < costs[best]) best = q;
  }
  return best;
}

// What value dim - 1 of each row leaves to value 0.
template <int bits>
void find_seams(const Walk<bits>& walk, const SealMetric& metric, int* seams) {
  const int dim = walk.rows.dim;
  const int warm_up = metric.warm_up < dim ? metric.warm_up : dim, lap = metric.lap < dim ? metric.lap : dim;
  typename Trellis<bits>::State state[kRows] = {};
  walk.template forward<false>(dim - warm_up, dim, state);
  walk.template forward<true>(0, lap, state);
  for (int r = 0; r < kRows; ++r) seams[r] = cheapest<bits>(state[r]);
  for (int j = lap - 1; j >= 0; --j) {
    for (int r = 0; r < kRows; ++r) seams[r] = walk.window(j, r, seams[r]) & (Walk<bits>::kShared - 1);
  }
}

constexpr int kGroup = 16;  // values of a row that are packed and multiplied together

// The bits that 8 windows, in the bytes of a word, add to the code: 8 · bits of them.
template <int bits>
uint64_t added_bits(uint64_t windows) {
  constexpr uint64_t kOnes = (1 << bits) - 1;
  uint64_t x = windows >> (kTrellisWindowBits - bits) & kOnes * 0x0101010101010101;
  x = (x | x >> (8 - bits)) & ((1 << 2 * bits) - 1) * uint64_t{0x0001000100010001};
  x = (x | x >> (16 - 2 * bits)) & ((1 << 4 * bits) - 1) * uint64_t{0x0000000100000001};
  return (x | x >> (32 - 4 * bits)) & ((uint64_t{1} << 8 * bits) - 1);
}

template <int bits>
void write_group(const uint8_t* windows, int count, uint8_t* codes) {
  uint64_t halves[2];
  std::memcpy(halves, windows, sizeof halves);
  const uint64_t word = added_bits<bits>(halves[0]) | added_bits<bits>(halves[1]) << 8 * bits;
  const int bytes = (bits * count + 7) / 8;
  if (count == kGroup) {
    std::memcpy(codes, &word, 2 * bits);
  } else {
    std::memcpy(codes, &word, static_cast<size_t>(bytes));
  }
}

// Adds the products of `count` values, up to a group, to those of their row.
void multiply_some(const int8_t* levels, const uint8_t* windows, int count, const float* y, SealedRow& row) {
  if (count == kGroup) return multiply_group(levels, windows, y, row);
  for (int i = 0; i < count; ++i) {
    const float level = levels[windows[i]];
    row.product += y[i] * level;
    row.square += level * level;
  }
}

// Reads the paths from their ends, which are the seams: codes, and the products of levels.
template <int bits>
void trace_back(const Walk<bits>& walk, const int8_t* levels, const int* seams, uint8_t* codes,
                SealedRow* sealed) {
  const int dim = walk.rows.dim;
  const int64_t row_bytes = (bits * dim + 7) / 8;
  int q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = seams[r];
    sealed[r] = {};
  }
  for (int first = (dim - 1) / kGroup * kGroup; first >= 0; first -= kGroup) {
    const int count = dim - first < kGroup ? dim - first : kGroup;
    alignas(32) uint8_t windows[kRows][kGroup] = {};
    for (int i = count - 1; i >= 0; --i) {
      for (int r = 0; r < kRows; ++r) {
        const int window = walk.window(first + i, r, q[r]);
        q[r] = window & (Walk<bits>::kShared - 1);
        windows[r][i] = static_cast<uint8_t>(window);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      write_group<bits>(windows[r], count, codes + r * row_bytes + bits * first / 8);
      multiply_some(levels, windows[r], count, walk.rows.turned + r * dim + first, sealed[r]);
    }
  }
}

template <int bits>
void seal_rows(const SealMetric& metric, const int8_t* levels, const void* costs, const SealRows& rows,
               std::byte* scratch, uint8_t* codes, SealedRow* sealed) {
  const Walk<bits> walk = {static_cast<const int16_t*>(costs), rows, metric.normalise,
                           reinterpret_cast<int16_t*>(scratch)};
  int seams[kRows];
  find_seams<bits>(walk, metric, seams);
  typename Trellis<bits>::State state[kRows];
  for (int r = 0; r < kRows; ++r) {
    int16_t start[Walk<bits>::kShared];
    for (int16_t& cost : start) cost = kNever;
    start[seams[r]] = 0;
    state[r] = Trellis<bits>::load(start);
  }
  walk.template forward<true>(0, rows.dim, state);
  trace_back<bits>(walk, levels, seams, codes, sealed);
}

void seal(const SealMetric& metric, const int8_t* levels, int bits, const void* costs, const SealRows& rows,
          std::byte* scratch, uint8_t* codes, SealedRow* sealed) {
  if (bits == 2) return seal_rows<2>(metric, levels, costs, rows, scratch, codes, sealed);
  if (bits == 3) return seal_rows<3>(metric, levels, costs, rows, scratch, codes, sealed);
  seal_rows<4>(metric, levels, costs, rows, scratch, codes, sealed);
}

int64_t scratch_bytes(int bits, int dim) {
  return int64_t{2} * kRows * dim * (kTrellisStates >> bits);
}

float square_sum(const float* values, int dim) {
  float sums[16] = {};
  int j = 0;
  for (; j + 16 <= dim; j += 16) {
    for (int i = 0; i < 16; ++i) sums[i] += values[j + i] * values[j + i];
  }
  for (; j < dim; ++j) sums[j % 16] += values[j] * values[j];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

void to_cells(const float* y, int dim, float factor, int cells, uint16_t* out) {
  const float middle = 0.5f * static_cast<float>(cells), last = static_cast<float>(cells - 1);
  for (int j = 0; j < dim; ++j) {
    float cell = y[j] * factor + middle;
    cell = cell > 0 ? cell : 0;
    cell = cell < last ? cell : last;
    out[j] = static_cast<uint16_t>(static_cast<int>(cell) * kTrellisStates);
  }
}

}  // namespace
}  // namespace butter::cpu
