// Codes of 2 to 8 bits of 32 columns of a row, as the affine forms of a weight hold them (linear_kernels.h):
// dwords of the row, one for each plane, whose bytes are four neighbouring columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace butter::cpu {

// Packs the 32 codes of a little-endian bit stream. Dword i goes to planes + i · stride; there are `bits` of
// them, as many bytes as the stream has.
void pack_codes(const std::byte* stream, int bits, std::byte* planes, int64_t stride);

// The codes by column.
void unpack_codes(const std::byte* planes, int bits, int64_t stride, uint8_t (&codes)[32]);

}  // namespace butter::cpu
