// Parity of the CPU's element-wise ops with the reference, for every instruction set that this machine has.
// The bounds are those of elementwise.h.
#include "kernels/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "kernels/reference/ops.h"

namespace butter {
namespace {

constexpr int64_t kCounts[] = {1, 3, 8, 15, 16, 31, 64, 96, 576, 577};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_floats(int64_t count, float size = 1) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class ElementwiseOnEachIsa : public testing::TestWithParam<Isa> {
 protected:
  const cpu::Elementwise& ops_ = cpu::elementwise(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseOnEachIsa, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

TEST_P(ElementwiseOnEachIsa, RmsNormEqualsTheReference) {
  for (int64_t run : kCounts) {
    for (int runs : {1, 3}) {
      const auto x = random_floats(run * runs, 3), weight = random_floats(run * runs);
      for (bool shared : {false, true}) {
        for (bool centred : {false, true}) {
          for (bool weighted : {false, true}) {
            RmsNormOp op;
            op.eps = 1e-5f;
            op.runs = runs;
            op.shared_weight = shared;
            op.centred = centred;
            const float* w = weighted ? weight.data() : nullptr;
            std::vector<float> expected(x.size()), got = x;
            reference::rms_norm(op, x.data(), run * runs, w, expected.data());
            ops_.rms_norm(op, got.data(), run * runs, w, got.data());  // in place
            for (size_t i = 0; i < x.size(); ++i)
              ASSERT_NEAR(got[i], expected[i], 1e-6f * (1 + std::abs(expected[i])));
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseOnEachIsa, RopeEqualsTheReferenceAndLeavesTheRest) {
  for (int64_t pairs : {1, 8, 12, 16, 32}) {
    RopeTable table;
    for (int64_t i = 0; i < pairs; ++i) table.inv_freq.push_back(std::pow(1e4, -double(i) / double(pairs)));
    table.amplitude = 1.25f;
    std::vector<float> cos(static_cast<size_t>(pairs)), sin(cos);
    RopeOp op;
    op.heads = 3;
    op.head_dim = static_cast<int>(2 * pairs + 6);
    for (int64_t position : {0, 1, 4097, 131071}) {
      reference::rope_angles(table.inv_freq, table.amplitude, position, cos.data(), sin.data());
      auto expected = random_floats(op.heads * op.head_dim), got = expected;
      const auto before = expected;
      reference::rope(op, pairs, cos.data(), sin.data(), expected.data());
      ops_.rope(op, pairs, cos.data(), sin.data(), got.data());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 1e-6f * (1 + std::abs(expected[i])));
        if (static_cast<int64_t>(i) % op.head_dim >= 2 * pairs) {
          ASSERT_EQ(got[i], before[i]);
        }
      }
    }
  }
}

TEST(RopeAngles, AreAccurateAtFarPositions) {
  RopeTable table;
  for (int i = 0; i < 64; ++i) table.inv_freq.push_back(std::pow(5e5, -i / 64.0));
  std::vector<float> cos(64), sin(64);
  for (int64_t position : {int64_t{7}, int64_t{131071}, int64_t{1} << 20}) {
    reference::rope_angles(table.inv_freq, table.amplitude, position, cos.data(), sin.data());
    for (size_t i = 0; i < 64; ++i) {
      // Half a float32 step of an angle below 2π, and of the result.
      EXPECT_NEAR(cos[i], std::cos(static_cast<double>(position) * table.inv_freq[i]), 4e-7);
      EXPECT_NEAR(sin[i], std::sin(static_cast<double>(position) * table.inv_freq[i]), 4e-7);
    }
  }
}

TEST_P(ElementwiseOnEachIsa, ActivationsEqualTheReference) {
  for (Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kSigmoid}) {
    for (int64_t count : kCounts) {
      auto gate = random_floats(count, 4);
      for (size_t i = 0; i + 6 < gate.size(); i += 7) gate[i] *= 30;  // far into the tails
      const auto up = random_floats(count);
      std::vector<float> expected(gate.size()), got(gate.size());
      reference::activate_mul(activation, gate.data(), up.data(), count, expected.data());
      ops_.activate_mul(activation, gate.data(), up.data(), count, got.data());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 1e-6f * std::abs(up[i]) * std::max(1.0f, std::abs(gate[i])))
            << gate[i];
      }
    }
  }
}

TEST_P(ElementwiseOnEachIsa, ActivationsOfExtremeValuesAreTheirLimits) {
  const std::vector<float> gate = {0, -0.0f, 88, -88, 1e4f, -1e4f, 3e38f, -3e38f};
  const std::vector<float> one(gate.size(), 1.0f);
  for (Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    std::vector<float> got(gate.size());
    ops_.activate_mul(activation, gate.data(), one.data(), 6, got.data());
    for (size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(got[i], std::max(gate[i], 0.0f), 1e-6f * std::abs(gate[i])) << gate[i];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float out = 0;
    ops_.activate_mul(activation, &nan, one.data(), 1, &out);
    EXPECT_TRUE(std::isnan(out));
  }
  std::vector<float> got(gate.size());
  ops_.activate_mul(Activation::kSilu, gate.data(), one.data(), 8, got.data());
  EXPECT_EQ(got[6], 3e38f);
  EXPECT_NEAR(got[7], 0.0f, 10.0f);  // −3e38 · e⁻⁸⁸: nothing beside its gate
}

TEST_P(ElementwiseOnEachIsa, AddAndScaleTouchTheirRowOnly) {
  for (int64_t count : kCounts) {
    const auto in = random_floats(count);
    std::vector<float> out(in.size() + 1, 2.0f);
    ops_.add(in.data(), 0.5f, count, out.data());
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_NEAR(out[i], 2.0f + 0.5f * in[i], 3e-7f * (2 + std::abs(in[i])));
    ops_.scale(3.0f, count, out.data());
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_NEAR(out[i], 6.0f + 1.5f * in[i], 2e-6f * (2 + std::abs(in[i])));
    EXPECT_EQ(out[in.size()], 2.0f);
  }
}

TEST_P(ElementwiseOnEachIsa, RoundsToHalvesAsCoreDoesAndSeesWhatIsNotFinite) {
  for (int64_t count : kCounts) {
    auto in = random_floats(count, 100);
    if (count > 8) in[5] = 3e-6f;  // a subnormal half
    std::vector<uint16_t> half(in.size()), brain(in.size());
    std::vector<float> copy(in.size());
    EXPECT_TRUE(ops_.to_f16(in.data(), count, half.data()));
    EXPECT_TRUE(ops_.to_bf16(in.data(), count, brain.data()));
    EXPECT_TRUE(ops_.copy(in.data(), count, copy.data()));
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(half[i], float_to_fp16(in[i]));
      ASSERT_EQ(brain[i], float_to_bf16(in[i]));
      ASSERT_EQ(copy[i], in[i]);
    }
    for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (int64_t at : {int64_t{0}, count / 2, count - 1}) {
        auto broken = in;
        broken[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(ops_.to_f16(broken.data(), count, half.data()));
        EXPECT_FALSE(ops_.to_bf16(broken.data(), count, brain.data()));
        EXPECT_FALSE(ops_.copy(broken.data(), count, copy.data()));
      }
    }
    auto large = in;
    large[0] = 65519.9f;
    EXPECT_TRUE(ops_.to_f16(large.data(), count, half.data()));
    large[0] = 65520.0f;
    EXPECT_FALSE(ops_.to_f16(large.data(), count, half.data()));
    EXPECT_TRUE(ops_.to_bf16(large.data(), count, brain.data()));
    large[0] = 3.4e38f;
    EXPECT_FALSE(ops_.to_bf16(large.data(), count, brain.data()));
    EXPECT_TRUE(ops_.copy(large.data(), count, copy.data()));
  }
}

}  // namespace
}  // namespace butter
