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

}  // namespace
}  // namespace butter
