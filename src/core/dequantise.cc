#include "core/dequantise.h"

#include <cstring>

#include "core/check.h"

namespace butter {
namespace {

// Blocks are little-endian and stand at any address.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float load_fp16(const std::byte* at) {
  return fp16_to_float(load<uint16_t>(at));
}

int low_nibble(std::byte byte) {
  return std::to_integer<int>(byte) & 15;
}
int high_nibble(std::byte byte) {
  return std::to_integer<int>(byte) >> 4;
}

// Q4_0, 18 bytes, 32 elements:  d:fp16 | codes[16]
// Byte j holds element j in its low nibble and element j + 16 in its high one. value = d·(code − 8)
void dequantise_q4_0(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  const std::byte* codes = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(low_nibble(codes[j]) - 8);
    out[j + 16] = scale * static_cast<float>(high_nibble(codes[j]) - 8);
  }
}

// Q4_1, 20 bytes, 32 elements:  d:fp16 | m:fp16 | codes[16], nibbles as in Q4_0. value = d·code + m
void dequantise_q4_1(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  const float minimum = load_fp16(block + 2);
  const std::byte* codes = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(low_nibble(codes[j])) + minimum;
    out[j + 16] = scale * static_cast<float>(high_nibble(codes[j])) + minimum;
  }
}

// Q8_0, 34 bytes, 32 elements:  d:fp16 | codes:int8[32]. value = d·code
void dequantise_q8_0(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  for (int j = 0; j < 32; ++j) out[j] = scale * static_cast<float>(load<int8_t>(block + 2 + j));
}

struct SubScale {
  int scale;
  int minimum;
};

// The 6-bit scale and minimum of sub-block `j` (0..7) from the 12 packed bytes of a Q4_K block:
// bytes 0..3 hold scales 0..3 and bytes 4..7 minima 0..3 in their low six bits; byte 8 + i holds the
// low four bits of scale 4 + i and of minimum 4 + i, whose top two bits are those of bytes i and 4 + i.
SubScale q4_k_sub_scale(const std::byte* packed, int j) {
  const auto byte = [packed](int i) { return std::to_integer<int>(packed[i]); };
  if (j < 4) return {byte(j) & 63, byte(j + 4) & 63};
  const int low = byte(j + 4);
  return {(low & 15) | (byte(j - 4) >> 6) << 4, (low >> 4) | (byte(j) >> 6) << 4};
}

// Q4_K, 144 bytes, 256 elements:  d:fp16 | dmin:fp16 | sub-scales[12] | codes[128]
// Eight sub-blocks of 32. Codes come in four runs of 32 bytes: run r holds sub-block 2r in the low
// nibbles and sub-block 2r + 1 in the high ones. value = (d·scale)·code − (dmin·minimum)
void dequantise_q4_k(const std::byte* block, float* out) {
  const float scale_unit = load_fp16(block);
  const float minimum_unit = load_fp16(block + 2);
  const std::byte* packed = block + 4;
  for (int j = 0; j < 8; ++j) {
    const SubScale sub = q4_k_sub_scale(packed, j);
    const float scale = scale_unit * static_cast<float>(sub.scale);
    const float minimum = minimum_unit * static_cast<float>(sub.minimum);
    const std::byte* codes = block + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int code = j % 2 == 0 ? low_nibble(codes[i]) : high_nibble(codes[i]);
      out[j * 32 + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

// Q6_K, 210 bytes, 256 elements:  low[128] | high[64] | scales:int8[16] | d:fp16
// Two halves of 128 elements, each of four runs of 32. In a half, element i of run r has its low four
// bits in byte i (runs 0, 2) or i + 32 (runs 1, 3) of low[64 of the half] - low nibble for runs 0 and
// 1, high for 2 and 3 - and its top two bits at bit 2r of byte i of high[32 of the half]. A scale
// serves 16 consecutive elements. value = (d·scale)·(code − 32)
void dequantise_q6_k(const std::byte* block, float* out) {
  const std::byte* scales = block + 192;
  const float unit = load_fp16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    for (int j = 0; j < 128; ++j) {
      const int run = j / 32;
      const int i = j % 32;
      const std::byte pair = low[i + run % 2 * 32];
      const int bottom = run < 2 ? low_nibble(pair) : high_nibble(pair);
      const int top = (std::to_integer<int>(high[i]) >> (2 * run)) & 3;
      const int element = half * 128 + j;
      const float scale = unit * static_cast<float>(load<int8_t>(scales + element / 16));
      out[element] = scale * static_cast<float>((bottom | top << 4) - 32);
    }
  }
}

void dequantise_block(DType dtype, const std::byte* block, float* out) {
  switch (dtype) {
    case DType::kF32:
      *out = load<float>(block);
      return;
    case DType::kF16:
      *out = load_fp16(block);
      return;
    case DType::kBF16:
      *out = bf16_to_float(load<uint16_t>(block));
      return;
    case DType::kQ4_0:
      dequantise_q4_0(block, out);
      return;
    case DType::kQ4_1:
      dequantise_q4_1(block, out);
      return;
    case DType::kQ8_0:
      dequantise_q8_0(block, out);
      return;
    case DType::kQ4_K:
      dequantise_q4_k(block, out);
      return;
    case DType::kQ6_K:
      dequantise_q6_k(block, out);
      return;
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
      break;
  }
  BUTTER_CHECK(false && "integers stand for no floats");
}

}  // namespace

void dequantise_row(DType dtype, const std::byte* row, int64_t elements, float* out) {
  const DTypeInfo& info = dtype_info(dtype);
  BUTTER_CHECK(elements % info.block_elements == 0);
  for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes)
    dequantise_block(dtype, row, out + i);
}

}  // namespace butter
