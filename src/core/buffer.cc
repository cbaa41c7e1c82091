#include "core/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "core/check.h"

namespace butter {
namespace {

// Larger blocks are mapped on their own, so that they go back to the system when they are freed.
constexpr int64_t kMapFrom = int64_t{1} << 20;

std::byte* map_block(int64_t bytes) {
  const bool huge = bytes >= Buffer::kHugePage;
  // Room to begin at a huge page; what stands before and behind the block is given back at once.
  const int64_t mapped = bytes + (huge ? Buffer::kHugePage : 0);
  void* data =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(data);
  if (!huge) return begin;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  const int64_t before = round_up(address, Buffer::kHugePage) - address;
  const int64_t behind = mapped - before - bytes;
  if (before > 0) munmap(begin, static_cast<size_t>(before));
  if (behind > 0) munmap(begin + before + bytes, static_cast<size_t>(behind));
  madvise(begin + before, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return begin + before;
}

std::byte* heap_block(int64_t bytes) {
  void* data = std::aligned_alloc(Buffer::kAlignment, static_cast<size_t>(bytes));
  if (data != nullptr) std::memset(data, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(data);
}

}  // namespace

void BlockDeleter::operator()(std::byte* data) const {
  if (mapped) {
    munmap(data, static_cast<size_t>(bytes));
  } else {
    std::free(data);
  }
}

Result<Buffer> Buffer::allocate(int64_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  BUTTER_CHECK(bytes > 0);
  const bool mapped = bytes >= kMapFrom;
  const int64_t rounded = round_up(bytes, mapped ? 4096 : kAlignment);
  std::byte* data = mapped ? map_block(rounded) : heap_block(rounded);
  if (data == nullptr) return fail(StatusCode::kOutOfMemory, "cannot allocate {} bytes of memory", bytes);
  buffer.data_ = std::unique_ptr<std::byte, BlockDeleter>(data, BlockDeleter{rounded, mapped});
  buffer.bytes_ = bytes;
  return buffer;
}

std::byte* Arena::take(int64_t bytes) {
  BUTTER_CHECK(used_ + piece_bytes(bytes) <= buffer_.bytes());
  std::byte* piece = buffer_.data() + used_;
  used_ += piece_bytes(bytes);
  return piece;
}

}  // namespace butter
