// Highway compiles the first part of this file once for each instruction set, as in elementwise.cc.
#include "kernels/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/prefill_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which it builds on.
#include <hwy/contrib/math/math-inl.h>

#ifndef BUTTER_RECURRENT_SCRATCH
#define BUTTER_RECURRENT_SCRATCH
namespace butter::cpu {
namespace {

// Hands out pieces of a worker's scratch; with no base it only counts.
struct FloatCarver {
  float* base = nullptr;
  int64_t used = 0;

  float* take(int64_t count) {
    float* at = base == nullptr ? nullptr : base + used;
    used += (count + 15) / 16 * 16;
    return at;
  }
};

constexpr int64_t kChunk = kChunkRows;

// Of a chunk. Square matrices have kChunk columns; those past the chunk's rows are zero or never read.
struct Mamba2Scratch {
  float* b_columns;  // [state_size][kChunk] B turned round
  float* products;   // [kChunk][kChunk] C·Bᵀ of the group
  float* mixed;      // the same, with decay and δ of the head
  float* inputs;     // [kChunk][head_dim] δ·x, decayed to the end of the chunk
  float* delta;      // [kChunk]
  float* sum;        // [kChunk] Σ δ·a up to each row

  Mamba2Scratch(const Mamba2Op& op, FloatCarver& carver)
      : b_columns(carver.take(op.state_size * kChunk)),
        products(carver.take(kChunk * kChunk)),
        mixed(carver.take(kChunk * kChunk)),
        inputs(carver.take(kChunk * op.head_dim)),
        delta(carver.take(kChunk)),
        sum(carver.take(kChunk)) {}
};

struct DeltaScratch {
  float* q;            // [kChunk][key_dim]
  float* k;            // [kChunk][key_dim]
  float* k_columns;    // [key_dim][kChunk]
  float* kk;           // [kChunk][kChunk] K·Kᵀ
  float* qk;           // [kChunk][kChunk] Q·Kᵀ
  float* mixed;        // [kChunk][kChunk] with decay
  float* corrections;  // [kChunk][value_dim] U
  float* beta;         // [kChunk]
  float* sum;          // [kChunk] Γ

  DeltaScratch(const DeltaRuleOp& op, FloatCarver& carver)
      : q(carver.take(kChunk * op.key_dim)),
        k(carver.take(kChunk * op.key_dim)),
        k_columns(carver.take(op.key_dim * kChunk)),
        kk(carver.take(kChunk * kChunk)),
        qk(carver.take(kChunk * kChunk)),
        mixed(carver.take(kChunk * kChunk)),
        corrections(carver.take(kChunk * op.value_dim)),
        beta(carver.take(kChunk)),
        sum(carver.take(kChunk)) {}
};

}  // namespace
}  // namespace butter::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace butter::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(D()));
}

// A whole vector in memory, or the first lanes of one, where no more may be touched.
struct Whole {
  HWY_INLINE V load(const float* from) const { return hn::LoadU(D(), from); }
  HWY_INLINE void store(V v, float* to) const { hn::StoreU(v, D(), to); }
};
struct Part {
  int64_t count;

  HWY_INLINE V load(const float* from) const {
    alignas(64) float padded[HWY_MAX_BYTES / 4] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
    return hn::Load(D(), padded);
  }
  HWY_INLINE void store(V v, float* to) const {
    alignas(64) float padded[HWY_MAX_BYTES / 4] = {};
    hn::Store(v, D(), padded);
    for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
  }
};

// Calls each(i, span) for the whole vectors of [0, count), and once for what is left.
template <typename Each>
HWY_INLINE void for_vectors(int64_t count, const Each& each) {
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) each(i, Whole());
  if (i < count) each(i, Part{count - i});
}

// exp(x). NaN where x is, of which hn::Exp must see none, and above 104, where hn::Exp ends and a float long
// has. (The ones of a mask are the bits of a NaN; a blend costs more.)
HWY_INLINE V exp_of(V x) {
  const D d;
  const auto known = hn::Le(x, hn::Set(d, 104.0f));
  return hn::Or(hn::Exp(d, hn::IfThenElseZero(known, x)), hn::VecFromMask(d, hn::Not(known)));
}

// A NaN comes out through the x that is divided.
HWY_INLINE V silu(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(x, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)))));
}

// log(1 + exp(x)), x itself above 20.
HWY_INLINE V softplus(V x) {
  const D d;
  const V top = hn::Set(d, 20.0f);
  const V low = hn::Log1p(d, hn::Exp(d, hn::Max(hn::Min(x, top), hn::Set(d, -87.0f))));
  return hn::IfThenElse(hn::Le(x, top), low, x);  // a NaN is x
}

float softplus_of(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

// y = factor · x
HWY_ATTR void scale_to(const float* x, float factor, int64_t count, float* y) {
  const V by = hn::Set(D(), factor);
  for_vectors(count,
              [&](int64_t i, auto span) HWY_ATTR { span.store(hn::Mul(span.load(x + i), by), y + i); });
}

// y += factor · x
HWY_ATTR void add_to(const float* x, float factor, int64_t count, float* y) {
  const V by = hn::Set(D(), factor);
  for_vectors(count, [&](int64_t i, auto span)
                         HWY_ATTR { span.store(hn::MulAdd(span.load(x + i), by, span.load(y + i)), y + i); });
}

HWY_ATTR bool all_finite(const float* x, int64_t count) {
  const D d;
  V sum = hn::Zero(d);  // x − x is NaN where x is not finite
  for_vectors(count, [&](int64_t i, auto span) HWY_ATTR {
    const V v = span.load(x + i);
    sum = hn::Add(sum, hn::Sub(v, v));
  });
  return hn::GetLane(hn::SumOfLanes(d, sum)) == 0;
}

void begin_state(const float* state, int64_t count, float* next) {
  if (state != nullptr) {
    std::copy_n(state, count, next);
  } else {
    std::fill_n(next, count, 0.0f);
  }
}

// --- Products of small matrices ------------------------------------------------------------------

// C [rows][columns] = A [rows][depth] · B [depth][columns], or C += that. Row-major.
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

// A block of C stays in registers: 6 rows of 4 vectors of 16 lanes, 4 rows of 2 of fewer (16 registers).
constexpr int kTileRows = HWY_MAX_BYTES == 64 ? 6 : 4;
constexpr int kTileVectors = HWY_MAX_BYTES == 64 ? 4 : 2;

template <int kRows, int kVectors, typename Span>
HWY_INLINE void product_tile(const Product& p, int64_t row, int64_t column, Span span) {
  const D d;
  V sum[kRows][kVectors];
  float* c = p.c + row * p.c_stride + column;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.accumulate ? span.load(c + r * p.c_stride + v * lanes()) : hn::Zero(d);
    }
  }
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.depth; ++k, b += p.b_stride) {
    V values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = span.load(b + v * lanes());
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a[r * p.a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, values[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) span.store(sum[r][v], c + r * p.c_stride + v * lanes());
  }
}

template <int kVectors, typename Span>
HWY_INLINE void product_columns(const Product& p, int64_t column, Span span) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) product_tile<kTileRows, kVectors>(p, row, column, span);
  for (; row < p.rows; ++row) product_tile<1, kVectors>(p, row, column, span);
}

HWY_ATTR void multiply(const Product& p) {
  const int64_t wide = kTileVectors * lanes();
  int64_t column = 0;
  for (; column + wide <= p.columns; column += wide) product_columns<kTileVectors>(p, column, Whole());
  for (; column + lanes() <= p.columns; column += lanes()) product_columns<1>(p, column, Whole());
  if (column < p.columns) product_columns<1>(p, column, Part{p.columns - column});
}

// Rows are taken in blocks of so many where only the columns, or the depth, up to a row count.
constexpr int64_t kBlock = 16;

// The lower triangle of X·Yᵀ, both of `rows` rows; y_columns is Y turned round. What is above is not written
// but for the blocks on the diagonal.
HWY_ATTR void multiply_lower(int64_t rows, int64_t depth, const float* x, int64_t x_stride,
                             const float* y_columns, float* out) {
  for (int64_t row = 0; row < rows; row += kBlock) {
    const int64_t end = std::min(row + kBlock, rows);
    multiply(
        {end - row, end, depth, x + row * x_stride, x_stride, y_columns, kChunk, out + row * kChunk, kChunk});
  }
}

// out += L·X, L lower triangular.
HWY_ATTR void multiply_by_lower(int64_t rows, int64_t columns, const float* lower, const float* x,
                                int64_t x_stride, float* out, int64_t out_stride) {
  for (int64_t row = 0; row < rows; row += kBlock) {
    const int64_t end = std::min(row + kBlock, rows);
    multiply({end - row, columns, end, lower + row * kChunk, kChunk, x, x_stride, out + row * out_stride,
              out_stride, true});
  }
}

// out[t][s] = exp(sum[t] − sum[s]) · from[t][s] · columns[s] for s <= t, 0 above, in whole blocks. Sums fall,
// so no exponent is above 0.
HWY_ATTR void decay_lower(int64_t rows, const float* sum, const float* from, const float* columns,
                          float* out) {
  const D d;
  for (int64_t t = 0; t < rows; ++t) {
    const V at = hn::Set(d, sum[t]);
    const int64_t end = std::min((t / kBlock + 1) * kBlock, rows);
    float* row = out + t * kChunk;
    for_vectors(t + 1, [&](int64_t s, auto span) HWY_ATTR {
      V v = hn::Mul(exp_of(hn::Sub(at, span.load(sum + s))), span.load(from + t * kChunk + s));
      if (columns != nullptr) v = hn::Mul(v, span.load(columns + s));
      span.store(v, row + s);
    });
    std::fill(row + t + 1, row + end, 0.0f);
  }
}

HWY_ATTR void turn_round(const float* rows, int64_t stride, int64_t count, int64_t width, float* columns) {
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t i = 0; i < width; ++i) columns[i * kChunk + row] = rows[row * stride + i];
  }
}

// --- Convolution

HWY_ATTR void conv(const ConvRows& rows, int64_t begin, int64_t end) {
  const D d;
  const int64_t past_rows = rows.taps - 1;
  const auto input = [&](int64_t t) -> const float* {
    if (t >= 0) return rows.in.row(t);
    return rows.past == nullptr ? nullptr : rows.past + (past_rows + t) * rows.channels;
  };
  for (int64_t t = 0; t < rows.rows; ++t) {
    for_vectors(end - begin, [&](int64_t offset, auto span) HWY_ATTR {
      const int64_t c = begin + offset;
      V sum = rows.bias != nullptr ? span.load(rows.bias + c) : hn::Zero(d);
      for (int64_t tap = 0; tap < rows.taps; ++tap) {
        const float* from = input(t - past_rows + tap);
        if (from == nullptr) continue;
        sum = hn::MulAdd(span.load(rows.weight + tap * rows.channels + c), span.load(from + c), sum);
      }
      span.store(silu(sum), rows.out.row(t) + c);
    });
  }
  for (int64_t row = 0; row < past_rows; ++row) {
    const float* from = input(rows.rows - past_rows + row);
    begin_state(from == nullptr ? nullptr : from + begin, end - begin,
                rows.next_past + row * rows.channels + begin);
  }
}

// --- Mamba1

HWY_ATTR bool mamba1(const Mamba1Rows& rows, int64_t begin, int64_t end) {
  const D d;
  bool finite = true;
  for (int64_t n = 0; n < rows.state_size; ++n) {
    const int64_t at = n * rows.width + begin;
    begin_state(rows.state == nullptr ? nullptr : rows.state + at, end - begin, rows.next_state + at);
  }
  for_vectors(end - begin, [&](int64_t offset, auto span) HWY_ATTR {
    const int64_t i = begin + offset;
    const V skip = span.load(rows.skip + i);
    for (int64_t t = 0; t < rows.rows; ++t) {
      const V x = span.load(rows.x.row(t) + i);
      const V delta = softplus(span.load(rows.dt.row(t) + i));
      const V input = hn::Mul(delta, x);
      const float* b = rows.b.row(t);
      const float* c = rows.c.row(t);
      V y = hn::Mul(skip, x);
      for (int64_t n = 0; n < rows.state_size; ++n) {
        float* state = rows.next_state + n * rows.width + i;
        const V keep = exp_of(hn::Mul(delta, span.load(rows.decay + n * rows.width + i)));
        const V s = hn::MulAdd(keep, span.load(state), hn::Mul(hn::Set(d, b[n]), input));
        span.store(s, state);
        y = hn::MulAdd(hn::Set(d, c[n]), s, y);
      }
      span.store(y, rows.out.row(t) + i);
    }
  });
  for (int64_t n = 0; n < rows.state_size; ++n)
    finite &= all_finite(rows.next_state + n * rows.width + begin, end - begin);
  return finite;
}

// --- Mamba2

// Columns of a head's state that one pass takes: they, their inputs and outputs stay in registers.
constexpr int kStateVectors = 4;

template <int kVectors, typename Span>
HWY_INLINE void mamba2_columns(int64_t size, int64_t dim, float keep, const float* b, const float* c,
                               const float* input, Span span, float* state, float* y) {
  const D d;
  V in[kVectors], sum[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    in[v] = span.load(input + v * lanes());
    sum[v] = span.load(y + v * lanes());
  }
  const V by = hn::Set(d, keep);
  for (int64_t n = 0; n < size; ++n, state += dim) {
    const V b_n = hn::Set(d, b[n]), c_n = hn::Set(d, c[n]);
    for (int v = 0; v < kVectors; ++v) {
      const V s = hn::MulAdd(by, span.load(state + v * lanes()), hn::Mul(b_n, in[v]));
      span.store(s, state + v * lanes());
      sum[v] = hn::MulAdd(c_n, s, sum[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) span.store(sum[v], y + v * lanes());
}

// Calls pass(number of vectors, first column, span) for the columns of a state.
template <typename Pass>
HWY_INLINE void for_columns(int64_t dim, const Pass& pass) {
  const int64_t wide = kStateVectors * lanes();
  int64_t i = 0;
  for (; i + wide <= dim; i += wide) pass(std::integral_constant<int, kStateVectors>(), i, Whole());
  for (; i + lanes() <= dim; i += lanes()) pass(std::integral_constant<int, 1>(), i, Whole());
  if (i < dim) pass(std::integral_constant<int, 1>(), i, Part{dim - i});
}

HWY_ATTR void mamba2_step(int64_t size, int64_t dim, float keep, const float* b, const float* c,
                          const float* input, float* state, float* y) {
  for_columns(dim, [&](auto vectors, int64_t i, auto span) HWY_ATTR {
    mamba2_columns<decltype(vectors)::value>(size, dim, keep, b, c, input + i, span, state + i, y + i);
  });
}

// Where a head's inputs stand in a row of the convolution.
struct Mamba2Head {
  int64_t x, b, c;  // columns

  Mamba2Head(const Mamba2Op& op, int64_t head) {
    const int64_t group = head / (op.heads / op.groups), inner = int64_t{op.heads} * op.head_dim;
    x = head * op.head_dim;
    b = inner + group * op.state_size;
    c = b + int64_t{op.groups} * op.state_size;
  }
};

float delta_of(const Mamba2Rows& rows, int64_t t, int64_t head) {
  return std::clamp(softplus_of(rows.dt.row(t)[head] + rows.dt_bias[head]), rows.op->dt_min, rows.op->dt_max);
}

HWY_ATTR void mamba2_tokens(const Mamba2Rows& rows, int64_t head, float* input, float* state) {
  const Mamba2Op& op = *rows.op;
  const Mamba2Head at(op, head);
  for (int64_t t = 0; t < rows.rows; ++t) {
    const float* conv = rows.conv.row(t);
    float* y = rows.out.row(t) + at.x;
    const float delta = delta_of(rows, t, head);
    scale_to(conv + at.x, delta, op.head_dim, input);
    scale_to(conv + at.x, rows.skip[head], op.head_dim, y);
    mamba2_step(op.state_size, op.head_dim, std::exp(delta * rows.decay[head]), conv + at.b, conv + at.c,
                input, state, y);
  }
}

// Rows [first, first + count), count <= kChunkRows; the group's B and C·Bᵀ are in the scratch.
HWY_ATTR void mamba2_chunk(const Mamba2Rows& rows, int64_t first, int64_t count, int64_t head,
                           const Mamba2Scratch& scratch, float* state) {
  const Mamba2Op& op = *rows.op;
  const Mamba2Head at(op, head);
  const int64_t dim = op.head_dim, size = op.state_size;
  float total = 0;
  for (int64_t t = 0; t < count; ++t) {
    scratch.delta[t] = delta_of(rows, first + t, head);
    scratch.sum[t] = total += scratch.delta[t] * rows.decay[head];
  }
  decay_lower(count, scratch.sum, scratch.products, scratch.delta, scratch.mixed);
  const float* conv = rows.conv.row(first);
  float* out = rows.out.row(first) + at.x;
  multiply({count, dim, size, conv + at.c, rows.conv.stride, state, dim, out, rows.out.stride});
  for (int64_t t = 0; t < count; ++t) {
    const float* x = conv + t * rows.conv.stride + at.x;
    float* y = out + t * rows.out.stride;
    scale_to(y, std::exp(scratch.sum[t]), dim, y);
    add_to(x, rows.skip[head], dim, y);
    scale_to(x, std::exp(total - scratch.sum[t]) * scratch.delta[t], dim, scratch.inputs + t * dim);
  }
  multiply_by_lower(count, dim, scratch.mixed, conv + at.x, rows.conv.stride, out, rows.out.stride);
  scale_to(state, std::exp(total), size * dim, state);
  multiply({size, dim, count, scratch.b_columns, kChunk, scratch.inputs, dim, state, dim, true});
}

HWY_ATTR bool mamba2(const Mamba2Rows& rows, int64_t begin, int64_t end, float* scratch_base) {
  const Mamba2Op& op = *rows.op;
  FloatCarver carver{scratch_base};
  const Mamba2Scratch scratch(op, carver);
  const int64_t values = int64_t{op.state_size} * op.head_dim;
  begin_state(rows.state == nullptr ? nullptr : rows.state + begin * values, (end - begin) * values,
              rows.next_state + begin * values);
  if (rows.rows < kPrefillRows) {
    for (int64_t head = begin; head < end; ++head)
      mamba2_tokens(rows, head, scratch.inputs, rows.next_state + head * values);
    return all_finite(rows.next_state + begin * values, (end - begin) * values);
  }
  for (int64_t first = 0; first < rows.rows; first += kChunk) {
    const int64_t count = std::min(kChunk, rows.rows - first);
    for (int64_t head = begin; head < end; ++head) {
      const Mamba2Head at(op, head);
      if (head == begin || at.b != Mamba2Head(op, head - 1).b) {  // a new group
        turn_round(rows.conv.row(first) + at.b, rows.conv.stride, count, op.state_size, scratch.b_columns);
        multiply_lower(count, op.state_size, rows.conv.row(first) + at.c, rows.conv.stride, scratch.b_columns,
                       scratch.products);
      }
      mamba2_chunk(rows, first, count, head, scratch, rows.next_state + head * values);
    }
  }
  return all_finite(rows.next_state + begin * values, (end - begin) * values);
}

// --- Gated delta rule

HWY_ATTR void unit_length(const float* x, int64_t count, float factor, float* out) {
  const D d;
  V squares = hn::Zero(d);
  for_vectors(count, [&](int64_t i, auto span) HWY_ATTR {
    const V v = span.load(x + i);
    squares = hn::MulAdd(v, v, squares);
  });
  scale_to(x, factor / std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)) + 1e-6f), count, out);
}

struct DeltaHead {
  int64_t q, k, v;  // columns of the convolution

  DeltaHead(const DeltaRuleOp& op, int64_t head) {
    const int64_t key_head = op.tiled ? head % op.key_heads : head / (op.value_heads / op.key_heads);
    q = key_head * op.key_dim;
    k = int64_t{op.key_heads} * op.key_dim + q;
    v = int64_t{2} * op.key_heads * op.key_dim + head * op.value_dim;
  }
};

float log_keep(const DeltaRows& rows, int64_t t, int64_t head) {
  return rows.decay[head] * softplus_of(rows.alpha.row(t)[head] + rows.dt_bias[head]);
}
float beta_of(const DeltaRows& rows, int64_t t, int64_t head) {
  return 1 / (1 + std::exp(-rows.beta.row(t)[head]));
}
void unit_keys(const DeltaRows& rows, int64_t t, int64_t head, float* q, float* k) {
  const DeltaRuleOp& op = *rows.op;
  const DeltaHead at(op, head);
  const float* conv = rows.conv.row(t);
  unit_length(conv + at.q, op.key_dim, 1 / std::sqrt(static_cast<float>(op.key_dim)), q);
  unit_length(conv + at.k, op.key_dim, 1, k);
}

// A pass over some columns of a head's state, at one position.
template <int kVectors, typename Span>
HWY_INLINE void delta_columns(const DeltaRuleOp& op, float keep, float beta, const float* q, const float* k,
                              const float* v, Span span, float* state, float* y) {
  const D d;
  const int64_t dim = op.value_dim;
  const V by = hn::Set(d, keep);
  V error[kVectors], sum[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    error[i] = span.load(v + i * lanes());
    sum[i] = hn::Zero(d);
  }
  float* row = state;
  for (int64_t n = 0; n < op.key_dim; ++n, row += dim) {
    const V k_n = hn::Set(d, k[n]);
    for (int i = 0; i < kVectors; ++i) {
      const V s = hn::Mul(by, span.load(row + i * lanes()));
      span.store(s, row + i * lanes());
      error[i] = hn::NegMulAdd(k_n, s, error[i]);
    }
  }
  for (int i = 0; i < kVectors; ++i) error[i] = hn::Mul(error[i], hn::Set(d, beta));
  row = state;
  for (int64_t n = 0; n < op.key_dim; ++n, row += dim) {
    const V k_n = hn::Set(d, k[n]), q_n = hn::Set(d, q[n]);
    for (int i = 0; i < kVectors; ++i) {
      const V s = hn::MulAdd(k_n, error[i], span.load(row + i * lanes()));
      span.store(s, row + i * lanes());
      sum[i] = hn::MulAdd(q_n, s, sum[i]);
    }
  }
  for (int i = 0; i < kVectors; ++i) span.store(sum[i], y + i * lanes());
}

HWY_ATTR void delta_step(const DeltaRuleOp& op, float keep, float beta, const float* q, const float* k,
                         const float* v, float* state, float* y) {
  for_columns(op.value_dim, [&](auto vectors, int64_t i, auto span) HWY_ATTR {
    delta_columns<decltype(vectors)::value>(op, keep, beta, q, k, v + i, span, state + i, y + i);
  });
}

HWY_ATTR void delta_tokens(const DeltaRows& rows, int64_t head, const DeltaScratch& scratch, float* state) {
  const DeltaRuleOp& op = *rows.op;
  const DeltaHead at(op, head);
  for (int64_t t = 0; t < rows.rows; ++t) {
    unit_keys(rows, t, head, scratch.q, scratch.k);
    delta_step(op, std::exp(log_keep(rows, t, head)), beta_of(rows, t, head), scratch.q, scratch.k,
               rows.conv.row(t) + at.v, state, rows.out.row(t) + head * op.value_dim);
  }
}

// Solves U = R + N·U, N strictly lower triangular; u holds R, then U.
HWY_ATTR void solve_lower(int64_t count, int64_t columns, const float* lower, float* u) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t s = begin; s < t; ++s)
        add_to(u + s * columns, lower[t * kChunk + s], columns, u + t * columns);
    }
    // What the block's rows give to all rows below them.
    multiply({count - end, columns, end - begin, lower + end * kChunk + begin, kChunk, u + begin * columns,
              columns, u + end * columns, columns, true});
  }
}

// Unit keys and queries of a key head, and their products, for rows [first, first + count).
HWY_ATTR void delta_keys(const DeltaRows& rows, int64_t first, int64_t count, int64_t head,
                         const DeltaScratch& scratch) {
  const int64_t dim = rows.op->key_dim;
  for (int64_t t = 0; t < count; ++t)
    unit_keys(rows, first + t, head, scratch.q + t * dim, scratch.k + t * dim);
  turn_round(scratch.k, dim, count, dim, scratch.k_columns);
  multiply_lower(count, dim, scratch.k, dim, scratch.k_columns, scratch.kk);
  multiply_lower(count, dim, scratch.q, dim, scratch.k_columns, scratch.qk);
}

HWY_ATTR void delta_chunk(const DeltaRows& rows, int64_t first, int64_t count, int64_t head,
                          const DeltaScratch& scratch, float* state) {
  const DeltaRuleOp& op = *rows.op;
  const int64_t key_dim = op.key_dim, dim = op.value_dim;
  float total = 0;
  for (int64_t t = 0; t < count; ++t) {
    scratch.beta[t] = beta_of(rows, first + t, head);
    scratch.sum[t] = total += log_keep(rows, first + t, head);
  }
  float* u = scratch.corrections;
  float* out = rows.out.row(first) + head * dim;
  multiply({count, dim, key_dim, scratch.k, key_dim, state, dim, u, dim});
  multiply({count, dim, key_dim, scratch.q, key_dim, state, dim, out, rows.out.stride});
  decay_lower(count, scratch.sum, scratch.kk, nullptr, scratch.mixed);
  for (int64_t t = 0; t < count; ++t) {
    const float keep = std::exp(scratch.sum[t]), beta = scratch.beta[t];
    scale_to(u + t * dim, -keep * beta, dim, u + t * dim);
    add_to(rows.conv.row(first + t) + DeltaHead(op, head).v, beta, dim, u + t * dim);
    scale_to(out + t * rows.out.stride, keep, dim, out + t * rows.out.stride);
    scale_to(scratch.mixed + t * kChunk, -beta, t, scratch.mixed + t * kChunk);
  }
  solve_lower(count, dim, scratch.mixed, u);
  decay_lower(count, scratch.sum, scratch.qk, nullptr, scratch.mixed);
  multiply_by_lower(count, dim, scratch.mixed, u, dim, out, rows.out.stride);
  for (int64_t t = 0; t < count; ++t)
    scale_to(u + t * dim, std::exp(total - scratch.sum[t]), dim, u + t * dim);
  scale_to(state, std::exp(total), key_dim * dim, state);
  multiply({key_dim, dim, count, scratch.k_columns, kChunk, u, dim, state, dim, true});
}

HWY_ATTR bool delta_rule(const DeltaRows& rows, int64_t begin, int64_t end, float* scratch_base) {
  const DeltaRuleOp& op = *rows.op;
  FloatCarver carver{scratch_base};
  const DeltaScratch scratch(op, carver);
  const int64_t values = int64_t{op.key_dim} * op.value_dim;
  begin_state(rows.state == nullptr ? nullptr : rows.state + begin * values, (end - begin) * values,
              rows.next_state + begin * values);
  if (rows.rows < kPrefillRows) {
    for (int64_t head = begin; head < end; ++head)
      delta_tokens(rows, head, scratch, rows.next_state + head * values);
    return all_finite(rows.next_state + begin * values, (end - begin) * values);
  }
  for (int64_t first = 0; first < rows.rows; first += kChunk) {
    const int64_t count = std::min(kChunk, rows.rows - first);
    for (int64_t key_head = 0; key_head < op.key_heads; ++key_head) {
      bool made = false;
      for (int64_t head = begin; head < end; ++head) {
        if (DeltaHead(op, head).q != key_head * op.key_dim) continue;
        if (!made) delta_keys(rows, first, count, head, scratch);
        made = true;
        delta_chunk(rows, first, count, head, scratch, rows.next_state + head * values);
      }
    }
  }
  return all_finite(rows.next_state + begin * values, (end - begin) * values);
}

}  // namespace

struct Table {
  static constexpr Recurrent kMixers = {conv, mamba1, mamba2, delta_rule};
};

}  // namespace butter::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace butter::cpu {

const Recurrent& recurrent(Isa isa) {
#if HWY_TARGETS & HWY_AVX3
  if (isa >= Isa::kAvx512) return N_AVX3::Table::kMixers;
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa >= Isa::kAvx2) return N_AVX2::Table::kMixers;
#endif
  (void)isa;
  return HWY_STATIC_DISPATCH(Table)::kMixers;
}

int64_t recurrent_scratch_floats(const Mamba2Op& op) {
  FloatCarver carver;
  Mamba2Scratch(op, carver);
  return carver.used;
}

int64_t recurrent_scratch_floats(const DeltaRuleOp& op) {
  FloatCarver carver;
  DeltaScratch(op, carver);
  return carver.used;
}

}  // namespace butter::cpu
#endif
