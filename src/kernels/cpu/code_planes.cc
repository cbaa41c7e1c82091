#include "kernels/cpu/code_planes.h"

#include <cstring>

#include "core/check.h"

namespace butter::cpu {
namespace {

// What each dword holds: the low four or two bits of a code, then the bits above them.
//
//   nibbles  4 dwords: quad q low, quad 4 + q high            (quad q is columns 4q to 4q + 3)
//   pairs    2 dwords: quad 4p + f at bit 2f of dword p
//   ones     1 dword: quad t at bit t
//   bytes    8 dwords: quad q

// 8 codes as bytes: halves, quarters and then single codes are moved apart.
template <int bits>
uint64_t spread(uint64_t packed) {
  constexpr uint64_t kHalf = (uint64_t{1} << 4 * bits) - 1;
  constexpr uint64_t kQuarter = ((uint64_t{1} << 2 * bits) - 1) * 0x0000000100000001u;
  constexpr uint64_t kOne = ((uint64_t{1} << bits) - 1) * 0x0001000100010001u;
  packed = (packed & kHalf) | (packed >> 4 * bits & kHalf) << 32;
  packed = (packed & kQuarter) | (packed >> 2 * bits & kQuarter) << 16;
  return (packed & kOne) | (packed >> bits & kOne) << 8;
}

constexpr uint64_t kBytes = 0x0101010101010101u;

struct Planes {
  std::byte* at;
  int64_t stride;

  void put(uint32_t dword) {
    std::memcpy(at, &dword, sizeof dword);
    at += stride;
  }
};

uint32_t low_half(uint64_t eight) {
  return static_cast<uint32_t>(eight);
}
uint32_t high_half(uint64_t eight) {
  return static_cast<uint32_t>(eight >> 32);
}

// `eights` are 8 columns each, a byte a column.
void put_nibbles(const uint64_t (&eights)[4], Planes& planes) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t both = (eights[i] & 15 * kBytes) | (eights[2 + i] & 15 * kBytes) << 4;
    planes.put(low_half(both));
    planes.put(high_half(both));
  }
}

void put_pairs(const uint64_t (&eights)[4], int shift, Planes& planes) {
  for (int p = 0; p < 2; ++p) {
    const uint64_t first = eights[2 * p] >> shift & 3 * kBytes,
                   second = eights[2 * p + 1] >> shift & 3 * kBytes;
    planes.put(low_half(first) | high_half(first) << 2 | low_half(second) << 4 | high_half(second) << 6);
  }
}

void put_ones(const uint64_t (&eights)[4], int shift, Planes& planes) {
  uint32_t dword = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t ones = eights[i] >> shift & kBytes;
    dword |= low_half(ones) << (2 * i) | high_half(ones) << (2 * i + 1);
  }
  planes.put(dword);
}

template <int bits>
void pack(const std::byte* stream, Planes planes) {
  uint64_t eights[4];
  for (int i = 0; i < 4; ++i) {
    uint64_t packed = 0;
    std::memcpy(&packed, stream + i * bits, bits);
    eights[i] = spread<bits>(packed);
  }
  if constexpr (bits >= 4) {
    put_nibbles(eights, planes);
  } else {
    put_pairs(eights, 0, planes);
  }
  if constexpr (bits == 6) put_pairs(eights, 4, planes);
  if constexpr (bits % 2 == 1) put_ones(eights, bits - 1, planes);
}

void copy_bytes(const std::byte* stream, Planes planes) {
  for (int q = 0; q < 8; ++q) {
    uint32_t dword;
    std::memcpy(&dword, stream + 4 * q, sizeof dword);
    planes.put(dword);
  }
}

}  // namespace

void pack_codes(const std::byte* stream, int bits, std::byte* planes, int64_t stride) {
  switch (bits) {
    case 2:
      return pack<2>(stream, {planes, stride});
    case 3:
      return pack<3>(stream, {planes, stride});
    case 4:
      return pack<4>(stream, {planes, stride});
    case 5:
      return pack<5>(stream, {planes, stride});
    case 6:
      return pack<6>(stream, {planes, stride});
    case 8:
      return copy_bytes(stream, {planes, stride});
    default:
      BUTTER_CHECK(false && "codes of so many bits");
  }
}

void unpack_codes(const std::byte* planes, int bits, int64_t stride, uint8_t (&codes)[32]) {
  for (int k = 0; k < 32; ++k) {
    const int quad = k / 4;
    const auto field = [&](int dword, int shift, int mask) {
      return std::to_integer<int>(planes[dword * stride + k % 4]) >> shift & mask;
    };
    int code = 0, next = 0;  // next: the dword behind the low bits
    if (bits == 8) {
      code = field(quad, 0, 255);
    } else if (bits >= 4) {
      code = field(quad % 4, quad / 4 * 4, 15);
      next = 4;
    } else {
      code = field(quad / 4, quad % 4 * 2, 3);
      next = 2;
    }
    if (bits == 6) code |= field(next + quad / 4, quad % 4 * 2, 3) << 4;
    if (bits % 2 == 1) code |= field(next, quad, 1) << (bits - 1);
    codes[k] = static_cast<uint8_t>(code);
  }
}

}  // namespace butter::cpu
