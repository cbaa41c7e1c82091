#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace butter {
namespace {

TEST(Dtype, EveryFp16SurvivesAFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fp16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(value))));
    } else {
      ASSERT_EQ(float_to_fp16(value), bits);
    }
  }
}

TEST(Dtype, EveryBf16SurvivesAFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(Dtype, RoundingIsToTheNearestAndTiesGoToEven) {
  EXPECT_EQ(float_to_fp16(1.0f + 0x1p-11f), 0x3c00);             // a tie: down to even
  EXPECT_EQ(float_to_fp16(1.0f + 3 * 0x1p-11f), 0x3c02);         // a tie: up to even
  EXPECT_EQ(float_to_fp16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);  // past the tie
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);                    // half the smallest subnormal: to even
  EXPECT_EQ(float_to_fp16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Dtype, BytesAreWholeBlocks) {
  EXPECT_EQ(dtype_bytes(DType::kQ4_1, 576), 576 / 32 * 20);
  EXPECT_EQ(dtype_bytes(DType::kQ8_0, 32), 34);
  EXPECT_EQ(dtype_bytes(DType::kQ6_K, 512), 420);
  EXPECT_EQ(dtype_bytes(DType::kQ2_K, 256), 84);
  EXPECT_EQ(dtype_bytes(DType::kMXFP4, 64), 34);
  EXPECT_EQ(dtype_bytes(DType::kBF16, 7), 14);
}

}  // namespace
}  // namespace butter
