#include "core/status.h"

#include <gtest/gtest.h>

namespace butter {
namespace {

Result<int> half(int value) {
  if (value % 2) return fail(StatusCode::kInvalidArgument, "{} is odd; an even number is expected", value);
  return value / 2;
}

Result<int> quarter(int value) {
  BUTTER_ASSIGN(const int once, half(value));
  BUTTER_ASSIGN(const int twice, half(once));
  return twice;
}

TEST(Status, ErrorsPassThroughWithTheirSentence) {
  EXPECT_EQ(*quarter(8), 2);
  const auto result = quarter(6);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.error().message(), "3 is odd; an even number is expected");
  EXPECT_EQ(result.error().within("quarter").message(), "quarter: 3 is odd; an even number is expected");
}

}  // namespace
}  // namespace butter
