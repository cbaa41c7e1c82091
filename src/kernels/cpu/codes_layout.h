// The CPU's order of the codes of a page: whole numbers of 4, 6 or 8 bits, 64 rows of `dim` channels.
//
// Codes stand in vectors of 16 x 4 bytes, as dot products of bytes want them; there are `dim` vectors, in the
// order in which a page's attention reads them:
//
//   keys     [dim/16 strips][4 blocks][4 i]   16 rows of a block x channels 4i..4i+3 of a strip
//   values   [spans][16 quads][strips]        the 16 channels of a strip x 4 rows of a quad; a span is 4
//                                             strips, or what is left of them at the end
//
//   8 bits   [dim vectors][64 B]
//   4 bits   [dim/2][64 B]: vector 2j in the low nibbles, 2j+1 in the high ones
//   6 bits   [dim/4][192 B]: the high 4 bits of vectors 4j..4j+3 as above, then the low 2 bits of the four,
//            64 B, the first in the lowest bits
//
// Keys are offset binary (0 is the smallest code), values two's complement (their top bit is flipped): what
// the two operands of an instruction that multiplies bytes with and without sign can be. Scales stand as in
// the exchange form, but in front of the codes: a page is read from end to end, which is what the memory's
// prefetcher is good at. Rows keep their natural order everywhere.
//
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_layout.h"

namespace butter::cpu {

constexpr int kStripChannels = 16;
constexpr int kSpanStrips = 4;

// Widths that this order can take. Records of others keep the exchange form.
constexpr bool codes_fit(int dim) {
  return dim % kStripChannels == 0;
}

constexpr int64_t code_bytes(int dim, int bits) {
  return int64_t{kPageRows} * dim * bits / 8;
}

struct CodeOrder {
  int dim = 0;
  int bits = 8;
  Side side = Side::kKey;
  // Codes outside the order are two's complement of `bits` bits, not offset binary.
  bool signed_codes = false;
};

// 16 neighbouring channels of a page's rows, a code in a byte. Bits above a code's are ignored, and come out
// as 0.
struct CodeStrip {
  alignas(64) uint8_t codes[kPageRows][kStripChannels];
};

// Strip `index` (channels 16·index and up) to its place among the packed codes, and back.
void pack_strip(const CodeOrder& order, int index, const CodeStrip& strip, std::byte* packed);
void unpack_strip(const CodeOrder& order, int index, const std::byte* packed, CodeStrip& strip);

// All codes [64][dim], one in a byte.
void pack_codes(const CodeOrder& order, const uint8_t* codes, std::byte* packed);

// Codes in the exchange form (rows of bit strings, lowest bit first) to the CPU's order and back.
void import_codes(const CodeOrder& order, const std::byte* exchange, std::byte* packed);
void export_codes(const CodeOrder& order, const std::byte* packed, std::byte* exchange);

}  // namespace butter::cpu
