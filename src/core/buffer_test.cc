#include "core/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace butter {
namespace {

TEST(Buffer, IsAlignedZeroedAndMoves) {
  for (int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{4096}, Buffer::kHugePage + 5}) {
    auto buffer = Buffer::allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->bytes(), bytes);
    const int64_t alignment = bytes >= Buffer::kHugePage ? Buffer::kHugePage : Buffer::kAlignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(alignment), 0u);
    EXPECT_TRUE(
        std::all_of(buffer->data(), buffer->data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    buffer->data()[bytes - 1] = std::byte{7};
    const Buffer moved = std::move(*buffer);
    EXPECT_EQ(moved.data()[bytes - 1], std::byte{7});
  }
}

TEST(Buffer, MoreThanTheSystemHasIsAnErrorWithTheFigure) {
  const auto buffer = Buffer::allocate(int64_t{1} << 60);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(buffer.error().message().find("1152921504606846976"), std::string::npos);
}

TEST(Arena, PiecesAreAlignedAndAddUpToThePlan) {
  const int64_t planned = Arena::piece_bytes(10) + Arena::piece_bytes(64) + Arena::piece_bytes(65);
  auto buffer = Buffer::allocate(planned);
  ASSERT_TRUE(buffer);
  Arena arena(std::move(*buffer));
  for (int64_t bytes : {10, 64, 65}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.take(bytes)) % Buffer::kAlignment, 0u);
  }
  EXPECT_EQ(arena.used(), planned);
  EXPECT_EQ(arena.used(), arena.capacity());
  arena.reset();
  EXPECT_EQ(arena.used(), 0);
}

}  // namespace
}  // namespace butter
