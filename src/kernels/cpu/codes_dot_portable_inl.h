// Dot for any CPU: codes become floats, four at a time, and meet queries and weights as they are. See
// codes_inl.h. Internal linkage.
#pragma once

#include "kernels/cpu/attend_vec_portable_inl.h"

namespace butter::cpu {
namespace {

struct Dot {
  static constexpr int kLanes = 4;
  static constexpr int kHeads = 2;  // query heads that share a load of codes

  typedef int8_t SignedBytes __attribute__((vector_size(4)));
  typedef uint8_t UnsignedBytes __attribute__((vector_size(4)));
  using Codes = Vec::U;

  // --- codes
  static Codes load(const std::byte* from) {
    Codes x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static Codes keep_bits(Codes x, uint8_t mask) { return x & (0x01010101u * mask); }
  // Bits of `mask` from a, the others from b.
  static Codes choose_bits(uint8_t mask, Codes a, Codes b) {
    return (a & (0x01010101u * mask)) | (b & ~(0x01010101u * mask));
  }
  // Bits move into neighbouring bytes too: mask them off. kBy > 0 moves up.
  template <int kBy>
  static Codes move_bits(Codes x) {
    return move_bits(x, kBy);
  }
  static Codes move_bits(Codes x, int up) { return up >= 0 ? x << up : x >> -up; }

  // --- queries: 4 floats
  struct QueryFloats {
    static constexpr int kWords = 4;
    static constexpr int kStartWords = 1;
    static constexpr float kLargest = 1;
    static constexpr int vectors(int) { return 2; }  // of rows in a pass over keys
    using Sum = Vec::F;

    // Sums of a query's numbers, lane by lane.
    static Sum no_totals() { return Vec::zero(); }
    // 16 channels of a query, over its unit: the words of each 4 of them, `stride` apart.
    static void pack(const Vec::F* x, int32_t* words, int stride, Sum& totals) {
      for (int i = 0; i < 4; ++i) {
        std::memcpy(words + i * stride, &x[i], sizeof x[i]);
        totals += x[i];
      }
    }
    // What dot products start from: -128 times the totals.
    static void make_starts(Sum totals, int32_t* starts) {
      const float start = -128 * Vec::sum(totals);
      std::memcpy(starts, &start, sizeof start);
    }
    static Sum start(const int32_t* starts) { return Vec::set(float_at(starts)); }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      for (int j = 0; j < 4; ++j)
        sum += Vec::set(float_at(words + j)) * __builtin_convertvector(Vec::I(codes >> 8 * j & 255), Vec::F);
    }
    static Vec::F to_float(Sum sum) { return sum; }
  };
  template <int>
  using Query = QueryFloats;

  // --- weights of 64 rows: floats, as they are
  struct WeightFloats {
    static constexpr int kWords = 64;
    static constexpr bool kHasUnit = false;
    static constexpr float kLargest = 1;
    static constexpr int columns(int) { return 1; }  // of 16 channels in a pass over values
    using Sum = Vec::F;

    static Sum zero() { return Vec::zero(); }
    // x: 16 vectors.
    static void pack(const Vec::F* x, int32_t* words) { std::memcpy(words, x, 64 * sizeof(float)); }
    // Those of quad 4·high + low.
    static const int32_t* of_quad(const int32_t* words, int high, int low) {
      return words + 16 * high + 4 * low;
    }
    static void add(Sum& sum, Codes codes, const int32_t* words) {
      for (int r = 0; r < 4; ++r) {
        const Vec::I code = Vec::I(codes << (24 - 8 * r)) >> 24;
        sum += Vec::set(float_at(words + r)) * __builtin_convertvector(code, Vec::F);
      }
    }
    static Vec::F to_float(Sum sum) { return sum; }
  };
  template <int>
  using Weights = WeightFloats;

  // --- floats
  // x where the other is not 0, else 0, whatever x is.
  static Vec::F keep(Vec::F x, Vec::F where) {
    return reinterpret_cast<Vec::F>(reinterpret_cast<Vec::I>(x) & (where != Vec::zero()));
  }
  // Scale bytes over 2^u: a byte at bits 6..13 of an fp16.
  static Vec::F load_scale_bytes(const std::byte* from) {
    UnsignedBytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    const Vec::U magnitude = __builtin_convertvector(bytes, Vec::U) << 19;
    return reinterpret_cast<Vec::F>(magnitude) * Vec::set(0x1p112f);
  }
  // kLanes bytes as floats.
  static Vec::F load_unsigned(const uint8_t* from) {
    UnsignedBytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Vec::F);
  }
  static Vec::F load_signed(const uint8_t* from) {
    SignedBytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Vec::F);
  }
  static Vec::F divide(Vec::F a, Vec::F b) { return a / b; }
  static Vec::F lower(Vec::F a, Vec::F b) {
    const Vec::I a_is = a < b;
    return reinterpret_cast<Vec::F>((reinterpret_cast<Vec::I>(a) & a_is) |
                                    (reinterpret_cast<Vec::I>(b) & ~a_is));
  }
  // Halves to even. Numbers of 2^22 and more stay as they are, give or take one.
  static Vec::F round(Vec::F x) {
    const Vec::F magic = Vec::set(0x1.8p23f);
    return (x + magic) - magic;
  }
  // Whole numbers of -128..255 to bytes.
  static void store_bytes(uint8_t* to, Vec::F x) {
    const UnsignedBytes bytes = __builtin_convertvector(__builtin_convertvector(x, Vec::I), UnsignedBytes);
    std::memcpy(to, &bytes, sizeof bytes);
  }

 private:
  static float float_at(const int32_t* word) {
    float x;
    std::memcpy(&x, word, sizeof x);
    return x;
  }
};

}  // namespace
}  // namespace butter::cpu
