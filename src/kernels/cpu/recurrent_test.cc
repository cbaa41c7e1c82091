// Parity of the CPU's recurrent mixers with the reference, position by position and in chunks, for every
// instruction set that this machine has; the bounds are those of recurrent.h. Widths are none of a vector's.
#include "kernels/cpu/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/buffer.h"
#include "kernels/reference/recurrent.h"

namespace butter {
namespace {

constexpr float kTokenError = 2e-6f;
constexpr float kChunkError = 2e-5f;
// Fewer than a chunk form has, a few, a chunk but one, a chunk, one more, several and a rest.
constexpr int64_t kRowCounts[] = {1, 7, 16, 63, 64, 65, 150};

using Floats = std::vector<float>;

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  Floats normal(int64_t count, float size, float mean = 0) {
    std::normal_distribution<float> values(mean, size);
    Floats made(static_cast<size_t>(count));
    for (float& value : made) value = values(random_);
    return made;
  }
  // Decays a, which are negative.
  Floats negative(int64_t count) {
    Floats made = normal(count, 1);
    for (float& value : made) value = -std::exp(value);
    return made;
  }

 private:
  std::mt19937 random_;
};

float largest(const Floats& values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

void expect_near(const Floats& found, const Floats& expected, float error, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  const float bound = error * largest(expected);
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], bound) << what << " " << i << " of " << found.size();
}

// Scratch that is as long as was asked for, so that sanitizers see what goes beyond it.
class Scratch {
 public:
  explicit Scratch(int64_t floats) : buffer_(Buffer::allocate(floats * 4).value()) {}
  float* data() { return reinterpret_cast<float*>(buffer_.data()); }

 private:
  Buffer buffer_;
};

cpu::StridedRows strided(Floats& rows, int64_t stride) {
  return {rows.data(), stride};
}

class RecurrentOnEachIsa : public testing::TestWithParam<Isa> {
 protected:
  const cpu::Recurrent& ops_ = cpu::recurrent(GetParam());

  static float error_of(int64_t rows) { return rows < 16 ? kTokenError : kChunkError; }
};

INSTANTIATE_TEST_SUITE_P(Isas, RecurrentOnEachIsa, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

TEST_P(RecurrentOnEachIsa, ConvolutionEqualsTheReferenceHoweverRowsAreCut) {
  constexpr int64_t kChannels = 53, kStride = 60;
  for (const int taps : {1, 2, 4}) {
    for (const bool biased : {false, true}) {
      Random random(static_cast<unsigned>(taps));
      Floats in = random.normal(150 * kStride, 1), bias = random.normal(kChannels, 1);
      const Floats weight = random.normal(taps * kChannels, 1);
      Floats past(static_cast<size_t>((taps - 1) * kChannels)), expected(150 * kStride);
      ConvOp op;
      op.taps = taps;
      for (int64_t t = 0; t < 150; ++t) {
        reference::conv(op, kChannels, weight.data(), biased ? bias.data() : nullptr, in.data() + t * kStride,
                        past.data(), expected.data() + t * kStride);
      }
      for (const int64_t chunk : {1, 2, 5, 150}) {
        Floats out(expected.size()), state(past.size()), next(past.size());
        bool first = true;
        for (int64_t t = 0; t < 150; t += chunk) {
          cpu::ConvRows rows;
          rows.in = {in.data() + t * kStride, kStride};
          rows.out = {out.data() + t * kStride, kStride};
          rows.rows = std::min(chunk, 150 - t);
          rows.channels = kChannels;
          rows.taps = taps;
          rows.weight = weight.data();
          rows.bias = biased ? bias.data() : nullptr;
          rows.past = first ? nullptr : state.data();
          rows.next_past = next.data();
          ops_.conv(rows, 0, 16);
          ops_.conv(rows, 16, kChannels);
          state = next;
          first = false;
        }
        expect_near(out, expected, kTokenError, "output");
        expect_near(state, past, 0, "state");
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, Mamba2EqualsTheReferenceInTokensAndChunks) {
  for (const auto& [heads, dim, groups, size] :
       {std::array{4, 64, 2, 128}, std::array{3, 20, 1, 17}, std::array{2, 32, 2, 16}}) {
    Mamba2Op op;
    op.heads = heads;
    op.head_dim = dim;
    op.groups = groups;
    op.state_size = size;
    op.dt_min = 0.001f;
    op.dt_max = 0.5f;
    Random random(static_cast<unsigned>(dim));
    const int64_t width = heads * dim + 2 * groups * size, stride = width + 5;
    const Floats decay = random.negative(heads), skip = random.normal(heads, 1),
                 bias = random.normal(heads, 1, -3);
    const Floats begin = random.normal(heads * size * dim, 1);
    Scratch scratch(cpu::recurrent_scratch_floats(op));
    for (const int64_t count : kRowCounts) {
      for (const bool zeros : {false, true}) {
        Floats conv = random.normal(count * stride, 1), dt = random.normal(count * heads, 2);
        Floats state = zeros ? Floats(begin.size()) : begin,
               expected(static_cast<size_t>(count * heads * dim));
        for (int64_t t = 0; t < count; ++t) {
          reference::mamba2(op, {decay.data(), skip.data(), bias.data()}, conv.data() + t * stride,
                            dt.data() + t * heads, state.data(), expected.data() + t * heads * dim);
        }
        Floats out(expected.size()), next(begin.size(), NAN);
        cpu::Mamba2Rows rows;
        rows.op = &op;
        rows.conv = strided(conv, stride);
        rows.dt = strided(dt, heads);
        rows.out = strided(out, heads * dim);
        rows.rows = count;
        rows.decay = decay.data();
        rows.skip = skip.data();
        rows.dt_bias = bias.data();
        rows.state = zeros ? nullptr : begin.data();
        rows.next_state = next.data();
        EXPECT_TRUE(ops_.mamba2(rows, 0, 1, scratch.data()));
        EXPECT_TRUE(ops_.mamba2(rows, 1, heads, scratch.data()));
        SCOPED_TRACE(testing::Message() << count << " rows of heads of " << dim);
        expect_near(out, expected, error_of(count), "output");
        expect_near(next, state, error_of(count), "state");
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, Mamba1EqualsTheReference) {
  constexpr int64_t kWidth = 53;
  for (const int size : {1, 16, 19}) {
    Mamba1Op op;
    op.state_size = size;
    Random random(static_cast<unsigned>(size));
    const Floats decay = random.negative(size * kWidth), skip = random.normal(kWidth, 1);
    const Floats begin = random.normal(size * kWidth, 1);
    for (const int64_t count : kRowCounts) {
      for (const bool zeros : {false, true}) {
        // dt up to where softplus is its argument, and down to where it is as good as zero.
        Floats x = random.normal(count * kWidth, 1), dt = random.normal(count * kWidth, 12, -4);
        Floats b = random.normal(count * size, 1), c = random.normal(count * size, 1);
        Floats state = zeros ? Floats(begin.size()) : begin, expected(x.size());
        for (int64_t t = 0; t < count; ++t) {
          reference::mamba1(
              op, kWidth, decay.data(), skip.data(),
              {x.data() + t * kWidth, dt.data() + t * kWidth, b.data() + t * size, c.data() + t * size},
              state.data(), expected.data() + t * kWidth);
        }
        Floats out(x.size()), next(begin.size(), NAN);
        cpu::Mamba1Rows rows;
        rows.x = strided(x, kWidth);
        rows.dt = strided(dt, kWidth);
        rows.b = strided(b, size);
        rows.c = strided(c, size);
        rows.out = strided(out, kWidth);
        rows.rows = count;
        rows.width = kWidth;
        rows.state_size = size;
        rows.decay = decay.data();
        rows.skip = skip.data();
        rows.state = zeros ? nullptr : begin.data();
        rows.next_state = next.data();
        EXPECT_TRUE(ops_.mamba1(rows, 0, 32));
        EXPECT_TRUE(ops_.mamba1(rows, 32, kWidth));
        expect_near(out, expected, kTokenError, "output");
        expect_near(next, state, kTokenError, "state");
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, DeltaRuleEqualsTheReferenceInTokensAndChunks) {
  for (const auto& [key_heads, heads, key_dim, dim] :
       {std::array{2, 4, 128, 128}, std::array{2, 6, 20, 17}, std::array{3, 3, 32, 40}}) {
    for (const bool tiled : {false, true}) {
      DeltaRuleOp op;
      op.key_heads = key_heads;
      op.value_heads = heads;
      op.key_dim = key_dim;
      op.value_dim = dim;
      op.tiled = tiled;
      Random random(static_cast<unsigned>(dim));
      const int64_t width = 2 * key_heads * key_dim + heads * dim, stride = width + 3;
      const Floats decay = random.negative(heads), bias = random.normal(heads, 1);
      const Floats begin = random.normal(heads * key_dim * dim, 1);
      Scratch scratch(cpu::recurrent_scratch_floats(op));
      Floats reference_scratch(static_cast<size_t>(2 * key_dim + dim));
      for (const int64_t count : kRowCounts) {
        Floats conv = random.normal(count * stride, 1), beta = random.normal(count * heads, 1),
               alpha = random.normal(count * heads, 2, -2);
        Floats state = begin, expected(static_cast<size_t>(count * heads * dim));
        for (int64_t t = 0; t < count; ++t) {
          reference::delta_rule(op, decay.data(), bias.data(),
                                {conv.data() + t * stride, beta.data() + t * heads, alpha.data() + t * heads},
                                state.data(), reference_scratch.data(), expected.data() + t * heads * dim);
        }
        Floats out(expected.size()), next(begin.size(), NAN);
        cpu::DeltaRows rows;
        rows.op = &op;
        rows.conv = strided(conv, stride);
        rows.beta = strided(beta, heads);
        rows.alpha = strided(alpha, heads);
        rows.out = strided(out, heads * dim);
        rows.rows = count;
        rows.decay = decay.data();
        rows.dt_bias = bias.data();
        rows.state = begin.data();
        rows.next_state = next.data();
        EXPECT_TRUE(ops_.delta_rule(rows, 0, 1, scratch.data()));
        EXPECT_TRUE(ops_.delta_rule(rows, 1, heads, scratch.data()));
        SCOPED_TRACE(testing::Message()
                     << count << " rows of " << heads << " heads of " << dim << (tiled ? " tiled" : ""));
        expect_near(out, expected, error_of(count), "output");
        expect_near(next, state, error_of(count), "state");
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, AStateThatIsNoNumberIsReported) {
  Mamba1Op op;
  op.state_size = 2;
  Floats x(8, 1), dt(8, 0), b(2, 1), c(2, 1), out(8), next(16);
  const Floats decay(16, -1), skip(8, 1);
  for (const float bad : {NAN, INFINITY}) {
    x[5] = bad;
    cpu::Mamba1Rows rows;
    rows.x = strided(x, 8);
    rows.dt = strided(dt, 8);
    rows.b = strided(b, 2);
    rows.c = strided(c, 2);
    rows.out = strided(out, 8);
    rows.rows = 1;
    rows.width = 8;
    rows.state_size = 2;
    rows.decay = decay.data();
    rows.skip = skip.data();
    rows.next_state = next.data();
    EXPECT_TRUE(ops_.mamba1(rows, 0, 5));
    EXPECT_FALSE(ops_.mamba1(rows, 5, 8));
  }
}

// --- What is no number

// Inputs that give finite results, which a test spoils one by one.
struct Mamba1Case {
  static constexpr int64_t kWidth = 21, kSpoilt = 18;
  static constexpr int kSize = 3;

  explicit Mamba1Case(int64_t rows)
      : count(rows),
        x(rows * kWidth, 1),
        dt(rows * kWidth, 0.5f),
        b(rows * kSize, 1),
        c(rows * kSize, 1),
        decay(kSize * kWidth, -0.1f),
        skip(kWidth, 1),
        out(rows * kWidth),
        next(kSize * kWidth) {}

  bool run(const cpu::Recurrent& ops) {
    cpu::Mamba1Rows rows;
    rows.x = strided(x, kWidth);
    rows.dt = strided(dt, kWidth);
    rows.b = strided(b, kSize);
    rows.c = strided(c, kSize);
    rows.out = strided(out, kWidth);
    rows.rows = count;
    rows.width = kWidth;
    rows.state_size = kSize;
    rows.decay = decay.data();
    rows.skip = skip.data();
    rows.next_state = next.data();
    return ops.mamba1(rows, 0, kWidth);
  }
  float last(int64_t channel) const { return out[(count - 1) * kWidth + channel]; }

  int64_t count;
  Floats x, dt, b, c, decay, skip, out, next;
};

// Of both signs: one has the bits of a large number where arithmetic is on bits.
const float kNans[] = {NAN, -NAN};

TEST_P(RecurrentOnEachIsa, NotANumberStaysNotANumberThroughMamba1) {
  for (const int64_t count : {1, 7, 40}) {
    // The last row's channel, or that of the weight, gives NaN, its neighbour does not.
    const auto spoil = [&](Floats Mamba1Case::*what, int64_t at, float nan, bool in_state) {
      Mamba1Case spoilt(count);
      (spoilt.*what)[static_cast<size_t>(at)] = nan;
      EXPECT_EQ(spoilt.run(ops_), !in_state);
      EXPECT_TRUE(std::isnan(spoilt.last(Mamba1Case::kSpoilt)));
      EXPECT_FALSE(std::isnan(spoilt.last(Mamba1Case::kSpoilt - 1)));
    };
    EXPECT_TRUE(Mamba1Case(count).run(ops_));
    const int64_t row = (count - 1) * Mamba1Case::kWidth;
    for (const float nan : kNans) {
      SCOPED_TRACE(testing::Message() << count << " rows");
      spoil(&Mamba1Case::x, row + Mamba1Case::kSpoilt, nan, true);
      spoil(&Mamba1Case::dt, row + Mamba1Case::kSpoilt, nan, true);
      spoil(&Mamba1Case::dt, Mamba1Case::kSpoilt, nan, true);  // in the first row
      spoil(&Mamba1Case::skip, Mamba1Case::kSpoilt, nan, false);
      for (int n = 0; n < Mamba1Case::kSize; ++n)
        spoil(&Mamba1Case::decay, n * Mamba1Case::kWidth + Mamba1Case::kSpoilt, nan, true);
    }
  }
}

TEST_P(RecurrentOnEachIsa, NotANumberStaysNotANumberInWhatMamba1sChannelsShare) {
  for (const float nan : kNans) {
    Mamba1Case b(3), c(3);
    b.b[2 * Mamba1Case::kSize] = c.c[2 * Mamba1Case::kSize] = nan;
    EXPECT_FALSE(b.run(ops_));
    EXPECT_TRUE(c.run(ops_));
    for (int64_t i = 0; i < Mamba1Case::kWidth; ++i)
      EXPECT_TRUE(std::isnan(b.last(i)) && std::isnan(c.last(i))) << i;
  }
}

TEST_P(RecurrentOnEachIsa, AMamba1StateThatGrowsBeyondEveryFloatIsReported) {
  for (const float decay : {100.0f, 1000.0f, 1e6f, 3e38f, INFINITY}) {
    Mamba1Case grown(3);
    grown.decay[Mamba1Case::kSpoilt] = decay;
    EXPECT_FALSE(grown.run(ops_)) << decay;
  }
  Mamba1Case forgets(3);
  forgets.decay[Mamba1Case::kSpoilt] = -INFINITY;
  EXPECT_TRUE(forgets.run(ops_));
  EXPECT_FALSE(std::isnan(forgets.last(Mamba1Case::kSpoilt)));
}

TEST_P(RecurrentOnEachIsa, NotANumberStaysNotANumberThroughAConvolution) {
  constexpr int64_t kChannels = 21;
  constexpr int kTaps = 3;
  for (const float nan : kNans) {
    for (const int64_t at : {0, 7, 15, 16, 20}) {
      for (const int spoilt : {0, 1, 2}) {
        Floats in(2 * kChannels, 1), weight(kTaps * kChannels, 1), bias(kChannels, 1);
        Floats* const inputs[] = {&in, &weight, &bias};
        (*inputs[spoilt])[static_cast<size_t>(at)] = nan;
        Floats out(2 * kChannels), next((kTaps - 1) * kChannels);
        // A tap that meets the zeros before the first row is not used.
        const Floats past((kTaps - 1) * kChannels, 1);
        ops_.conv({strided(in, kChannels), strided(out, kChannels), 2, kChannels, kTaps, weight.data(),
                   bias.data(), past.data(), next.data()},
                  0, kChannels);
        for (int64_t i = 0; i < 2 * kChannels; ++i)
          EXPECT_EQ(std::isnan(out[static_cast<size_t>(i)]), i % kChannels == at) << spoilt;
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, NotANumberStaysNotANumberThroughMamba2) {
  Mamba2Op op;
  op.heads = 2;
  op.head_dim = 20;
  op.groups = 1;
  op.state_size = 17;
  op.dt_min = 0.001f;
  op.dt_max = 0.5f;
  const int64_t inner = op.heads * op.head_dim, stride = inner + 2 * op.state_size;
  Scratch scratch(cpu::recurrent_scratch_floats(op));
  for (const int64_t count : {1, 7, 16, 100}) {
    for (const float nan : kNans) {
      for (const int spoilt : {0, 1, 2, 3}) {  // all of head 0
        Floats conv(static_cast<size_t>(count * stride), 0.5f), dt(static_cast<size_t>(count * 2), 0.5f);
        Floats decay(2, -0.1f), bias(2, 0);
        Floats* const inputs[] = {&dt, &decay, &bias, &conv};
        (*inputs[spoilt])[0] = nan;
        Floats out(static_cast<size_t>(count * inner)), next(static_cast<size_t>(inner * op.state_size)),
            skip(2, 1);
        cpu::Mamba2Rows rows;
        rows.op = &op;
        rows.conv = strided(conv, stride);
        rows.dt = strided(dt, 2);
        rows.out = strided(out, inner);
        rows.rows = count;
        rows.decay = decay.data();
        rows.skip = skip.data();
        rows.dt_bias = bias.data();
        rows.next_state = next.data();
        EXPECT_FALSE(ops_.mamba2(rows, 0, 1, scratch.data())) << spoilt;
        EXPECT_TRUE(ops_.mamba2(rows, 1, 2, scratch.data())) << spoilt;
        for (int64_t t = 0; t < count; ++t) {
          EXPECT_TRUE(std::isnan(out[static_cast<size_t>(t * inner)])) << spoilt << " in row " << t;
          EXPECT_FALSE(std::isnan(out[static_cast<size_t>(t * inner + op.head_dim)])) << spoilt;
        }
      }
    }
  }
}

TEST_P(RecurrentOnEachIsa, NotANumberStaysNotANumberThroughTheDeltaRule) {
  DeltaRuleOp op;
  op.key_heads = op.value_heads = 2;
  op.key_dim = 20;
  op.value_dim = 17;
  const int64_t stride = 4 * op.key_dim + 2 * op.value_dim;
  Scratch scratch(cpu::recurrent_scratch_floats(op));
  for (const int64_t count : {1, 7, 16, 100}) {
    for (const float nan : kNans) {
      for (const int spoilt : {0, 1, 2, 3, 4, 5}) {  // all of head 0
        Floats conv(static_cast<size_t>(count * stride), 0.5f), beta(static_cast<size_t>(count * 2), 0.5f);
        Floats alpha = beta, decay(2, -0.1f), bias(2, 0);
        Floats* const inputs[] = {&beta, &alpha, &decay, &bias, &conv, &conv};
        (*inputs[spoilt])[spoilt == 5 ? static_cast<size_t>(2 * op.key_dim) : 0] = nan;  // 5: a key
        Floats out(static_cast<size_t>(count * 2 * op.value_dim)),
            next(static_cast<size_t>(2 * op.key_dim * op.value_dim));
        cpu::DeltaRows rows;
        rows.op = &op;
        rows.conv = strided(conv, stride);
        rows.beta = strided(beta, 2);
        rows.alpha = strided(alpha, 2);
        rows.out = strided(out, 2 * op.value_dim);
        rows.rows = count;
        rows.decay = decay.data();
        rows.dt_bias = bias.data();
        rows.next_state = next.data();
        EXPECT_EQ(ops_.delta_rule(rows, 0, 1, scratch.data()), spoilt == 4) << spoilt;  // no query stays
        EXPECT_TRUE(ops_.delta_rule(rows, 1, 2, scratch.data())) << spoilt;
        EXPECT_TRUE(std::isnan(out[0])) << spoilt;
        EXPECT_FALSE(std::isnan(out[static_cast<size_t>(op.value_dim)])) << spoilt;
      }
    }
  }
}

}  // namespace
}  // namespace butter
