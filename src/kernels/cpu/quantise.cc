// Compiled once for each instruction set by Highway: see elementwise.cc.
#include "kernels/cpu/quantise.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantise.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace butter::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kColumns = 32;  // of a group

struct GroupScale {
  float scale;
  float inverse;
};

HWY_ATTR GroupScale scale_of(const float* x) {
  const hn::CappedTag<float, 16> d;
  auto largest = hn::Zero(d);
  auto poison = hn::Zero(d);  // x − x: 0, or NaN where x is not finite
  for (int i = 0; i < kColumns; i += static_cast<int>(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    poison = hn::Add(poison, hn::Sub(v, v));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  // Below this the inverse would overflow; such a group is as good as zero.
  const float inverse = max > 1e-35f ? 127.0f / max : 0.0f;
  return {max / 127.0f + hn::GetLane(hn::SumOfLanes(d, poison)), inverse};
}

// Of 16 columns. Returns the sum of the codes.
HWY_ATTR int half_codes_of(const float* x, float inverse, int8_t* codes) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const hn::Rebind<int16_t, decltype(d)> d16;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, inverse);
  auto sum = hn::Zero(d32);
  for (int i = 0; i < kColumns / 2; i += static_cast<int>(hn::Lanes(d))) {
    // What is not finite may have become any integer.
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    const auto code = hn::Min(hn::Max(rounded, hn::Set(d32, -127)), hn::Set(d32, 127));
    hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, code)), d8, codes + i);
    sum = hn::Add(sum, code);
  }
  return hn::GetLane(hn::SumOfLanes(d32, sum));
}

// Codes of one group, as code row `index` of its record. Leaves x − scale · code in `rest`, if that is asked
// for.
HWY_ATTR void quantise_group(const float* x, const Int8RowPlace& place, int index, std::byte* record,
                             float* rest) {
  const GroupScale group = scale_of(x);
  auto* codes = reinterpret_cast<int8_t*>(record + index * kColumns);
  const int first = half_codes_of(x, group.inverse, codes);
  const int sum = first + half_codes_of(x + kColumns / 2, group.inverse, codes + kColumns / 2);
  const float scaled_sum = group.scale * static_cast<float>(sum);
  const int negated = -sum;
  const int negated_first = -first;
  std::byte* tail = record + place.block * kColumns + index * 4;
  std::memcpy(tail, &group.scale, 4);
  std::memcpy(tail + place.block * 4, &scaled_sum, 4);
  std::memcpy(tail + place.block * 8, &negated, 4);
  std::memcpy(tail + place.block * 12, &negated_first, 4);
  if (rest == nullptr) return;
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto scale = hn::Set(d, group.scale);
  for (int i = 0; i < kColumns; i += static_cast<int>(hn::Lanes(d))) {
    const auto code = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes + i)));
    hn::StoreU(hn::NegMulAdd(scale, code, hn::LoadU(d, x + i)), d, rest + i);
  }
}

HWY_ATTR void quantise(const float* x, int64_t groups, const Int8RowPlace& place) {
  std::byte* record = place.records;
  float rest[kColumns];
  for (int64_t g = 0; g < groups; ++g, x += kColumns, record += place.record_bytes) {
    quantise_group(x, place, place.index, record, rest);
    quantise_group(rest, place, place.index + 1, record, nullptr);
  }
}

}  // namespace

struct Quantise {
  static constexpr auto row = quantise;
};

}  // namespace butter::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace butter::cpu {

void quantise_row(Isa isa, const float* x, int64_t groups, const Int8RowPlace& place) {
#if HWY_TARGETS & HWY_AVX3
  if (isa >= Isa::kAvx512) return N_AVX3::Quantise::row(x, groups, place);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa >= Isa::kAvx2) return N_AVX2::Quantise::row(x, groups, place);
#endif
  return HWY_STATIC_DISPATCH(Quantise)::row(x, groups, place);
}

}  // namespace butter::cpu
#endif
