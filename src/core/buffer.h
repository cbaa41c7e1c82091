// Buffer: an owning, move-only, zeroed block of memory, aligned to 64 bytes (to 2 MiB when large, and then
// offered to the kernel for huge pages by madvise).
//
// Arena: hands out aligned pieces of one Buffer in order; a step's workspace is planned once and never grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/status.h"

namespace butter {

// Gives a block back the way it came.
struct BlockDeleter {
  int64_t bytes = 0;
  bool mapped = false;
  void operator()(std::byte* data) const;
};

class Buffer {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kHugePage = int64_t{2} << 20;

  Buffer() = default;
  // Fails with kOutOfMemory, naming the bytes, where the system has not got them.
  static Result<Buffer> allocate(int64_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte, BlockDeleter> data_;
  int64_t bytes_ = 0;
};

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Not thread-safe. Pieces live as long as the arena's buffer.
class Arena {
 public:
  Arena() = default;
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)) {}

  // Bytes that a piece of `bytes` takes from an arena: plans add these up.
  static int64_t piece_bytes(int64_t bytes) { return round_up(bytes, Buffer::kAlignment); }
  // A piece of the plan; asking for more than was planned is a bug.
  std::byte* take(int64_t bytes);
  template <typename T>
  T* take_array(int64_t count) {
    return reinterpret_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  void reset() { used_ = 0; }
  int64_t used() const { return used_; }
  int64_t capacity() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  int64_t used_ = 0;
};

}  // namespace butter
