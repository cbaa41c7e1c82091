// Vec for any CPU: 4 floats in the compiler's own vectors. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace butter::cpu {
namespace {

struct Vec {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  typedef uint16_t Half __attribute__((vector_size(8)));
  static constexpr int kLanes = 4;
  static constexpr int kHeads = 2;     // query heads that share a load of a row
  static constexpr int kColumns = 4;   // vectors of a row that accumulate in registers
  static constexpr int kTileRows = 6;  // rows and vectors of a block of the prefill product
  static constexpr int kTileColumns = 2;

  static F zero() { return F{}; }
  static F set(float x) { return F{x, x, x, x}; }
  static F load(const float* from) {
    F x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static void store(float* to, F x) { std::memcpy(to, &x, sizeof x); }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return select(a > b, a, b); }
  static float sum(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static float highest(F x) {
    const float even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
    return even > odd ? even : odd;
  }

  // Lanes that are not 0, as bits.
  static uint64_t nonzero(F x) {
    const U lanes = U(x != zero()) & U{1, 2, 4, 8};
    return (lanes[0] | lanes[1]) | (lanes[2] | lanes[3]);
  }

  // a + b in the lanes of the low bits, a in the others.
  static F add_where(uint64_t bits, F a, F b) { return choose(bits, a + b, a); }
  // a in the lanes of the low bits, b in the others.
  static F choose(uint64_t bits, F a, F b) {
    const U lanes{1, 2, 4, 8};
    const auto low = static_cast<uint32_t>(bits & 15);
    const U set = U{low, low, low, low} & lanes;
    return select(set == lanes, a, b);
  }
  static F reverse(F x) { return F{x[3], x[2], x[1], x[0]}; }
  // The bits of a half, moved into a float's place, are its value over 2^112 (subnormals too). Infinities do
  // not occur in rows: they are refused when written.
  static F load_f16(const std::byte* from) {
    const U bits = load_u16(from);
    const U magnitude = (bits & 0x7fffu) << 13;
    const F value = bits_to_float(magnitude) * set(0x1p112f);
    return bits_to_float(float_to_bits(value) | ((bits & 0x8000u) << 16));
  }
  static F load_bf16(const std::byte* from) { return bits_to_float(load_u16(from) << 16); }

  // out[i] = sum of the lanes of the i-th.
  static void sums(F a, F b, F c, F d, float* out) { store(out, F{sum(a), sum(b), sum(c), sum(d)}); }

  // out[i] = the largest lane of the i-th.
  static void highest(F a, F b, F c, F d, float* out) {
    store(out, F{highest(a), highest(b), highest(c), highest(d)});
  }

  // from[index[i]] for the first `count` lanes, 0 in the others.
  static F gather(const float* from, const uint16_t* index, int count) {
    alignas(64) float lanes[kLanes] = {};
    for (int i = 0; i < kLanes && i < count; ++i) lanes[i] = from[index[i]];
    return load(lanes);
  }

  // A weight 2^-64 of the largest and below is none: no sum of float32 feels it, and products with it would
  // be denormal, which costs the CPU an assist each.
  static constexpr float kLeastWeight = -64;
  // 2^x for x <= 0, 0 below kLeastWeight, NaN of NaN; relative error below 3e-7 (degree 5, minimax on half an
  // octave each side).
  static F exp2(F x) {
    const F magic = set(0x1.8p23f);  // adding it rounds to a whole number, which stands in the low bits
    const F shifted = x + magic;
    const F f = x - (shifted - magic);
    F p = set(1.32647203e-3f) * f + set(9.67151314e-3f);
    p = p * f + set(5.55073377e-2f);
    p = p * f + set(2.40222421e-1f);
    p = p * f + set(6.93146978e-1f);
    p = p * f + set(1.0f);
    // A product, not a sum of bits, which could make a number of a NaN.
    const F power = bits_to_float((float_to_bits(shifted) << 23) + float_to_bits(set(1.0f)));
    return select(x < set(kLeastWeight), zero(), p * power);
  }

 private:
  static F select(I mask, F a, F b) {
    return bits_to_float((float_to_bits(a) & U(mask)) | (float_to_bits(b) & ~U(mask)));
  }
  static F bits_to_float(U bits) { return reinterpret_cast<F>(bits); }
  static U float_to_bits(F x) { return reinterpret_cast<U>(x); }
  static U load_u16(const std::byte* from) {
    Half half;
    std::memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, U);
  }
};

}  // namespace
}  // namespace butter::cpu
