// From numbers that are known at run time to template arguments. Internal linkage, for files of one
// instruction set.
#pragma once

#include <type_traits>
#include <utility>

namespace butter::cpu {
namespace {

// Calls fn(std::integral_constant<int, i>) for i = 0..kCount - 1, written out.
template <int kCount, typename Fn>
inline __attribute__((always_inline)) void unrolled(const Fn& fn) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (fn(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// Calls fn<heads>(index of the first) for groups of at most kMost heads.
template <int kMost, typename Fn>
inline void for_head_groups(int heads, const Fn& fn) {
  for (int first = 0; first < heads; first += kMost) {
    const int count = heads - first < kMost ? heads - first : kMost;
    unrolled<kMost>([&](auto i) {
      if (count == i + 1) fn.template operator()<i + 1>(first);
    });
  }
}

// Calls fn<bits>() for the 2, 3 or 4 bits of an aura code.
template <typename Fn>
inline void with_bits(int bits, const Fn& fn) {
  if (bits == 2) return fn.template operator()<2>();
  if (bits == 3) return fn.template operator()<3>();
  fn.template operator()<4>();
}

}  // namespace
}  // namespace butter::cpu
