// The kernels behind cpu/linear.h, one table for each instruction set: plain structs, integers and pointers
// only.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function: the
// linker might keep the copy that an older CPU cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear_target.h"

namespace butter::cpu {

constexpr int64_t kPanelRows = 16;  // rows of a weight that are repacked together
constexpr int64_t kGroup = 32;      // columns that share a scale
constexpr int64_t kCodeRows = 2;    // rows of int8 codes that an input row becomes (quantise.h)
constexpr int64_t kInt8Block = 8;   // code rows of a prepared input that are interleaved
constexpr int64_t kTileRows = 32;   // rows of a block of bf16 tiles
constexpr int64_t kInt8GroupBytes = kGroup + 16;

enum class LinearForm : uint8_t {
  kF32,          // rows as the file has them
  kF16,          //
  kBF16,         //
  kCodes4,       // scale · (code − 8)
  kCodes4Bias,   // scale · code + bias
  kCodes8,       // scale · (code − 128)
  kCodes4Super,  // (d · scale) · code − (dmin · minimum), scales and minima of 6 bits
  kCodes6Super,  // (d · scale) · (code − 32), a scale of 8 bits for every 16 columns
  kCodes5,       // scale · (code − 16)
  kCodes5Bias,   // scale · code + bias
  kCodes5Super,  // as kCodes4Super
  kCodes2Super,  // (d · scale) · code − (dmin · minimum), scales and minima of 4 bits for every 16 columns
  kCodes3Super,  // (d · scale) · (code − 4), a scale of 6 bits for every 16 columns
  kLevels,       // scale · level, one of kIq4Levels
  kLevelsSuper,  // (d · scale) · level, scales of 6 bits
  kLevelsFp4,    // 2^(exponent − 128) · level, one of kFp4Levels
  kAffine2,      // scale · code + bias, both for every `group` columns, of the type `scales`
  kAffine3,      //
  kAffine4,      //
  kAffine5,      //
  kAffine6,      //
  kAffine8,      //
};

// Of the affine forms' scales and biases.
enum class ScaleType : uint8_t { kF16, kBF16, kF32 };

// A weight as a kernel sees it. Float forms are row-major and may stand at any address. Coded forms are
// panels of 16 rows (the last may have fewer), each a record for every 32 columns, every 256 in the super
// forms, every `group` in the affine ones:
//
//   kCodes4, kCodes8   scale:fp16[L] | codes
//   kCodes4Bias        scale:fp16[L] | bias:fp16[L] | codes
//   kCodes4Super       d:fp16[L] | dmin:fp16[L] | packed[12][L] | codes[4 runs][8 quads][L][4]
//   kCodes6Super       d:fp16[L] | scales:int8[16][L] | low[4 runs][8 quads][L][4] | high[2][8 quads][L][4]
//   kCodes5            scale:fp16[L] | fifth bits:u32[L], bit k of column k | codes
//   kCodes5Bias        scale:fp16[L] | bias:fp16[L] | fifth bits:u32[L] | codes
//   kCodes5Super       d:fp16[L] | dmin:fp16[L] | packed[12][L] | fifth bits[8 groups][L][4] | codes as in 4
//   kCodes2Super       d:fp16[L] | dmin:fp16[L] | scale and minimum[16][L] | codes[2 halves][8 quads][L][4]
//   kCodes3Super       d:fp16[L] | packed[12][L] | third bits[8 groups][L][4] | codes[2 halves][8
//   quads][L][4] kLevels            scale:fp16[L] | codes kLevelsSuper       d:fp16[L] | high:u16[L] |
//   low[4][L] | codes of 8 groups kLevelsFp4         exponent:u8[L] | codes kAffineN           scale[L] |
//   bias[L] | for every 32 columns codes of N bits: planes[N][L][4]
//
//   4 bits: codes[4 quads][L][4]  byte b of quad q: low nibble column 4q + b, high nibble column 16 + 4q + b
//   8 bits: codes[8 quads][L][4]  byte b of quad q: column 4q + b, as code + 128
//   super: byte b of quad q stands for byte 4q + b of the file's run of 32; core/dequantise.cc says what is
//   in it. Third and fifth bits: bit t of byte b of a group's dword is column 4t + b's
//   affine: the low four bits in planes as of 4 bits, or the low two in two planes (quad 4p + f at bit 2f of
//   plane p); then, as such planes, the two bits above four, or, in one plane, the one above four or two
//   (quad t at bit t)
//
// L is the panel's number of rows: the tail panel takes no more than its rows need.
struct LinearMatrix {
  LinearForm form = LinearForm::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int group = 0;  // of the affine forms: 32, 64 or 128
  ScaleType scales = ScaleType::kF16;
};

// Input rows as the float kernels read them.
struct FloatRows {
  const float* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
};

// Prepared int8 rows, two code rows for each input row, in blocks of 8 code rows (the last has what is left).
// A block of M code rows has a record for every group of 32 columns, which are read in turn:
//
//   record = codes:int8[M][32] | scale:f32[M] | scale·sum of codes:f32[M] | −sum of codes:int32[M]
//            | −sum of the first 16 codes:int32[M]
struct Int8Rows {
  const std::byte* data = nullptr;
  int64_t rows = 0;  // code rows
};

// Prepared bf16 rows, in blocks of 32, each a pair of tiles for every 32 columns:
// [block][part][column/32][2][16][32]. A value is one bf16, or the sum of two. Rows and columns past the end
// are zero.
struct TileRows {
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int parts = 1;  // 2 for the forms that hold more than a bf16, kF32 and kF16, and where it is asked for
};

struct LinearKernels {
  // Outputs [begin, end) for all rows.
  void (*floats)(const LinearMatrix& weight, const FloatRows& x, int64_t begin, int64_t end,
                 const LinearTarget& target);
  void (*codes)(const LinearMatrix& weight, const Int8Rows& x, int64_t begin, int64_t end,
                const LinearTarget& target);
  // Null where there are no tiles. Scratch: linear_scratch_bytes.
  void (*tiles)(const LinearMatrix& weight, const TileRows& x, int64_t begin, int64_t end,
                const LinearTarget& target, std::byte* scratch);
  // Writes one row of a block of tiles.
  void (*pack_tile_row)(const float* x, int64_t columns, int parts, std::byte* out);
};

const LinearKernels& portable_linear_kernels();
const LinearKernels& avx2_linear_kernels();
const LinearKernels& avx512_linear_kernels();
const LinearKernels& amx_linear_kernels();

}  // namespace butter::cpu
