#include "core/dequantise.h"

#include <cstring>

#include "core/check.h"
#include "core/quant_levels.h"

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

// The fifth bit of a code: bit `i` of the bytes at `bits`, lowest first.
int bit_at(const std::byte* bits, int i) {
  return (std::to_integer<int>(bits[i / 8]) >> (i % 8)) & 1;
}

// Q5_0, 22 bytes, 32 elements:  d:fp16 | high:u32 | codes[16]
// Nibbles as in Q4_0; bit j of `high` is the fifth bit of element j. value = d·(code − 16)
void dequantise_q5_0(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  const std::byte* high = block + 2;
  const std::byte* codes = block + 6;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>((low_nibble(codes[j]) | bit_at(high, j) << 4) - 16);
    out[j + 16] = scale * static_cast<float>((high_nibble(codes[j]) | bit_at(high, j + 16) << 4) - 16);
  }
}

// Q5_1, 24 bytes, 32 elements:  d:fp16 | m:fp16 | high:u32 | codes[16], as in Q5_0. value = d·code + m
void dequantise_q5_1(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  const float minimum = load_fp16(block + 2);
  const std::byte* high = block + 4;
  const std::byte* codes = block + 8;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(low_nibble(codes[j]) | bit_at(high, j) << 4) + minimum;
    out[j + 16] = scale * static_cast<float>(high_nibble(codes[j]) | bit_at(high, j + 16) << 4) + minimum;
  }
}

// Q8_0, 34 bytes, 32 elements:  d:fp16 | codes:int8[32]. value = d·code
void dequantise_q8_0(const std::byte* block, float* out) {
  const float scale = load_fp16(block);
  for (int j = 0; j < 32; ++j) out[j] = scale * static_cast<float>(load<int8_t>(block + 2 + j));
}

// The two bits of element `j` (0..255) of a Q2_K or Q3_K block's 64 bytes: two halves of 128 elements, each
// of four runs of 32. Element i of run r has them at bit 2r of byte i of the half's 32.
int two_bits(const std::byte* codes, int j) {
  return (std::to_integer<int>(codes[j / 128 * 32 + j % 32]) >> (j % 128 / 32 * 2)) & 3;
}

// Q2_K, 84 bytes, 256 elements:  sub-scales[16] | codes[64] | d:fp16 | dmin:fp16
// Sub-block s of 16 elements has its scale in the low nibble of byte s, its minimum in the high one.
// value = (d·scale)·code − (dmin·minimum)
void dequantise_q2_k(const std::byte* block, float* out) {
  const float scale_unit = load_fp16(block + 80);
  const float minimum_unit = load_fp16(block + 82);
  for (int j = 0; j < 256; ++j) {
    const float scale = scale_unit * static_cast<float>(low_nibble(block[j / 16]));
    const float minimum = minimum_unit * static_cast<float>(high_nibble(block[j / 16]));
    out[j] = scale * static_cast<float>(two_bits(block + 16, j)) - minimum;
  }
}

// The 6-bit scale of sub-block `s` (0..15) from the 12 packed bytes of a Q3_K block, less 32: its low four
// bits are a nibble of byte s mod 8 (the low one for s < 8), its top two stand at bit 2·(s / 4) of byte
// 8 + s mod 4.
int q3_k_sub_scale(const std::byte* packed, int s) {
  const int bottom = s < 8 ? low_nibble(packed[s]) : high_nibble(packed[s - 8]);
  const int top = (std::to_integer<int>(packed[8 + s % 4]) >> (s / 4 * 2)) & 3;
  return (bottom | top << 4) - 32;
}

// Q3_K, 110 bytes, 256 elements:  high[32] | codes[64] | sub-scales[12] | d:fp16
// Bit r of byte i of `high` is the third bit of element 32r + i. Sub-blocks of 16.
// value = (d·scale)·(code − 4)
void dequantise_q3_k(const std::byte* block, float* out) {
  const std::byte* packed = block + 96;
  const float unit = load_fp16(block + 108);
  for (int j = 0; j < 256; ++j) {
    const float scale = unit * static_cast<float>(q3_k_sub_scale(packed, j / 16));
    const int top = (std::to_integer<int>(block[j % 32]) >> (j / 32)) & 1;
    out[j] = scale * static_cast<float>((two_bits(block + 32, j) | top << 2) - 4);
  }
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

// Q5_K, 176 bytes, 256 elements:  d:fp16 | dmin:fp16 | sub-scales[12] | high[32] | codes[128]
// As Q4_K; bit j of byte i of `high` is the fifth bit of element i of sub-block j.
void dequantise_q5_k(const std::byte* block, float* out) {
  const float scale_unit = load_fp16(block);
  const float minimum_unit = load_fp16(block + 2);
  const std::byte* high = block + 16;
  for (int j = 0; j < 8; ++j) {
    const SubScale sub = q4_k_sub_scale(block + 4, j);
    const float scale = scale_unit * static_cast<float>(sub.scale);
    const float minimum = minimum_unit * static_cast<float>(sub.minimum);
    const std::byte* codes = block + 48 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int bottom = j % 2 == 0 ? low_nibble(codes[i]) : high_nibble(codes[i]);
      const int top = (std::to_integer<int>(high[i]) >> j) & 1;
      out[j * 32 + i] = scale * static_cast<float>(bottom | top << 4) - minimum;
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

// 16 bytes of codes, nibbles as in Q4_0, each the place of its value in a table. value = scale·level
void dequantise_levels(const int8_t (&levels)[16], float scale, const std::byte* codes, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(levels[low_nibble(codes[j])]);
    out[j + 16] = scale * static_cast<float>(levels[high_nibble(codes[j])]);
  }
}

// IQ4_NL, 18 bytes, 32 elements:  d:fp16 | codes[16]
void dequantise_iq4_nl(const std::byte* block, float* out) {
  dequantise_levels(kIq4Levels, load_fp16(block), block + 2, out);
}

// IQ4_XS, 136 bytes, 256 elements:  d:fp16 | high:u16 | low[4] | codes[128]
// Eight sub-blocks of 32, each with 16 bytes of codes. The scale of sub-block j is 6 bits less 32: its low
// four bits are a nibble of low[j / 2] (the low one for even j), its top two stand at bit 2j of `high`.
// value = (d·scale)·level
void dequantise_iq4_xs(const std::byte* block, float* out) {
  const float unit = load_fp16(block);
  const int high = load<uint16_t>(block + 2);
  const std::byte* low = block + 4;
  for (int j = 0; j < 8; ++j) {
    const int bottom = j % 2 == 0 ? low_nibble(low[j / 2]) : high_nibble(low[j / 2]);
    const int scale = (bottom | ((high >> 2 * j) & 3) << 4) - 32;
    dequantise_levels(kIq4Levels, unit * static_cast<float>(scale), block + 8 + 16 * j, out + 32 * j);
  }
}

// 2^(e − 128): half of what the exponent stands for, as the table's FP4 levels are twice their numbers. The
// smallest two are subnormal.
float half_of_exponent(std::byte e) {
  const auto exponent = std::to_integer<uint32_t>(e);
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return scale;
}

// MXFP4, 17 bytes, 32 elements:  e:u8 | codes[16]. value = 2^(e − 128)·level
void dequantise_mxfp4(const std::byte* block, float* out) {
  dequantise_levels(kFp4Levels, half_of_exponent(block[0]), block + 1, out);
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
    case DType::kQ5_0:
      dequantise_q5_0(block, out);
      return;
    case DType::kQ5_1:
      dequantise_q5_1(block, out);
      return;
    case DType::kQ8_0:
      dequantise_q8_0(block, out);
      return;
    case DType::kQ2_K:
      dequantise_q2_k(block, out);
      return;
    case DType::kQ3_K:
      dequantise_q3_k(block, out);
      return;
    case DType::kQ4_K:
      dequantise_q4_k(block, out);
      return;
    case DType::kQ5_K:
      dequantise_q5_k(block, out);
      return;
    case DType::kQ6_K:
      dequantise_q6_k(block, out);
      return;
    case DType::kIQ4_NL:
      dequantise_iq4_nl(block, out);
      return;
    case DType::kIQ4_XS:
      dequantise_iq4_xs(block, out);
      return;
    case DType::kMXFP4:
      dequantise_mxfp4(block, out);
      return;
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
    case DType::kU32:
    case DType::kMLX:
      break;
  }
  BUTTER_CHECK(false && "integers stand for no floats");
}

// Code `i` of a stream of codes of `bits` each, lowest bits first: at most 8 bits, out of two bytes. The
// second is not touched where the first has them all.
int code_at(const std::byte* stream, int bits, int64_t i) {
  const int64_t at = i * bits / 8;
  const int shift = static_cast<int>(i * bits % 8);
  int field = std::to_integer<int>(stream[at]) >> shift;
  if (shift + bits > 8) field |= std::to_integer<int>(stream[at + 1]) << (8 - shift);
  return field & ((1 << bits) - 1);
}

// MLX: value = scale·code + bias; with exponents, FP4 numbers as in MXFP4.
void dequantise_mlx(const TensorView& tensor, int64_t row, float* out) {
  const MlxParts& mlx = tensor.mlx;
  const std::byte* codes = tensor.row(row);
  int64_t scale_at = row * tensor.scale_row_bytes();
  for (int64_t begin = 0; begin < tensor.columns(); begin += mlx.group) {
    float scale = 0, bias = 0;
    if (mlx.has_exponents()) {
      scale = half_of_exponent(mlx.scales[scale_at]);
    } else {
      dequantise_block(mlx.scale_dtype, mlx.scales + scale_at, &scale);
      dequantise_block(mlx.scale_dtype, mlx.biases + scale_at, &bias);
    }
    for (int64_t k = begin; k < begin + mlx.group; ++k) {
      const int code = code_at(codes, mlx.bits, k);
      out[k] = mlx.has_exponents() ? scale * static_cast<float>(kFp4Levels[code])
                                   : scale * static_cast<float>(code) + bias;
    }
    scale_at += dtype_bytes(mlx.scale_dtype, 1);
  }
}

}  // namespace

void dequantise_row(const TensorView& tensor, int64_t row, float* out) {
  if (tensor.dtype == DType::kMLX) return dequantise_mlx(tensor, row, out);
  dequantise_row(tensor.dtype, tensor.row(row), tensor.columns(), out);
}

void dequantise_row(DType dtype, const std::byte* row, int64_t elements, float* out) {
  const DTypeInfo& info = dtype_info(dtype);
  BUTTER_CHECK(elements % info.block_elements == 0);
  // Plain elements in one loop: a call for each is most of the time of the reference's products.
  if (dtype == DType::kF32) {
    std::memcpy(out, row, static_cast<size_t>(elements) * sizeof(float));
    return;
  }
  if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < elements; ++i) out[i] = bf16_to_float(load<uint16_t>(row + 2 * i));
    return;
  }
  for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes)
    dequantise_block(dtype, row, out + i);
}

}  // namespace butter
