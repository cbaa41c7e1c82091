#include "kernels/scale_byte.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/dtype.h"

namespace butter {
namespace {

constexpr auto kNearest = ScaleRounding::kNearest;
constexpr auto kUp = ScaleRounding::kUp;

const int kExponents[] = {kSmallestScaleExponent, -17, -1, 0, 1, 9, kLargestScaleExponent};

TEST(ScaleByte, EveryByteSurvivesTheWayThroughItsValue) {
  for (const int u : kExponents) {
    for (int byte = 0; byte < 256; ++byte) {
      const float value = scale_value(static_cast<uint8_t>(byte), u);
      EXPECT_TRUE(value == 0 || std::isnormal(value)) << byte << " at " << u;
      EXPECT_EQ(scale_byte(value, u, kNearest), byte) << "at " << u;
      EXPECT_EQ(scale_byte(value, u, kUp), byte) << "at " << u;
    }
  }
}

TEST(ScaleByte, IsAnFp16NumberShiftedIntoPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(scale_value(static_cast<uint8_t>(byte), 0), fp16_to_float(static_cast<uint16_t>(byte << 6)));
  }
}

TEST(ScaleByte, ValuesGrowWithTheByte) {
  for (const int u : kExponents) {
    for (int byte = 1; byte < 256; ++byte) {
      EXPECT_GT(scale_value(static_cast<uint8_t>(byte), u), scale_value(static_cast<uint8_t>(byte - 1), u));
    }
  }
}

TEST(ScaleByte, NearestIsNearerThanBothNeighboursAndUpIsNeverBelow) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> exponent(-20, 1);
  for (int i = 0; i < 20000; ++i) {
    const double scale = std::exp2(exponent(generator)) * 0.96;  // at most 1.92, the largest byte's 1.9375
    const int nearest = scale_byte(scale, 0, kNearest);
    const auto distance = [&](int byte) {
      return std::abs(scale - double{scale_value(static_cast<uint8_t>(byte), 0)});
    };
    if (nearest > 0) {
      EXPECT_LE(distance(nearest), distance(nearest - 1)) << scale;
    }
    if (nearest < 255) {
      EXPECT_LE(distance(nearest), distance(nearest + 1)) << scale;
    }
    const int up = scale_byte(scale, 0, kUp);
    EXPECT_GE(scale_value(static_cast<uint8_t>(up), 0), scale);
    EXPECT_LT(scale_value(static_cast<uint8_t>(up - 1), 0), scale);
  }
}

TEST(ScaleByte, HalvesGoToTheEvenByte) {
  EXPECT_EQ(scale_byte(1 + 1.0 / 32, 0, kNearest), 240);
  EXPECT_EQ(scale_byte(1 + 3.0 / 32, 0, kNearest), 242);
  EXPECT_EQ(scale_byte(0.5 * 0x1p-18, 0, kNearest), 0);
  EXPECT_EQ(scale_byte(1.5 * 0x1p-18, 0, kNearest), 2);
}

TEST(ScaleByte, ThePageExponentIsThatOfTheLargestOnceRounded) {
  EXPECT_EQ(scale_exponent(1.0, kNearest), 0);
  EXPECT_EQ(scale_exponent(0.99, kNearest), 0);           // rounds to 1
  EXPECT_EQ(scale_exponent(1.9375, kNearest), 0);         // the largest of its binade
  EXPECT_EQ(scale_exponent(1.96874, kNearest), 0);        // rounds to 1.9375
  EXPECT_EQ(scale_exponent(1 + 31.0 / 32, kNearest), 1);  // half: 31 is odd, so to 2
  EXPECT_EQ(scale_exponent(1.95, kUp), 1);                // up to 2
  EXPECT_EQ(scale_exponent(1.9375, kUp), 0);
  EXPECT_EQ(scale_exponent(0, kNearest), 0);
  EXPECT_EQ(scale_exponent(0, kUp), 0);
}

TEST(ScaleByte, TheLargestOfAPageHasTheTopExponent) {
  std::mt19937_64 generator(8);
  std::uniform_real_distribution<double> exponent(-100, 100);
  for (int i = 0; i < 20000; ++i) {
    const double largest = std::exp2(exponent(generator));
    EXPECT_GE(scale_byte(largest, scale_exponent(largest, kNearest), kNearest), 240) << largest;
    EXPECT_GE(scale_byte(largest, scale_exponent(largest, kUp), kUp), 240) << largest;
    EXPECT_GE(
        scale_value(scale_byte(largest, scale_exponent(largest, kUp), kUp), scale_exponent(largest, kUp)),
        largest);
  }
}

TEST(ScaleByte, ExtremeScalesAreClampedAndFinite) {
  const int8_t high = scale_exponent(1e300, kNearest);
  EXPECT_EQ(high, kLargestScaleExponent);
  EXPECT_EQ(scale_byte(1e300, high, kNearest), 255);
  EXPECT_EQ(scale_byte(1e300, high, kUp), 255);
  const int8_t low = scale_exponent(1e-300, kNearest);
  EXPECT_EQ(low, kSmallestScaleExponent);
  EXPECT_EQ(scale_byte(1e-300, low, kNearest), 0);
  EXPECT_EQ(scale_byte(1e-300, low, kUp), 1);
  // From a file u may be any int8.
  EXPECT_TRUE(std::isfinite(scale_value(255, 127)));
  EXPECT_TRUE(std::isfinite(scale_value(1, -128)));
}

}  // namespace
}  // namespace butter
