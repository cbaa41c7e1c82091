// DType: how the elements of a tensor are stored, plain and block-quantised, as checkpoints tag them.
//
// A plain type has one element a block. A quantised type packs `block_elements` consecutive elements
// of a row into `block_bytes` bytes; rows are whole numbers of blocks. Block layouts are those of the
// GGUF file format (see docs/weights.md). MLX has no blocks: its codes stand apart from their scales, and
// TensorView::mlx says how.
#pragma once

#include <cstdint>
#include <cstring>

namespace butter {

// The numbers are part of what tells models apart in saved caches: new types go to the end.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI8,
  kU8,
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ4_K,
  kQ6_K,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ5_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kU32,
  kMLX,
};

struct DTypeInfo {
  const char* name;    // as files and messages write it
  int block_elements;  // 1 for plain types
  int block_bytes;     // 0 for MLX
  bool quantised;
};

const DTypeInfo& dtype_info(DType dtype);

inline const char* dtype_name(DType dtype) {
  return dtype_info(dtype).name;
}

// Bytes of `elements` consecutive elements; `elements` must be a whole number of blocks. Not for MLX.
int64_t dtype_bytes(DType dtype, int64_t elements);

// --- 16-bit floats -------------------------------------------------------------------------------
// Round to nearest, ties to even. NaN stays NaN; overflow gives infinity.

inline float bf16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline uint16_t float_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float fp16_to_float(uint16_t bits);
uint16_t float_to_fp16(float value);

}  // namespace butter
