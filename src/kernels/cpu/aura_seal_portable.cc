// The trellis search, for any CPU: see aura_seal_inl.h. Vectors are the compiler's own, of 8 costs.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/aura_seal_kernels.h"

namespace butter::cpu {
namespace {

constexpr int kRows = 4;

typedef int16_t V __attribute__((vector_size(16)));

V load_vector(const int16_t* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
V least(V a, V b) {
  return a < b ? a : b;
}
V repeat(int value) {
  return V{} + static_cast<int16_t>(value);
}

template <int bits>
struct Trellis;

// A vector is half of the 16 q of one h; the state is two of them.
template <>
struct Trellis<2> {
  struct State {
    V low = {}, high = {};
  };
  static State load(const int16_t* from) { return {load_vector(from), load_vector(from + 8)}; }
  static void store(int16_t* to, const State& state) {
    std::memcpy(to, &state.low, sizeof(V));
    std::memcpy(to + 8, &state.high, sizeof(V));
  }
  static State clear(const State& state) { return {state.low & ~V(repeat(3)), state.high & ~V(repeat(3))}; }
  static State normalised(const State& state) {
    const V first = repeat(state.low[0]);
    return {state.low - first, state.high - first};
  }
  static State step(const State& state, const int16_t* line) {
    // Window [h][q] follows state 4·(q mod 4) + h.
    const V a = __builtin_shufflevector(state.low, state.high, 0, 8, 1, 9, 2, 10, 3, 11);
    const V b = __builtin_shufflevector(state.low, state.high, 4, 12, 5, 13, 6, 14, 7, 15);
    const V c = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);  // 0 4 8 12, 1 5 9 13
    const V d = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    const V before[4] = {__builtin_shufflevector(c, c, 0, 1, 2, 3, 0, 1, 2, 3),
                         __builtin_shufflevector(c, c, 4, 5, 6, 7, 4, 5, 6, 7),
                         __builtin_shufflevector(d, d, 0, 1, 2, 3, 0, 1, 2, 3),
                         __builtin_shufflevector(d, d, 4, 5, 6, 7, 4, 5, 6, 7)};
    State best = {before[0] + load_vector(line), before[0] + load_vector(line + 8)};
    for (int h = 1; h < 4; ++h) {
      best.low = least(best.low, before[h] + load_vector(line + 16 * h));
      best.high = least(best.high, before[h] + load_vector(line + 16 * h + 8));
    }
    return best;
  }
};

// A vector is the 8 q of one h.
template <>
struct Trellis<3> {
  using State = V;
  static State load(const int16_t* from) { return load_vector(from); }
  static void store(int16_t* to, State state) { std::memcpy(to, &state, sizeof state); }
  static State clear(State state) { return state & ~V(repeat(7)); }
  static State normalised(State state) { return state - repeat(state[0]); }
  template <int h>
  static V window_costs(State state, const int16_t* line) {  // they follow state h
    return __builtin_shufflevector(state, state, h, h, h, h, h, h, h, h) + load_vector(line + 8 * h);
  }
  static State step(State state, const int16_t* line) {
    const V a = least(window_costs<0>(state, line), window_costs<1>(state, line));
    const V b = least(window_costs<2>(state, line), window_costs<3>(state, line));
    const V c = least(window_costs<4>(state, line), window_costs<5>(state, line));
    const V d = least(window_costs<6>(state, line), window_costs<7>(state, line));
    return least(least(a, b), least(c, d));
  }
};

// A vector is the 4 q of two h. The state is there twice.
template <>
struct Trellis<4> {
  using State = V;
  static State load(const int16_t* from) {
    return V{from[0], from[1], from[2], from[3], from[0], from[1], from[2], from[3]};
  }
  static void store(int16_t* to, State state) { std::memcpy(to, &state, sizeof state / 2); }
  static State clear(State state) { return state & ~V(repeat(15)); }
  static State normalised(State state) { return state - repeat(state[0]); }
  static State step(State state, const int16_t* line) {
    // Window [h][q] follows state h mod 4.
    const V even = __builtin_shufflevector(state, state, 0, 0, 0, 0, 1, 1, 1, 1);
    const V odd = __builtin_shufflevector(state, state, 2, 2, 2, 2, 3, 3, 3, 3);
    V best[2] = {even + load_vector(line), odd + load_vector(line + 8)};
    for (int h = 4; h < 16; h += 4) {
      best[0] = least(best[0], even + load_vector(line + 4 * h));
      best[1] = least(best[1], odd + load_vector(line + 4 * h + 8));
    }
    const V both = least(best[0], best[1]);
    return least(both, __builtin_shufflevector(both, both, 4, 5, 6, 7, 0, 1, 2, 3));
  }
};

void multiply_group(const int8_t* levels, const uint8_t* windows, const float* y, SealedRow& row) {
  float product[4] = {};
  int square = 0;
  for (int i = 0; i < 16; ++i) {
    const int level = levels[windows[i]];
    product[i % 4] += y[i] * static_cast<float>(level);
    square += level * level;
  }
  row.product += (product[0] + product[1]) + (product[2] + product[3]);
  row.square += static_cast<float>(square);
}

}  // namespace
}  // namespace butter::cpu

// These first: the file below is written in its terms.
#include "kernels/cpu/aura_seal_inl.h"

namespace butter::cpu {

const SealKernel kSealPortable = {kMetrics, true, kRows, scratch_bytes, square_sum, to_cells, seal};

}  // namespace butter::cpu
