// The rotation in terms of Vec, for each instruction set (rotate_{portable,avx2,avx512}.cc).
//
// A lane is a channel. A Sylvester block of kBlock vectors stays in registers: the steps below a vector's
// width are one shuffle and one multiply-add each, those above are additions of whole vectors. Larger blocks
// take their last steps through memory (L1). Then Paley's matrix, where there is one: m² multiply-adds of
// blocks, with the matrix's columns as vectors of ±1, since m is 12 to 28 and a row is short.
#pragma once

#include "kernels/cpu/rotate_kernels.h"

namespace butter::cpu {
namespace {

// The steps of strides below kSpan, the part of a vector that one Sylvester block fills.
template <int kSpan>
Vec::F mix_lanes(Vec::F x) {
  if constexpr (kSpan > 8) x = Lanes::mix<8>(x);
  if constexpr (kSpan > 4) x = Lanes::mix<4>(x);
  x = Lanes::mix<2>(x);
  return Lanes::mix<1>(x);
}

// kVectors vectors: a Sylvester block, or (kSpan < lanes, kVectors = 1) several side by side. `before` and
// `after` are factors by channel, or null.
template <int kVectors, int kSpan>
void mix_block(const float* from, const float* before, const float* after, float* to) {
  Vec::F x[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    x[i] = Vec::load(from + i * Vec::kLanes);
    if (before != nullptr) x[i] = Vec::mul(x[i], Vec::load(before + i * Vec::kLanes));
    x[i] = mix_lanes<kSpan>(x[i]);
  }
  for (int stride = 1; stride < kVectors; stride *= 2) {
    for (int i = 0; i < kVectors; ++i) {
      if ((i & stride) != 0) continue;
      const Vec::F a = x[i], b = x[i + stride];
      x[i] = Vec::add(a, b);
      x[i + stride] = Vec::sub(a, b);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    if (after != nullptr) x[i] = Vec::mul(x[i], Vec::load(after + i * Vec::kLanes));
    Vec::store(to + i * Vec::kLanes, x[i]);
  }
}

// The steps of strides from `stride` channels, through memory.
void mix_far(int block, int stride, float* row) {
  for (; stride < block; stride *= 2) {
    for (int i = 0; i < block; i += Vec::kLanes) {
      if ((i & stride) != 0) continue;
      const Vec::F a = Vec::load(row + i), b = Vec::load(row + i + stride);
      Vec::store(row + i, Vec::add(a, b));
      Vec::store(row + i + stride, Vec::sub(a, b));
    }
  }
}

void scale_row(const float* factors, int dim, float* row) {
  for (int i = 0; i < dim; i += Vec::kLanes)
    Vec::store(row + i, Vec::mul(Vec::load(row + i), Vec::load(factors + i)));
}

// to [dim] = (P ⊗ 1) from, where the blocks have `size` channels. kRepeat: see paley_columns(); below a
// vector's width it is the size itself, so that a vector holds several blocks.
template <int kRepeat>
void mix_paley(const RotatePlan& plan, const float* from, float* to) {
  const int size = plan.sylvester, width = plan.order * kRepeat;
  for (int i = 0; i < plan.dim; i += Vec::kLanes) {
    Vec::F even = Vec::zero(), odd = Vec::zero();
    const float* column = plan.columns + (kRepeat > 1 ? i : i / size);
    const float* block = from + (kRepeat > 1 ? 0 : i % size);
    for (int a = 0; a < plan.order; a += 2, column += 2 * width, block += 2 * size) {
      if constexpr (kRepeat > 1) {
        even = Vec::fma(Vec::load(column), Lanes::repeat<kRepeat>(block), even);
        odd = Vec::fma(Vec::load(column + width), Lanes::repeat<kRepeat>(block + size), odd);
      } else {
        even = Vec::fma(Vec::set(*column), Vec::load(block), even);
        odd = Vec::fma(Vec::set(column[width]), Vec::load(block + size), odd);
      }
    }
    Vec::store(to + i, Vec::add(even, odd));
  }
}

constexpr int kMaxRotatedDim = 1024;

template <int kVectors, int kSpan>
void rotate_with(const RotatePlan& plan, int64_t count, const float* from, float* to) {
  constexpr int kBlock = kVectors * Vec::kLanes;
  const bool one_step = plan.order == 1 && plan.sylvester <= kBlock;
  const float* before = plan.back ? nullptr : plan.signs;
  const float* after = plan.back && one_step ? plan.signs : nullptr;
  alignas(64) float mixed[kMaxRotatedDim];
  for (int64_t r = 0; r < count; ++r, from += plan.dim, to += plan.dim) {
    float* row = plan.order > 1 ? mixed : to;
    for (int i = 0; i < plan.dim; i += kBlock) {
      mix_block<kVectors, kSpan>(from + i, before == nullptr ? nullptr : before + i,
                                 after == nullptr ? nullptr : after + i, row + i);
    }
    if (one_step) continue;
    for (int i = 0; i < plan.dim && kBlock < plan.sylvester; i += plan.sylvester)
      mix_far(plan.sylvester, kBlock, row + i);
    if (plan.order > 1) {
      if (plan.sylvester >= Vec::kLanes) mix_paley<1>(plan, mixed, to);
      if constexpr (Vec::kLanes > 4) {
        if (plan.sylvester == 4) mix_paley<4>(plan, mixed, to);
      }
      if constexpr (Vec::kLanes > 8) {
        if (plan.sylvester == 8) mix_paley<8>(plan, mixed, to);
      }
    }
    if (plan.back) scale_row(plan.signs, plan.dim, to);
  }
}

void rotate(const RotatePlan& plan, int64_t count, const float* from, float* to) {
  constexpr int kLanes = Vec::kLanes;
  if (plan.sylvester >= 8 * kLanes) return rotate_with<8, kLanes>(plan, count, from, to);
  if (plan.sylvester == 4 * kLanes) return rotate_with<4, kLanes>(plan, count, from, to);
  if (plan.sylvester == 2 * kLanes) return rotate_with<2, kLanes>(plan, count, from, to);
  if (plan.sylvester == kLanes) return rotate_with<1, kLanes>(plan, count, from, to);
  if constexpr (kLanes > 8) {
    if (plan.sylvester == 8) return rotate_with<1, 8>(plan, count, from, to);
  }
  rotate_with<1, 4>(plan, count, from, to);
}

}  // namespace
}  // namespace butter::cpu
