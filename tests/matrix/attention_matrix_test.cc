// The attention kernels on codes: every scheme, width, group size, position and window on every instruction
// set, against the reference. The everyday part is src/kernels/attention_test.cc; this is the whole cross.
#include <gtest/gtest.h>

#include "kernels/attend_testing.h"
#include "matrix/matrix.h"

namespace butter {
namespace {

#ifdef BUTTER_WHOLE_MATRIX

KvLayerShape shape_of(int kv_heads, int dim) {
  return {3, kv_heads, dim, dim, 0};
}

class CodesMatrix : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Widths, CodesMatrix, testing::Values(32, 64, 80, 96, 112, 128, 192, 256));

TEST_P(CodesMatrix, EveryGroupSizeEqualsTheReference) {
  for (const KvScheme& scheme : code_schemes()) {
    for (int group : {1, 2, 3, 4, 5, 7, 8}) {
      EXPECT_EQ(parity_on_codes({shape_of(2, GetParam()), scheme, {}, 199, 1, 1, 3}, group), "");
      EXPECT_EQ(parity_on_codes({shape_of(1, GetParam()), scheme, {}, 130, 20, 2, 0}, group), "");
    }
  }
}

TEST_P(CodesMatrix, EveryPositionAndWindowEqualsTheReference) {
  for (const KvScheme& scheme : code_schemes()) {
    for (const Window& window : {Window{}, {64, 0}, {65, 4}, {100, 4}, {130, 100}, {20, 2}}) {
      for (int64_t position : {62, 63, 64, 127, 300}) {
        for (int rows : {1, 15, 40}) {
          if (rows > 1 && position > 64) continue;
          EXPECT_EQ(parity_on_codes({shape_of(1, GetParam()), scheme, window, position, rows, 1, 3}, 3), "");
        }
      }
    }
  }
}

#endif

}  // namespace
}  // namespace butter
