#include "core/dtype.h"

#include <array>
#include <cmath>

#include "core/check.h"

namespace butter {

const DTypeInfo& dtype_info(DType dtype) {
  static constexpr std::array<DTypeInfo, 21> kTable = {{
      {"F32", 1, 4, false},     {"F16", 1, 2, false},     {"BF16", 1, 2, false},
      {"I32", 1, 4, false},     {"I8", 1, 1, false},      {"U8", 1, 1, false},
      {"Q4_0", 32, 18, true},   {"Q4_1", 32, 20, true},   {"Q8_0", 32, 34, true},
      {"Q4_K", 256, 144, true}, {"Q6_K", 256, 210, true}, {"Q5_0", 32, 22, true},
      {"Q5_1", 32, 24, true},   {"Q2_K", 256, 84, true},  {"Q3_K", 256, 110, true},
      {"Q5_K", 256, 176, true}, {"IQ4_NL", 32, 18, true}, {"IQ4_XS", 256, 136, true},
      {"MXFP4", 32, 17, true},  {"U32", 1, 4, false},     {"MLX", 1, 0, true},
  }};
  return kTable[static_cast<size_t>(dtype)];
}

int64_t dtype_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  BUTTER_CHECK(info.block_bytes > 0 && elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

float fp16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? sign | 0x7f800000u | (mantissa << 13)
                                       : sign | ((exponent + 112u) << 23) | (mantissa << 13);
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t float_to_fp16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, rounded by the float unit
    float absolute;
    std::memcpy(&absolute, &magnitude, sizeof absolute);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(absolute * 0x1p24f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace butter
