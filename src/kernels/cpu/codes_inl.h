// Attention on codes that are whole numbers, for the Vec and Dot of the file that includes this one. Internal
// linkage throughout.
//
// Codes of 4 and 6 bits become bytes of 8 by shifts and masks: c = code · 2^(8 - bits), keys 0..255, values
// -128..127. A row is s·(c - 128) + t in a group of channels, with s the scale over 2^(8 - bits) and
// t = m + 128·s: around t codes have both signs, so the rounding of queries and weights is not multiplied by
// their mean.
//
//   score       for each group: dot = Σ q·c - 128·Σ q in integers, started from the second term;
//               score = unit · Σ over groups of s·dot + t·(Σ q exactly)
//   accumulate  for each group: w·s over the page's largest, as whole numbers; dot = Σ rows of that · c in
//               integers for the whole page; acc += unit · dot + Σ rows of w·t
//
// Keys: some vectors of rows for up to kHeads heads stay in registers while the channels of a group
// pass. Values: heads x columns of sums while the page's rows pass. Bytes of a row of 64 channels, 8 bits: 64
// codes, and 4 for each group. AVX-512, 3 heads, a page: 64 + 64 loads of codes, and 384 + 384 products of
// vectors (two for each head), of which two start each cycle.
#pragma once

#include <cstring>

#include "core/dtype.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/codes_kernels.h"
#include "kernels/cpu/codes_layout.h"

#define BUTTER_INLINE inline __attribute__((always_inline))

namespace butter::cpu {
namespace {

constexpr int kBlockRows = 16;                   // of a vector of keys
constexpr int kVectorBytes = 64;                 // of the order of bytes, whatever Dot's vectors are
constexpr int kStripVectors = 4;                 // of keys of one block, in 16 channels
constexpr int kSpanGroups = 8;                   // of values whose weights are made together: a multiple of 4
constexpr int kSubs = kBlockRows / Dot::kLanes;  // Dot's vectors in one of the order's
constexpr int kPageVectors = kPageRows / Dot::kLanes;

// Functions of the standard library's headers are avoided here: the linker might keep this file's copy for
// all. The same goes for those of codes_layout.h that are inline.
template <typename T>
BUTTER_INLINE T smaller(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
BUTTER_INLINE T larger(T a, T b) {
  return a < b ? b : a;
}

// Units below it are as good as 0; their reciprocals might be infinite.
constexpr float kSmallest = 1e-33f;

template <int kIndex, int kCount, typename Fn>
BUTTER_INLINE void unrolled_from(const Fn& fn) {
  if constexpr (kIndex < kCount) {
    fn.template operator()<kIndex>();
    unrolled_from<kIndex + 1, kCount>(fn);
  }
}
// Calls fn<0>(), fn<1>() ... fn<kCount - 1>().
template <int kCount, typename Fn>
BUTTER_INLINE void unrolled(const Fn& fn) {
  unrolled_from<0, kCount>(fn);
}

// --- what stands in a record

// Codes of kBits bits, widened to 8.
template <int kBits>
struct PackedCodes {
  const std::byte* codes = nullptr;

  // Part `sub` of vector `place` + kNext. Where codes share bytes, `place` is a multiple of 4 (of 2 for 4
  // bits).
  template <int kNext>
  BUTTER_INLINE typename Dot::Codes load(int64_t place, int sub) const {
    const int64_t offset = int64_t{sub} * Dot::kLanes * 4;
    if constexpr (kBits == 8) return load_line(codes + (place + kNext) * kVectorBytes, offset, true);
    constexpr int kNibbleShift = kNext % 2 == 0 ? 4 : 0;
    constexpr bool kFirst = kNext % 2 == 0;  // of the vectors that share a line
    if constexpr (kBits == 4) {
      const auto nibbles = load_line(codes + (place / 2 + kNext / 2) * kVectorBytes, offset, kFirst);
      return Dot::keep_bits(Dot::template move_bits<kNibbleShift>(nibbles), 0xf0);
    }
    const std::byte* four = codes + place / 4 * kFourBytes;
    const auto nibbles =
        Dot::template move_bits<kNibbleShift>(load_line(four + kNext / 2 * kVectorBytes, offset, kFirst));
    const auto pairs =
        Dot::template move_bits<2 - 2 * kNext>(load_line(four + 2 * kVectorBytes, offset, kNext == 3));
    return Dot::keep_bits(Dot::choose_bits(0xf0, nibbles, pairs), 0xfc);
  }
  // The same for any place.
  BUTTER_INLINE typename Dot::Codes load_any(int64_t place, int sub) const {
    const int64_t offset = int64_t{sub} * Dot::kLanes * 4;
    const int quarter = static_cast<int>(place % 4);
    if constexpr (kBits == 8) return load_line(codes + place * kVectorBytes, offset, true);
    const int nibble_shift = quarter % 2 == 0 ? 4 : 0;
    if constexpr (kBits == 4) {
      const auto nibbles = load_line(codes + (place >> 1) * kVectorBytes, offset, true);
      return Dot::keep_bits(Dot::move_bits(nibbles, nibble_shift), 0xf0);
    }
    const std::byte* four = codes + (place >> 2) * kFourBytes;
    const auto nibbles =
        Dot::move_bits(load_line(four + (quarter >> 1) * kVectorBytes, offset, true), nibble_shift);
    const auto pairs = Dot::move_bits(load_line(four + 2 * kVectorBytes, offset, false), 2 - 2 * quarter);
    return Dot::keep_bits(Dot::choose_bits(0xf0, nibbles, pairs), 0xfc);
  }

 private:
  static constexpr int64_t kFourBytes = 3 * kVectorBytes;  // of 4 vectors of 6 bits

  // The part at `offset` of a line; where it is the line's first to be read, the line ahead is fetched.
  static BUTTER_INLINE typename Dot::Codes load_line(const std::byte* line, int64_t offset, bool first) {
    if (first && offset == 0) fetch_ahead(line);
    return Dot::load(line + offset);
  }
};

// Groups of channels of a row.
struct Groups {
  int dim = 0;
  int size = 0;

  int count() const { return (dim + size - 1) / size; }
  int end(int group) const { return smaller(dim, (group + 1) * size); }
};

// s and m in fp16, [groups][64 rows] each, and behind them the codes.
template <int kBits>
struct AffineScales {
  static constexpr int kCodeBits = kBits;
  static constexpr bool kHasMiddle = true;
  const std::byte* s = nullptr;
  const std::byte* m = nullptr;
  PackedCodes<kBits> codes;

  AffineScales(const RowShape& shape, const Record& record)
      : s(record.data), m(s + plane_bytes(shape)), codes{m + plane_bytes(shape)} {}
  static Groups groups(const RowShape& shape) {
    return {shape.dim, shape.group % kStripChannels == 0 ? smaller(shape.group, shape.dim) : shape.dim};
  }
  static BUTTER_INLINE int64_t plane_bytes(const RowShape& shape) {
    return int64_t{2} * kPageRows * ((shape.dim + shape.group - 1) / shape.group);
  }
  BUTTER_INLINE void fetch_ahead_of(const RowShape& shape) const { fetch_ahead(s, 2 * plane_bytes(shape)); }
  static constexpr float kShrink = 1.0f / (1 << (8 - kBits));

  BUTTER_INLINE Vec::F scale(int group, int row) const {
    return Vec::mul(Vec::set(kShrink), Vec::load_f16(s + 2 * (group * kPageRows + row)));
  }
  // t, of a scale as above.
  BUTTER_INLINE Vec::F middle(int group, int row, Vec::F scale) const {
    return Vec::fma(Vec::set(128.0f), scale, Vec::load_f16(m + 2 * (group * kPageRows + row)));
  }
};

// 2^exponent; 0 below the normal floats.
BUTTER_INLINE float power_of_two(int exponent) {
  const uint32_t bits = exponent < -126 ? 0 : static_cast<uint32_t>(exponent + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

// A scale byte a row, no middle, and behind them the codes. A sum of dot products may run over 256 channels
// at most.
struct ByteScales {
  static constexpr int kCodeBits = 8;
  static constexpr bool kHasMiddle = false;
  static constexpr int kGroup = 256;
  const std::byte* bytes = nullptr;
  PackedCodes<kCodeBits> codes;
  float factor = 1;

  ByteScales(const RowShape& shape, const Record& record)
      : bytes(record.data),
        codes{bytes + kPageRows},
        factor(power_of_two(record.tail->exponent[static_cast<int>(shape.side)])) {}
  static Groups groups(const RowShape& shape) { return {shape.dim, smaller(shape.dim, kGroup)}; }
  BUTTER_INLINE void fetch_ahead_of(const RowShape&) const { fetch_ahead(bytes); }

  BUTTER_INLINE Vec::F scale(int, int row) const {
    return Vec::mul(Vec::set(factor), Dot::load_scale_bytes(bytes + row));
  }
  BUTTER_INLINE Vec::F middle(int, int, Vec::F) const { return Vec::zero(); }
};

// --- prepared queries

// For all heads, in the order in which score() reads:
//   unit   [heads]                        float
//   sums   [groups][heads]                float: Σ q over unit
//   starts [groups][heads][kStartWords]   what dot products start from
//   words  [dim / 4][heads][kWords]
template <class Query>
struct QueryAreas {
  float* unit;
  float* sums;
  int32_t* starts;
  int32_t* words;

  QueryAreas(const Groups& groups, int heads, std::byte* prepared)
      : unit(reinterpret_cast<float*>(prepared)),
        sums(unit + heads),
        starts(reinterpret_cast<int32_t*>(sums + groups.count() * heads)),
        words(starts + groups.count() * heads * Query::kStartWords) {}
};

// Of `count` numbers, a multiple of 16.
BUTTER_INLINE float largest_magnitude(const float* x, int count) {
  Vec::F highest = Vec::zero();
  for (int j = 0; j < count; j += Dot::kLanes) {
    const Vec::F own = Vec::load(x + j);
    highest = Vec::max(highest, Vec::max(own, Vec::sub(Vec::zero(), own)));
  }
  return Vec::highest(highest);
}

// Of as many: 0, or NaN where one is NaN or infinite.
BUTTER_INLINE float poison_of(const float* x, int count) {
  Vec::F sum = Vec::zero();
  for (int j = 0; j < count; j += Dot::kLanes) {
    const Vec::F own = Vec::load(x + j);
    sum = Vec::add(sum, Vec::sub(own, own));
  }
  return Vec::sum(sum);
}

template <class Scales>
using QueryOf = typename Dot::template Query<Scales::kCodeBits>;
template <class Scales>
using WeightsOf = typename Dot::template Weights<Scales::kCodeBits>;

template <class Scales>
int64_t prepared_bytes(const RowShape& shape, int heads) {
  using Query = QueryOf<Scales>;
  const Groups groups = Scales::groups(shape);
  return int64_t{4} * heads * (1 + groups.count() * (1 + Query::kStartWords) + shape.dim / 4 * Query::kWords);
}

template <class Scales>
void prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  using Query = QueryOf<Scales>;
  const Groups groups = Scales::groups(shape);
  const QueryAreas<Query> areas(groups, heads, prepared);
  for (int h = 0; h < heads; ++h, queries += shape.dim) {
    const float poison = poison_of(queries, shape.dim);
    const bool finite = poison == 0;  // else its words are 0 and its unit is NaN, and so are its scores
    float unit = largest_magnitude(queries, shape.dim) / Query::kLargest;
    if (!finite || !(unit > kSmallest)) unit = 0;
    const Vec::F factor = Vec::set(unit > 0 ? 1 / unit : 0);
    areas.unit[h] = unit + poison;
    for (int group = 0; group < groups.count(); ++group) {
      const int index = group * heads + h;
      auto totals = Query::no_totals();
      Vec::F sum = Vec::zero();
      for (int j = group * groups.size; j < groups.end(group); j += kStripChannels) {
        Vec::F over_unit[kSubs];
        for (int i = 0; i < kSubs; ++i) {
          const Vec::F own = Vec::load(queries + j + i * Dot::kLanes);
          over_unit[i] = finite ? Vec::mul(factor, own) : Vec::zero();
          sum = Vec::add(sum, over_unit[i]);
        }
        Query::pack(over_unit, areas.words + (j / 4 * heads + h) * Query::kWords, heads * Query::kWords,
                    totals);
      }
      Query::make_starts(totals, areas.starts + index * Query::kStartWords);
      areas.sums[index] = Vec::sum(sum);
    }
  }
}

// --- score

template <class Scales, int kHeads>
void score_heads(const RowShape& shape, int heads, int first, const std::byte* prepared, const Record& record,
                 float* scores) {
  using Query = QueryOf<Scales>;
  constexpr int kVectors = Query::vectors(kHeads);
  const Groups groups = Scales::groups(shape);
  const Scales scales(shape, record);
  scales.fetch_ahead_of(shape);
  const QueryAreas<Query> query(groups, heads, const_cast<std::byte*>(prepared));
  const int word_step = heads * Query::kWords;
  for (int row = 0; row < kPageRows; row += kVectors * Dot::kLanes) {
    Vec::F totals[kVectors][kHeads];
    for (auto& of_vector : totals) {
      for (Vec::F& total : of_vector) total = Vec::zero();
    }
    const int32_t* words = query.words + first * Query::kWords;
    for (int group = 0; group < groups.count(); ++group) {
      const int index = group * heads + first;
      typename Query::Sum sums[kVectors][kHeads];
      for (int h = 0; h < kHeads; ++h) {
        const auto start = Query::start(query.starts + (index + h) * Query::kStartWords);
        for (int n = 0; n < kVectors; ++n) sums[n][h] = start;
      }
      for (int j = group * groups.size; j < groups.end(group); j += kStripChannels) {
        unrolled<kStripVectors>([&]<int i>() __attribute__((always_inline)) {
          typename Dot::Codes key[kVectors];
          for (int n = 0; n < kVectors; ++n) {
            const int at = row + n * Dot::kLanes;
            const int64_t place = int64_t{j} + at / kBlockRows * kStripVectors;
            key[n] = scales.codes.template load<i>(place, at % kBlockRows / Dot::kLanes);
          }
          for (int h = 0; h < kHeads; ++h) {
            for (int n = 0; n < kVectors; ++n) Query::add(sums[n][h], key[n], words + h * Query::kWords);
          }
          words += word_step;
        });
      }
      for (int n = 0; n < kVectors; ++n) {
        const Vec::F scale = scales.scale(group, row + n * Dot::kLanes);
        const Vec::F middle = scales.middle(group, row + n * Dot::kLanes, scale);
        for (int h = 0; h < kHeads; ++h) {
          totals[n][h] = Vec::fma(scale, Query::to_float(sums[n][h]), totals[n][h]);
          if constexpr (Scales::kHasMiddle)
            totals[n][h] = Vec::fma(middle, Vec::set(query.sums[index + h]), totals[n][h]);
        }
      }
    }
    for (int n = 0; n < kVectors; ++n) {
      for (int h = 0; h < kHeads; ++h) {
        Vec::store(scores + h * kPageRows + row + n * Dot::kLanes,
                   Vec::mul(Vec::set(query.unit[first + h]), totals[n][h]));
      }
    }
  }
}

// Calls fn<heads>(index of the first) for groups of at most Dot::kHeads heads, as even as they can be.
template <typename Fn>
BUTTER_INLINE void for_head_groups(int heads, const Fn& fn) {
  const int passes = (heads + Dot::kHeads - 1) / Dot::kHeads;
  for (int pass = 0, first = 0; pass < passes; ++pass) {
    const int count = (heads - first) / (passes - pass);
    if (count == 1) fn.template operator()<1>(first);
    if (count == 2) fn.template operator()<2>(first);
    if constexpr (Dot::kHeads > 2) {
      if (count == 3) fn.template operator()<3>(first);
      if (count == 4) fn.template operator()<4>(first);
    }
    first += count;
  }
}

template <class Scales>
void score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record, float* scores) {
  for_head_groups(heads, [&]<int kHeads>(int first) {
    score_heads<Scales, kHeads>(shape, heads, first, prepared, record, scores + first * kPageRows);
  });
}

// --- accumulate

// The weights of up to kHeads heads, as a page's values meet them: w over the largest of its head, times
// kLargest.
template <class Weights, int kHeads>
struct HeadWeights {
  float tops[4] = {1, 1, 1, 1};  // the largest of each
  Vec::F scaled[kHeads][kPageVectors];
  Vec::F alive[kPageVectors];  // not 0 where a row has a weight

  explicit BUTTER_INLINE HeadWeights(const float* weights) {
    Vec::F highest[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
    for (int i = 0; i < kPageVectors; ++i) {
      for (int h = 0; h < kHeads; ++h) {
        const Vec::F weight = Vec::load(weights + h * kPageRows + i * Dot::kLanes);
        scaled[h][i] = weight;
        alive[i] = h == 0 ? weight : Vec::add(alive[i], weight);
        highest[h] = i == 0 ? weight : Vec::max(highest[h], weight);
      }
    }
    if constexpr (Weights::kHasUnit) {
      Vec::highest(highest[0], highest[1], highest[2], highest[3], tops);
      for (int h = 0; h < kHeads; ++h) {
        const Vec::F factor = Vec::set(tops[h] > kSmallest ? Weights::kLargest / tops[h] : 0);
        for (int i = 0; i < kPageVectors; ++i) scaled[h][i] = Vec::mul(factor, scaled[h][i]);
      }
    }
  }
};

// The same for a span of groups of channels: times the scale over the group's largest.
template <class Weights, int kHeads>
struct SpanWeights {
  alignas(64) int32_t words[kSpanGroups][kHeads][Weights::kWords];
  float units[kSpanGroups][kHeads];            // of a dot product
  alignas(16) float middles[kSpanGroups * 4];  // Σ w·t
};

// tops[i] = the largest scale of group `first` + i, of rows that count.
template <class Scales>
BUTTER_INLINE void find_tops(const Scales& scales, const Vec::F* alive, int first, int count, float* tops) {
  Vec::F highest[kSpanGroups];
  for (int g = 0; g < count; ++g) {
    highest[g] = Dot::keep(scales.scale(first + g, 0), alive[0]);
    for (int i = 1; i < kPageVectors; ++i)
      highest[g] = Vec::max(highest[g], Dot::keep(scales.scale(first + g, i * Dot::kLanes), alive[i]));
  }
  for (int g = count; g % 4 != 0; ++g) highest[g] = Vec::zero();
  for (int g = 0; g < count; g += 4)
    Vec::highest(highest[g], highest[g + 1], highest[g + 2], highest[g + 3], tops + g);
}

template <class Scales, int kHeads>
BUTTER_INLINE void weigh_group(const Scales& scales, const HeadWeights<WeightsOf<Scales>, kHeads>& heads,
                               int group, int at, float top, SpanWeights<WeightsOf<Scales>, kHeads>& out) {
  using Weights = WeightsOf<Scales>;
  const Vec::F factor = Vec::set(!Weights::kHasUnit ? 1 : top > kSmallest ? 1 / top : 0);
  Vec::F scale[kPageVectors], middle[kPageVectors];
  for (int i = 0; i < kPageVectors; ++i) {
    const Vec::F own = Dot::keep(scales.scale(group, i * Dot::kLanes), heads.alive[i]);
    scale[i] = Vec::mul(factor, own);
    if constexpr (Scales::kHasMiddle)
      middle[i] = Dot::keep(scales.middle(group, i * Dot::kLanes, own), heads.alive[i]);
  }
  Vec::F sums[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  for (int h = 0; h < kHeads; ++h) {
    Vec::F numbers[kPageVectors];
    for (int i = 0; i < kPageVectors; ++i) {
      numbers[i] = Vec::mul(heads.scaled[h][i], scale[i]);
      if constexpr (Scales::kHasMiddle) sums[h] = Vec::fma(heads.scaled[h][i], middle[i], sums[h]);
    }
    Weights::pack(numbers, out.words[at][h]);
    out.units[at][h] = heads.tops[h] * (1 / Weights::kLargest) * top;
  }
  if constexpr (Scales::kHasMiddle) {
    float* middles = out.middles + 4 * at;
    Vec::sums(sums[0], sums[1], sums[2], sums[3], middles);
    for (int h = 0; h < kHeads; ++h) middles[h] *= heads.tops[h] * (1 / Weights::kLargest);
  }
}

// All groups of a span at once: one's arithmetic hides the latency of another's.
template <class Scales, int kHeads>
BUTTER_INLINE void weigh_span(const Scales& scales, const HeadWeights<WeightsOf<Scales>, kHeads>& heads,
                              int first, int count, SpanWeights<WeightsOf<Scales>, kHeads>& out) {
  alignas(16) float tops[kSpanGroups];
  for (float& top : tops) top = 1;
  if constexpr (WeightsOf<Scales>::kHasUnit) find_tops(scales, heads.alive, first, count, tops);
  for (int g = 0; g < count; ++g) weigh_group<Scales, kHeads>(scales, heads, first + g, g, tops[g], out);
}

// Where a page has one group, weights are over the largest of w·s itself: one search for it in place of two
// that wait for one another.
template <class Scales, int kHeads>
BUTTER_INLINE void weigh_single_group(const Scales& scales, const float* weights,
                                      SpanWeights<WeightsOf<Scales>, kHeads>& out) {
  using Weights = WeightsOf<Scales>;
  Vec::F numbers[kHeads][kPageVectors];
  Vec::F highest[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  Vec::F sums[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  for (int i = 0; i < kPageVectors; ++i) {
    Vec::F alive = Vec::zero();
    for (int h = 0; h < kHeads; ++h) {
      numbers[h][i] = Vec::load(weights + h * kPageRows + i * Dot::kLanes);
      alive = Vec::add(alive, numbers[h][i]);
    }
    const Vec::F scale = Dot::keep(scales.scale(0, i * Dot::kLanes), alive);
    const Vec::F middle = Dot::keep(scales.middle(0, i * Dot::kLanes, scale), alive);
    for (int h = 0; h < kHeads; ++h) {
      if constexpr (Scales::kHasMiddle) sums[h] = Vec::fma(numbers[h][i], middle, sums[h]);
      numbers[h][i] = Vec::mul(numbers[h][i], scale);
      highest[h] = Vec::max(highest[h], numbers[h][i]);
    }
  }
  alignas(16) float tops[4] = {1, 1, 1, 1};
  if constexpr (Weights::kHasUnit) Vec::highest(highest[0], highest[1], highest[2], highest[3], tops);
  for (int h = 0; h < kHeads; ++h) {
    const Vec::F factor = Vec::set(tops[h] > kSmallest ? Weights::kLargest / tops[h] : 0);
    for (Vec::F& number : numbers[h]) number = Vec::mul(factor, number);
    Weights::pack(numbers[h], out.words[0][h]);
    out.units[0][h] = tops[h] * (1 / Weights::kLargest);
  }
  if constexpr (Scales::kHasMiddle) Vec::sums(sums[0], sums[1], sums[2], sums[3], out.middles);
}

// Strips in the span that a column (a strip of values) belongs to.
BUTTER_INLINE int strips_of_span(int dim, int column) {
  return smaller(kSpanStrips, dim / kStripChannels - column / kSpanStrips * kSpanStrips);
}

// kColumns columns of 16 channels from `column` on, of one span; kShare neighbours have a group in common.
// kPhased: columns stand at the same places modulo 4 in every quad of rows, `column` at 0 (of 4 bits: modulo
// 2).
template <class Scales, int kHeads, int kColumns, int kShare, bool kPhased>
BUTTER_INLINE void accumulate_columns(const PackedCodes<Scales::kCodeBits>& codes, int dim, int column,
                                      const SpanWeights<WeightsOf<Scales>, kHeads>& weights, int group,
                                      float* acc) {
  using Weights = WeightsOf<Scales>;
  typename Weights::Sum sums[kHeads][kColumns * kSubs];
  for (auto& of_head : sums) {
    for (auto& sum : of_head) sum = Weights::zero();
  }
  const int strips = strips_of_span(dim, column);
  int64_t place = int64_t{kStripChannels} * (column / kSpanStrips * kSpanStrips) + column % kSpanStrips;
  for (int high = 0; high < 4; ++high) {
#pragma GCC unroll 1
    for (int low = 0; low < 4; ++low, place += strips) {
      typename Dot::Codes value[kColumns * kSubs];
      unrolled<kColumns>([&]<int c>() __attribute__((always_inline)) {
        for (int sub = 0; sub < kSubs; ++sub) {
          if constexpr (kPhased)
            value[c * kSubs + sub] = codes.template load<c>(place, sub);
          else
            value[c * kSubs + sub] = codes.load_any(place + c, sub);
        }
      });
      for (int h = 0; h < kHeads; ++h) {
        for (int c = 0; c < kColumns * kSubs; ++c) {
          const int32_t* words = weights.words[group + c / (kShare * kSubs)][h];
          Weights::add(sums[h][c], value[c], Weights::of_quad(words, high, low));
        }
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int c = 0; c < kColumns * kSubs; ++c) {
      const int at = group + c / (kShare * kSubs);
      float* out = acc + h * dim + column * kStripChannels + c * Dot::kLanes;
      Vec::F sum = Vec::load(out);
      if constexpr (Scales::kHasMiddle) sum = Vec::add(sum, Vec::set(weights.middles[4 * at + h]));
      Vec::store(out, Vec::fma(Vec::set(weights.units[at][h]), Weights::to_float(sums[h][c]), sum));
    }
  }
}

// Columns [begin, end), whose groups are those of a span.
template <class Scales, int kHeads>
BUTTER_INLINE void accumulate_span(const Scales& scales, int dim, const Groups& groups, int begin, int end,
                                   const SpanWeights<WeightsOf<Scales>, kHeads>& weights, float* acc) {
  constexpr int kBits = Scales::kCodeBits;
  constexpr int kColumns = WeightsOf<Scales>::columns(kHeads);
  const int first_group = begin * kStripChannels / groups.size;
  int column = begin;
  const auto step = [&]<int kWidth, int kShare, bool kPhased>() __attribute__((always_inline)) {
    for (; column + kWidth <= end; column += kWidth) {
      if (kPhased && kBits == 4 && strips_of_span(dim, column) % 2 != 0) return;
      const int group = column * kStripChannels / groups.size - first_group;
      accumulate_columns<Scales, kHeads, kWidth, kShare, kPhased>(scales.codes, dim, column, weights, group,
                                                                  acc);
    }
  };
  const bool pairs = groups.count() == 1 || groups.size % 32 == 0;
  if constexpr (kColumns >= 4) {
    if (groups.count() == 1 || groups.size % 64 == 0) step.template operator()<4, 4, true>();
    if constexpr (Scales::kHasMiddle) {
      if (pairs) step.template operator()<4, 2, true>();
    }
  }
  // Of 6 bits two columns are half of what shares a byte.
  if constexpr (kColumns >= 2 && kBits != 6) {
    if (pairs) step.template operator()<2, 2, true>();
  }
  step.template operator()<1, 1, kBits == 8>();
}

template <class Scales, int kHeads>
void accumulate_heads(const RowShape& shape, const float* weights, const Record& record, float* acc) {
  using Weights = WeightsOf<Scales>;
  const Groups groups = Scales::groups(shape);
  const Scales scales(shape, record);
  scales.fetch_ahead_of(shape);
  const int all_columns = shape.dim / kStripChannels;
  SpanWeights<Weights, kHeads> of_span;
  if (groups.count() == 1) {
    weigh_single_group<Scales, kHeads>(scales, weights, of_span);
    return accumulate_span<Scales, kHeads>(scales, shape.dim, groups, 0, all_columns, of_span, acc);
  }
  const HeadWeights<Weights, kHeads> of_heads(weights);
  const int span = kSpanGroups * groups.size / kStripChannels;
  for (int begin = 0; begin < all_columns; begin += span) {
    const int end = smaller(all_columns, begin + span);
    const int first_group = begin * kStripChannels / groups.size;
    const int last_group = (end * kStripChannels - 1) / groups.size;
    weigh_span<Scales, kHeads>(scales, of_heads, first_group, last_group - first_group + 1, of_span);
    accumulate_span<Scales, kHeads>(scales, shape.dim, groups, begin, end, of_span, acc);
  }
}

template <class Scales>
void accumulate(const RowShape& shape, const float* weights, int heads, const Record& record, float* acc) {
  for_head_groups(heads, [&]<int kHeads>(int first) {
    accumulate_heads<Scales, kHeads>(shape, weights + first * kPageRows, record, acc + first * shape.dim);
  });
}

// --- whole rows

constexpr int kStripParts = kStripChannels / Dot::kLanes;

// s·code + m, as the format says it, in two roundings.
template <int kBits>
void expand_affine(const RowShape& shape, const Record& record, float* rows) {
  const CodeOrder order{shape.dim, kBits, shape.side, false};
  const Groups groups = AffineScales<kBits>::groups(shape);
  const AffineScales<kBits> planes(shape, record);
  const std::byte* codes = planes.codes.codes;
  CodeStrip strip;
  for (int index = 0; index < shape.dim / kStripChannels; ++index) {
    unpack_strip(order, index, codes, strip);
    const int group = index * kStripChannels / groups.size;
    alignas(64) float s[kPageRows], m[kPageRows];
    for (int row = 0; row < kPageRows; row += Dot::kLanes) {
      Vec::store(s + row, Vec::load_f16(planes.s + 2 * (group * kPageRows + row)));
      Vec::store(m + row, Vec::load_f16(planes.m + 2 * (group * kPageRows + row)));
    }
    for (int row = 0; row < record.rows; ++row) {
      for (int part = 0; part < kStripParts; ++part) {
        const Vec::F code = Dot::load_unsigned(strip.codes[row] + part * Dot::kLanes);
        Vec::store(rows + row * shape.dim + index * kStripChannels + part * Dot::kLanes,
                   Vec::add(Vec::mul(Vec::set(s[row]), code), Vec::set(m[row])));
      }
    }
  }
}

void expand_integers(const RowShape& shape, const Record& record, float* rows) {
  const CodeOrder order{shape.dim, 8, shape.side, true};
  const ByteScales scales(shape, record);
  alignas(64) float factors[kPageRows];
  for (int row = 0; row < kPageRows; row += Dot::kLanes) Vec::store(factors + row, scales.scale(0, row));
  const std::byte* codes = scales.codes.codes;
  CodeStrip strip;
  for (int index = 0; index < shape.dim / kStripChannels; ++index) {
    unpack_strip(order, index, codes, strip);
    for (int row = 0; row < record.rows; ++row) {
      for (int part = 0; part < kStripParts; ++part) {
        const Vec::F code = Dot::load_signed(strip.codes[row] + part * Dot::kLanes);
        Vec::store(rows + row * shape.dim + index * kStripChannels + part * Dot::kLanes,
                   Vec::mul(Vec::set(factors[row]), code));
      }
    }
  }
}

// codes[count] = x rounded, within [lowest, highest]; count is a multiple of 16.
BUTTER_INLINE void store_codes(const Vec::F x, float lowest, float highest, uint8_t* codes) {
  Dot::store_bytes(codes, Vec::max(Dot::lower(Dot::round(x), Vec::set(highest)), Vec::set(lowest)));
}

void encode_affine(const RowShape& shape, const float* rows, uint8_t* codes, std::byte* planes) {
  constexpr float kLargestFp16 = 65504;
  const int size = smaller(shape.group, shape.dim), groups = (shape.dim + size - 1) / size;
  const float largest_code = static_cast<float>((1 << shape.bits) - 1);
  for (int row = 0; row < kPageRows; ++row) {
    for (int group = 0; group < groups; ++group) {
      const int first = group * size, end = smaller(shape.dim, first + size);
      const float* x = rows + row * shape.dim;
      Vec::F highest = Vec::load(x + first), lowest = highest;
      for (int j = first + Dot::kLanes; j < end; j += Dot::kLanes) {
        highest = Vec::max(highest, Vec::load(x + j));
        lowest = Dot::lower(lowest, Vec::load(x + j));
      }
      const float low = -Vec::highest(Vec::sub(Vec::set(-0.0f), lowest));
      const uint16_t s16 = float_to_fp16(smaller((Vec::highest(highest) - low) / largest_code, kLargestFp16));
      const uint16_t m16 = float_to_fp16(larger(smaller(low + 0.0f, kLargestFp16), -kLargestFp16));
      const int64_t at = 2 * (int64_t{group} * kPageRows + row);
      std::memcpy(planes + at, &s16, sizeof s16);
      std::memcpy(planes + 2 * int64_t{groups} * kPageRows + at, &m16, sizeof m16);
      const float s = fp16_to_float(s16), m = fp16_to_float(m16);
      uint8_t* out = codes + row * shape.dim;
      if (s == 0) {
        std::memset(out + first, 0, static_cast<size_t>(end - first));
        continue;
      }
      for (int j = first; j < end; j += Dot::kLanes) {
        const Vec::F quotient = Dot::divide(Vec::sub(Vec::load(x + j), Vec::set(m)), Vec::set(s));
        store_codes(quotient, 0, largest_code, out + j);
      }
    }
  }
}

void encode_integers(int dim, const float* rows, const float* scales, uint8_t* codes) {
  for (int row = 0; row < kPageRows; ++row, rows += dim, codes += dim) {
    if (scales[row] == 0) {
      std::memset(codes, 0, static_cast<size_t>(dim));
      continue;
    }
    const Vec::F scale = Vec::set(scales[row]);
    for (int j = 0; j < dim; j += Dot::kLanes)
      store_codes(Dot::divide(Vec::load(rows + j), scale), -127, 127, codes + j);
  }
}

void find_largest(int dim, const float* rows, float* largest) {
  for (int row = 0; row < kPageRows; ++row) largest[row] = largest_magnitude(rows + row * dim, dim);
}

// --- the table

// Calls fn<AffineScales<bits>>().
template <typename Fn>
auto for_bits(int bits, const Fn& fn) {
  if (bits == 4) return fn.template operator()<4>();
  if (bits == 6) return fn.template operator()<6>();
  return fn.template operator()<8>();
}

int64_t affine_prepared_bytes(const RowShape& shape, int heads) {
  return for_bits(shape.bits, [&]<int kBits>() { return prepared_bytes<AffineScales<kBits>>(shape, heads); });
}
void affine_prepare(const RowShape& shape, const float* queries, int heads, std::byte* prepared) {
  for_bits(shape.bits, [&]<int kBits>() { prepare<AffineScales<kBits>>(shape, queries, heads, prepared); });
}
void affine_score(const RowShape& shape, const std::byte* prepared, int heads, const Record& record,
                  float* scores) {
  for_bits(shape.bits,
           [&]<int kBits>() { score<AffineScales<kBits>>(shape, prepared, heads, record, scores); });
}
void affine_accumulate(const RowShape& shape, const float* weights, int heads, const Record& record,
                       float* acc) {
  for_bits(shape.bits,
           [&]<int kBits>() { accumulate<AffineScales<kBits>>(shape, weights, heads, record, acc); });
}
void affine_expand(const RowShape& shape, const Record& record, float* rows) {
  for_bits(shape.bits, [&]<int kBits>() { expand_affine<kBits>(shape, record, rows); });
}

constexpr CodeKernelTable kCodeKernels = {
    {affine_prepared_bytes, affine_prepare, affine_score, affine_accumulate, affine_expand, encode_affine,
     encode_integers, find_largest},
    {prepared_bytes<ByteScales>, prepare<ByteScales>, score<ByteScales>, accumulate<ByteScales>,
     expand_integers, encode_affine, encode_integers, find_largest}};

}  // namespace
}  // namespace butter::cpu

#undef BUTTER_INLINE
