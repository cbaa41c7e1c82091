// Parity of the CPU's element-wise ops with the reference, for every instruction set that this machine has.
// The bounds are those of elementwise.h.
#include "kernels/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
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

// NaNs as an operation makes them, with the other sign, and with every bit of a payload.
std::vector<float> nans() {
  std::vector<float> made;
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffffffffu})
    made.push_back(std::bit_cast<float>(bits));
  return made;
}

// Calls each(count, nan, where it stands) for rows of whole vectors and of their rests.
template <typename Each>
void for_nans(const Each& each) {
  for (const int64_t count : kCounts) {
    for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
      for (const float nan : nans()) each(count, nan, static_cast<size_t>(at));
    }
  }
}

// Whether `got` is NaN at `at`, and elsewhere what it is without.
testing::AssertionResult nan_at(size_t at, const std::vector<float>& got, const std::vector<float>& without) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (i == at ? !std::isnan(got[i]) : got[i] != without[i])
      return testing::AssertionFailure()
             << got[i] << " at " << i << " of " << got.size() << ", NaN at " << at;
  }
  return testing::AssertionSuccess();
}

std::vector<GateFunction> all_functions() {
  std::vector<GateFunction> functions = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                         Activation::kSigmoid, Activation::kRelu};
  functions.emplace_back(Activation::kClampedSilu);
  functions.back().limit = 7;
  functions.back().alpha = 1.702f;
  return functions;
}

TEST_P(ElementwiseOnEachIsa, NotANumberStaysNotANumberThroughEveryActivation) {
  for (const GateFunction& function : all_functions()) {
    for_nans([&](int64_t count, float nan, size_t at) {
      const auto gate = random_floats(count, 4), up = random_floats(count, 4);
      std::vector<float> without(gate.size()), got(gate.size()), expected(gate.size());
      ops_.activate_mul(function, gate.data(), up.data(), count, without.data());
      auto bad_gate = gate, bad_up = up;
      bad_gate[at] = bad_up[at] = nan;
      ops_.activate_mul(function, bad_gate.data(), up.data(), count, got.data());
      EXPECT_TRUE(nan_at(at, got, without)) << "gate of " << static_cast<int>(function.activation);
      ops_.activate_mul(function, gate.data(), bad_up.data(), count, got.data());
      EXPECT_TRUE(nan_at(at, got, without)) << "up of " << static_cast<int>(function.activation);
      reference::activate_mul(function, bad_gate.data(), up.data(), count, expected.data());
      EXPECT_TRUE(std::isnan(expected[at]));
      reference::activate_mul(function, gate.data(), bad_up.data(), count, expected.data());
      EXPECT_TRUE(std::isnan(expected[at]));
    });
  }
}

TEST_P(ElementwiseOnEachIsa, NotANumberStaysNotANumberThroughNormsTurnsAndSums) {
  for_nans([&](int64_t count, float nan, size_t at) {
    const auto in = random_floats(count), ones = std::vector<float>(in.size(), 1.0f);
    auto bad = in;
    bad[at] = nan;
    std::vector<float> got(in.size()), without(in.size());
    RmsNormOp norm;
    ops_.rms_norm(norm, bad.data(), count, ones.data(), got.data());
    for (const float value : got) EXPECT_TRUE(std::isnan(value));
    ops_.rms_norm(norm, ones.data(), count, in.data(), without.data());
    ops_.rms_norm(norm, ones.data(), count, bad.data(), got.data());
    EXPECT_TRUE(nan_at(at, got, without)) << "a norm's weight";

    got = without = in;
    ops_.add(bad.data(), 0.5f, count, got.data());
    ops_.add(in.data(), 0.5f, count, without.data());
    EXPECT_TRUE(nan_at(at, got, without)) << "what is added";
    got = bad;
    ops_.scale(0, count, got.data());
    EXPECT_TRUE(nan_at(at, got, std::vector<float>(in.size(), 0.0f))) << "what is scaled";

    RopeOp rope;
    rope.heads = 1;
    rope.head_dim = static_cast<int>(2 * count);
    std::vector<float> row = in;
    row.insert(row.end(), bad.begin(), bad.end());
    ops_.rope(rope, count, ones.data(), ones.data(), row.data());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(std::isnan(row[i]), i % in.size() == at) << "a turn";
  });
}

// −0 included: nothing below tells it from 0, but results are the same to the bit.
TEST_P(ElementwiseOnEachIsa, ReluOfWhatIsNotAboveZeroIsZero) {
  const std::vector<float> gate = {-0.0f, 0, -1, -kInfinity, 2, kInfinity}, one(6, 1.0f);
  std::vector<float> got(6);
  ops_.activate_mul(Activation::kRelu, gate.data(), one.data(), 6, got.data());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), 0u) << gate[i];
  EXPECT_EQ(got[4], 2);
  EXPECT_EQ(got[5], kInfinity);
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
