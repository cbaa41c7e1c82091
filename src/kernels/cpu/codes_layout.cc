#include "kernels/cpu/codes_layout.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace butter::cpu {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kVectors = kStripChannels;  // of a strip

// One code in each of 64 bytes.
struct Vector {
  alignas(kVectorBytes) uint8_t bytes[kVectorBytes];
};

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

inline Bytes16 load16(const uint8_t* from) {
  Bytes16 x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline void store16(uint8_t* to, Bytes16 x) {
  std::memcpy(to, &x, sizeof x);
}
inline Bytes16 zip_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes16 zip_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// 64 bytes as 4 rows of 16, transposed `rounds` · 2 times over: zips of the halves (i, i + 2) double the
// distance of neighbours. Two rounds bring the four bytes of a column together, four bring them back.
template <int kRounds>
inline void zip_rows(const uint8_t* const from[4], uint8_t* const to[4]) {
  Bytes16 x[4];
  for (int i = 0; i < 4; ++i) x[i] = load16(from[i]);
  for (int round = 0; round < kRounds; ++round) {
    const Bytes16 y[4] = {zip_low(x[0], x[2]), zip_high(x[0], x[2]), zip_low(x[1], x[3]),
                          zip_high(x[1], x[3])};
    std::memcpy(x, y, sizeof x);
  }
  for (int i = 0; i < 4; ++i) store16(to[i], x[i]);
}

// Vector `index` of a strip: of keys, block index/4 and channels 4·(index%4); of values, quad `index`.
void gather(Side side, int index, const CodeStrip& strip, Vector& to) {
  if (side == Side::kKey) {
    const auto* from = &strip.codes[index / 4 * 16][index % 4 * 4];
    for (int r = 0; r < 16; ++r) std::memcpy(to.bytes + 4 * r, from + r * kStripChannels, 4);
    return;
  }
  const auto* rows = &strip.codes[index * 4];
  const uint8_t* const from[] = {rows[0], rows[1], rows[2], rows[3]};
  uint8_t* const out[] = {to.bytes, to.bytes + 16, to.bytes + 32, to.bytes + 48};
  zip_rows<2>(from, out);
}

void scatter(Side side, int index, const Vector& from, CodeStrip& strip) {
  if (side == Side::kKey) {
    auto* to = &strip.codes[index / 4 * 16][index % 4 * 4];
    for (int r = 0; r < 16; ++r) std::memcpy(to + r * kStripChannels, from.bytes + 4 * r, 4);
    return;
  }
  auto* rows = &strip.codes[index * 4];
  const uint8_t* const in[] = {from.bytes, from.bytes + 16, from.bytes + 32, from.bytes + 48};
  uint8_t* const out[] = {rows[0], rows[1], rows[2], rows[3]};
  zip_rows<4>(in, out);
}

// Where a strip's vector stands among all.
int64_t place_of(const CodeOrder& order, int strip, int index) {
  if (order.side == Side::kKey) return int64_t{kVectors} * strip + index;
  const int span = strip / kSpanStrips * kSpanStrips;
  const int strips = std::min(kSpanStrips, order.dim / kStripChannels - span);
  return int64_t{kVectors} * span + index * strips + strip - span;
}

// The bit that tells the stored form of a code from the given one.
uint8_t flipped_bit(const CodeOrder& order) {
  const bool stored_signed = order.side == Side::kValue;
  return stored_signed == order.signed_codes ? 0 : static_cast<uint8_t>(1 << (order.bits - 1));
}

// `bits` bits of all bytes of x, from bit `from` up, to bit `to` of plane's bytes and back; the plane's other
// bits stay.
void put_bits(const Vector& x, int from, int bits, int to, uint8_t* plane) {
  const auto mask = static_cast<uint8_t>(((1 << bits) - 1) << to);
  for (int i = 0; i < kVectorBytes; ++i) {
    const auto moved = static_cast<uint8_t>(x.bytes[i] >> from << to);
    plane[i] = static_cast<uint8_t>((plane[i] & ~mask) | (moved & mask));
  }
}
void get_bits(const uint8_t* plane, int from, int bits, int to, Vector& x) {
  const auto mask = static_cast<uint8_t>((1 << bits) - 1);
  for (int i = 0; i < kVectorBytes; ++i) {
    x.bytes[i] = static_cast<uint8_t>(x.bytes[i] | (plane[i] >> from & mask) << to);
  }
}

void put(const CodeOrder& order, int64_t place, const Vector& x, uint8_t* packed) {
  if (order.bits == 8) {
    std::memcpy(packed + place * kVectorBytes, x.bytes, kVectorBytes);
    return;
  }
  const int parity = static_cast<int>(place % 2), quarter = static_cast<int>(place % 4);
  if (order.bits == 4) return put_bits(x, 0, 4, 4 * parity, packed + place / 2 * kVectorBytes);
  uint8_t* four = packed + place / 4 * 3 * kVectorBytes;
  put_bits(x, 2, 4, 4 * parity, four + quarter / 2 * kVectorBytes);
  put_bits(x, 0, 2, 2 * quarter, four + 2 * kVectorBytes);
}

void get(const CodeOrder& order, int64_t place, const uint8_t* packed, Vector& x) {
  if (order.bits == 8) {
    std::memcpy(x.bytes, packed + place * kVectorBytes, kVectorBytes);
    return;
  }
  const int parity = static_cast<int>(place % 2), quarter = static_cast<int>(place % 4);
  x = {};
  if (order.bits == 4) return get_bits(packed + place / 2 * kVectorBytes, 4 * parity, 4, 0, x);
  const uint8_t* four = packed + place / 4 * 3 * kVectorBytes;
  get_bits(four + quarter / 2 * kVectorBytes, 4 * parity, 4, 2, x);
  get_bits(four + 2 * kVectorBytes, 2 * quarter, 2, 0, x);
}

void flip(Vector& x, uint8_t bit) {
  for (uint8_t& byte : x.bytes) byte ^= bit;
}

// 16 codes of a bit string: 2 · bits bytes.
void read_bits(int bits, const uint8_t* from, uint8_t* codes) {
  const uint32_t mask = (1u << bits) - 1;
  uint32_t held = 0;
  int held_bits = 0;
  for (int i = 0; i < kStripChannels; ++i) {
    if (held_bits < bits) {
      held |= static_cast<uint32_t>(*from++) << held_bits;
      held_bits += 8;
    }
    codes[i] = static_cast<uint8_t>(held & mask);
    held >>= bits;
    held_bits -= bits;
  }
}

void write_bits(int bits, const uint8_t* codes, uint8_t* to) {
  const uint32_t mask = (1u << bits) - 1;
  uint32_t held = 0;
  int held_bits = 0;
  for (int i = 0; i < kStripChannels; ++i) {
    held |= (codes[i] & mask) << held_bits;
    for (held_bits += bits; held_bits >= 8; held_bits -= 8, held >>= 8) *to++ = static_cast<uint8_t>(held);
  }
}

}  // namespace

void pack_strip(const CodeOrder& order, int index, const CodeStrip& strip, std::byte* packed) {
  const uint8_t bit = flipped_bit(order);
  Vector x;
  for (int v = 0; v < kVectors; ++v) {
    gather(order.side, v, strip, x);
    flip(x, bit);
    put(order, place_of(order, index, v), x, reinterpret_cast<uint8_t*>(packed));
  }
}

void unpack_strip(const CodeOrder& order, int index, const std::byte* packed, CodeStrip& strip) {
  const uint8_t bit = flipped_bit(order);
  Vector x;
  for (int v = 0; v < kVectors; ++v) {
    get(order, place_of(order, index, v), reinterpret_cast<const uint8_t*>(packed), x);
    flip(x, bit);
    scatter(order.side, v, x, strip);
  }
}

void pack_codes(const CodeOrder& order, const uint8_t* codes, std::byte* packed) {
  BUTTER_CHECK(codes_fit(order.dim));
  CodeStrip strip;
  for (int index = 0; index < order.dim / kStripChannels; ++index) {
    for (int row = 0; row < kPageRows; ++row) {
      std::memcpy(strip.codes[row], codes + row * order.dim + index * kStripChannels, kStripChannels);
    }
    pack_strip(order, index, strip, packed);
  }
}

void import_codes(const CodeOrder& order, const std::byte* exchange, std::byte* packed) {
  BUTTER_CHECK(codes_fit(order.dim));
  const auto* codes = reinterpret_cast<const uint8_t*>(exchange);
  const int64_t row_bytes = code_bytes(order.dim, order.bits) / kPageRows;
  CodeStrip strip;
  for (int index = 0; index < order.dim / kStripChannels; ++index) {
    for (int row = 0; row < kPageRows; ++row) {
      read_bits(order.bits, codes + row * row_bytes + index * 2 * order.bits, strip.codes[row]);
    }
    pack_strip(order, index, strip, packed);
  }
}

void export_codes(const CodeOrder& order, const std::byte* packed, std::byte* exchange) {
  BUTTER_CHECK(codes_fit(order.dim));
  auto* codes = reinterpret_cast<uint8_t*>(exchange);
  const int64_t row_bytes = code_bytes(order.dim, order.bits) / kPageRows;
  CodeStrip strip;
  for (int index = 0; index < order.dim / kStripChannels; ++index) {
    unpack_strip(order, index, packed, strip);
    for (int row = 0; row < kPageRows; ++row) {
      write_bits(order.bits, strip.codes[row], codes + row * row_bytes + index * 2 * order.bits);
    }
  }
}

}  // namespace butter::cpu
