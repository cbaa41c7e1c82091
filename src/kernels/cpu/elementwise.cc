// Highway compiles the first part of this file once for each instruction set that Isa names, with attributes
// and not with compiler flags, so that no inline function of a common header is compiled for a newer CPU.
#include "kernels/cpu/elementwise.h"

#include <cfloat>
#include <cmath>
#include <numbers>

#include "core/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which it builds on.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace butter::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Calls step(i) for each whole vector of [0, count), then rest(i, n) once for what is left.
template <typename Step, typename Rest>
HWY_INLINE void for_vectors(int64_t count, const Step& step, const Rest& rest) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(i);
  if (i < count) rest(i, count - i);
}

HWY_INLINE V load_first(const float* from, int64_t count) {
  alignas(64) float padded[HWY_MAX_BYTES / 4] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return hn::Load(D(), padded);
}

HWY_INLINE void store_first(V v, int64_t count, float* to) {
  alignas(64) float padded[HWY_MAX_BYTES / 4];
  hn::Store(v, D(), padded);
  for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

HWY_ATTR float sum_of_squares(const float* x, int64_t count) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  for (; i < count; i += lanes) {
    const V a = i + lanes <= count ? hn::LoadU(d, x + i) : load_first(x + i, count - i);
    even = hn::MulAdd(a, a, even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

HWY_ATTR void rms_norm(const RmsNormOp& op, const float* in, int64_t width, const float* weight, float* out) {
  const D d;
  const int64_t run = width / op.runs;
  const V offset = hn::Set(d, op.centred ? 1.0f : 0.0f);
  for (int64_t begin = 0; begin < width; begin += run) {
    const float* x = in + begin;
    const float* w = weight == nullptr || op.shared_weight ? weight : weight + begin;
    float* y = out + begin;
    const V factor =
        hn::Set(d, op.multiplier / std::sqrt(sum_of_squares(x, run) / static_cast<float>(run) + op.eps));
    for_vectors(
        run,
        [&](int64_t i) HWY_ATTR {
          V v = hn::Mul(hn::LoadU(d, x + i), factor);
          if (w != nullptr) v = hn::Mul(v, hn::Add(hn::LoadU(d, w + i), offset));
          hn::StoreU(v, d, y + i);
        },
        [&](int64_t i, int64_t n) HWY_ATTR {
          V v = hn::Mul(load_first(x + i, n), factor);
          if (w != nullptr) v = hn::Mul(v, hn::Add(load_first(w + i, n), offset));
          store_first(v, n, y + i);
        });
  }
}

HWY_ATTR void rope(const RopeOp& op, int64_t pairs, const float* cos, const float* sin, float* row) {
  const D d;
  for (int head = 0; head < op.heads; ++head) {
    float* first = row + static_cast<int64_t>(head) * op.head_dim;
    float* second = first + pairs;
    const auto turn = [&](V a, V b, V c, V s, V& x, V& y) HWY_ATTR {
      x = hn::NegMulAdd(b, s, hn::Mul(a, c));
      y = hn::MulAdd(a, s, hn::Mul(b, c));
    };
    V x, y;
    for_vectors(
        pairs,
        [&](int64_t i) HWY_ATTR {
          turn(hn::LoadU(d, first + i), hn::LoadU(d, second + i), hn::LoadU(d, cos + i),
               hn::LoadU(d, sin + i), x, y);
          hn::StoreU(x, d, first + i);
          hn::StoreU(y, d, second + i);
        },
        [&](int64_t i, int64_t n) HWY_ATTR {
          turn(load_first(first + i, n), load_first(second + i, n), load_first(cos + i, n),
               load_first(sin + i, n), x, y);
          store_first(x, n, first + i);
          store_first(y, n, second + i);
        });
  }
}

// y, but NaN where x is: for hn::Min and hn::Max, which may drop a NaN, and hn::Exp, which makes it 0. (The
// ones of a mask are the bits of a NaN; a blend costs more.)
HWY_INLINE V keep_nan(V x, V y) {
  return hn::Or(y, hn::VecFromMask(D(), hn::IsNaN(x)));
}

// 1 / (1 + exp(−x)). Past 88 exp would overflow; there the result is below every normal float. Some number
// for NaN: keep_nan(), or a product with x, follows.
HWY_INLINE V sigmoid(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)))));
}

// erf, Abramowitz and Stegun 7.1.26: 1 − (a₁t + ... + a₅t⁵) exp(−x²), t = 1 / (1 + p|x|), through which a NaN
// comes out.
HWY_INLINE V erf(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  const V size = hn::Abs(x);
  const V t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911f), size, one));
  V poly = hn::Set(d, 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.254829592f));
  const V tail = hn::Mul(hn::Mul(poly, t), hn::Exp(d, hn::Neg(hn::Min(hn::Mul(x, x), hn::Set(d, 87.0f)))));
  return hn::CopySign(hn::Sub(one, tail), x);
}

struct Silu {
  HWY_INLINE V operator()(V x) const { return hn::Mul(x, sigmoid(x)); }
};
struct Sigmoid {
  HWY_INLINE V operator()(V x) const { return keep_nan(x, sigmoid(x)); }
};
struct Gelu {
  HWY_INLINE V operator()(V x) const {
    const D d;
    const V root = erf(hn::Mul(x, hn::Set(d, std::numbers::sqrt2_v<float> * 0.5f)));
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5f)), hn::Add(hn::Set(d, 1.0f), root));
  }
};
// (1 + tanh(y)) / 2 is the sigmoid of 2y.
struct GeluTanh {
  HWY_INLINE V operator()(V x) const {
    const D d;
    const V cubic = hn::Mul(hn::Mul(x, x), hn::Mul(x, hn::Set(d, 0.044715f)));
    return hn::Mul(x, sigmoid(hn::Mul(hn::Set(d, 2 * 0.7978845608f), hn::Add(x, cubic))));
  }
};

struct Relu {
  HWY_INLINE V operator()(V x) const { return hn::IfThenZeroElse(hn::Le(x, hn::Zero(D())), x); }
};

// out = join(gate, up)
template <typename Join>
HWY_INLINE void join_all(const Join& join, const float* gate, const float* up, int64_t count, float* out) {
  const D d;
  for_vectors(
      count,
      [&](int64_t i) HWY_ATTR { hn::StoreU(join(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i); },
      [&](int64_t i, int64_t n)
          HWY_ATTR { store_first(join(load_first(gate + i, n), load_first(up + i, n)), n, out + i); });
}

template <typename Act>
HWY_ATTR void activate_all(float multiplier, const float* gate, const float* up, int64_t count, float* out) {
  const V by = hn::Set(D(), multiplier);
  const Act act;
  join_all([&](V g, V u) HWY_ATTR { return hn::Mul(act(hn::Mul(by, g)), u); }, gate, up, count, out);
}

HWY_ATTR void clamped_silu(const GateFunction& function, const float* gate, const float* up, int64_t count,
                           float* out) {
  const D d;
  const V limit = hn::Set(d, function.limit), alpha = hn::Set(d, function.alpha), one = hn::Set(d, 1.0f);
  join_all(
      [&](V g, V u) HWY_ATTR {
        const V bounded = hn::Min(g, limit);
        const V value = hn::Max(hn::Min(u, limit), hn::Neg(limit));
        const V joined = hn::Mul(hn::Mul(bounded, sigmoid(hn::Mul(alpha, bounded))), hn::Add(value, one));
        return keep_nan(g, keep_nan(u, joined));
      },
      gate, up, count, out);
}

HWY_ATTR void activate_mul(const GateFunction& function, const float* gate, const float* up, int64_t count,
                           float* out) {
  switch (function.activation) {
    case Activation::kSilu:
      return activate_all<Silu>(function.multiplier, gate, up, count, out);
    case Activation::kGelu:
      return activate_all<Gelu>(function.multiplier, gate, up, count, out);
    case Activation::kGeluTanh:
      return activate_all<GeluTanh>(function.multiplier, gate, up, count, out);
    case Activation::kSigmoid:
      return activate_all<Sigmoid>(function.multiplier, gate, up, count, out);
    case Activation::kRelu:
      return activate_all<Relu>(function.multiplier, gate, up, count, out);
    case Activation::kClampedSilu:
      return clamped_silu(function, gate, up, count, out);
  }
}

HWY_ATTR void add(const float* in, float factor, int64_t count, float* out) {
  const D d;
  const V by = hn::Set(d, factor);
  for_vectors(
      count,
      [&](int64_t i)
          HWY_ATTR { hn::StoreU(hn::MulAdd(hn::LoadU(d, in + i), by, hn::LoadU(d, out + i)), d, out + i); },
      [&](int64_t i, int64_t n) HWY_ATTR {
        store_first(hn::MulAdd(load_first(in + i, n), by, load_first(out + i, n)), n, out + i);
      });
}

HWY_ATTR void scale(float factor, int64_t count, float* out) {
  const D d;
  const V by = hn::Set(d, factor);
  for_vectors(
      count, [&](int64_t i) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, out + i), by), d, out + i); },
      [&](int64_t i, int64_t n) HWY_ATTR { store_first(hn::Mul(load_first(out + i, n), by), n, out + i); });
}

// Whether every |value| is below the limit; NaN is not.
HWY_ATTR bool all_below(const float* in, int64_t count, float limit) {
  const D d;
  const V top = hn::Set(d, limit);
  auto good = hn::Eq(top, top);
  for_vectors(
      count, [&](int64_t i) HWY_ATTR { good = hn::And(good, hn::Lt(hn::Abs(hn::LoadU(d, in + i)), top)); },
      [&](int64_t i, int64_t n)
          HWY_ATTR { good = hn::And(good, hn::Lt(hn::Abs(load_first(in + i, n)), top)); });
  return hn::AllTrue(d, good);
}

HWY_ATTR bool to_f16(const float* in, int64_t count, uint16_t* out) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const D d;
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::RebindToUnsigned<decltype(d16)> bits;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::BitCast(bits, hn::DemoteTo(d16, hn::LoadU(d, in + i))), bits, out + i);
#endif
  for (; i < count; ++i) out[i] = float_to_fp16(in[i]);
  return all_below(in, count, 65520.0f);  // from here on a value rounds to infinity
}

HWY_ATTR bool to_bf16(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = float_to_bf16(in[i]);
  return all_below(in, count, 0x1.ffp127f);
}

HWY_ATTR bool copy(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i];
  return all_below(in, count, INFINITY);
}

}  // namespace

struct Table {
  static constexpr Elementwise kOps = {rms_norm, rope, activate_mul, add, scale, to_f16, to_bf16, copy};
};

}  // namespace butter::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace butter::cpu {

const Elementwise& elementwise(Isa isa) {
#if HWY_TARGETS & HWY_AVX3
  if (isa >= Isa::kAvx512) return N_AVX3::Table::kOps;
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa >= Isa::kAvx2) return N_AVX2::Table::kOps;
#endif
  (void)isa;
  return HWY_STATIC_DISPATCH(Table)::kOps;
}

}  // namespace butter::cpu
#endif
