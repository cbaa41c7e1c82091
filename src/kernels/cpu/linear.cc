#include "kernels/cpu/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/dequantise.h"
#include "kernels/cpu/code_planes.h"
#include "kernels/cpu/quantise.h"

namespace butter::cpu {
namespace {

const LinearKernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return avx2_linear_kernels();
    case Isa::kAvx512:
      return avx512_linear_kernels();
    case Isa::kAmx:
      return amx_linear_kernels();
#endif
    default:
      return portable_linear_kernels();
  }
}

// A run of `count` units of `unit` bytes in a file's block. A record holds each unit of its rows side by
// side.
struct Segment {
  int offset;
  int count;
  int unit;
  bool turned = false;  // 32 bytes, whose bits are turned first
};

// How a block-quantised type becomes codes: the block's segments in the order of the record.
struct CodedType {
  DType dtype;
  LinearForm form;
  const char* name;
  std::array<Segment, 4> segments;
  uint32_t flip = 0;  // turns signed codes into offset binary
};

constexpr CodedType kCodedTypes[] = {
    {DType::kQ4_0, LinearForm::kCodes4, "q4 g32 scale", {{{0, 1, 2}, {2, 4, 4}, {}}}},
    {DType::kQ4_1, LinearForm::kCodes4Bias, "q4 g32 scale+bias", {{{0, 2, 2}, {4, 4, 4}, {}}}},
    {DType::kQ8_0, LinearForm::kCodes8, "q8 g32 scale", {{{0, 1, 2}, {2, 8, 4}, {}}}, 0x80808080u},
    {DType::kQ4_K,
     LinearForm::kCodes4Super,
     "q4 g32 scale+bias in 256",
     {{{0, 2, 2}, {4, 12, 1}, {16, 32, 4}}}},
    {DType::kQ6_K,
     LinearForm::kCodes6Super,
     "q6 g16 scale in 256",
     {{{208, 1, 2}, {192, 16, 1}, {0, 48, 4}}}},
    {DType::kQ5_0, LinearForm::kCodes5, "q5 g32 scale", {{{0, 1, 2}, {2, 5, 4}, {}}}},
    {DType::kQ5_1, LinearForm::kCodes5Bias, "q5 g32 scale+bias", {{{0, 2, 2}, {4, 5, 4}, {}}}},
    {DType::kQ5_K,
     LinearForm::kCodes5Super,
     "q5 g32 scale+bias in 256",
     {{{0, 2, 2}, {4, 12, 1}, {16, 8, 4, true}, {48, 32, 4}}}},
    {DType::kQ2_K,
     LinearForm::kCodes2Super,
     "q2 g16 scale+bias in 256",
     {{{80, 2, 2}, {0, 16, 1}, {16, 16, 4}}}},
    {DType::kQ3_K,
     LinearForm::kCodes3Super,
     "q3 g16 scale in 256",
     {{{108, 1, 2}, {96, 12, 1}, {0, 8, 4, true}, {32, 16, 4}}}},
    {DType::kIQ4_NL, LinearForm::kLevels, "iq4 g32 scale", {{{0, 1, 2}, {2, 4, 4}, {}}}},
    {DType::kIQ4_XS, LinearForm::kLevelsSuper, "iq4 g32 scale in 256", {{{0, 2, 2}, {4, 4, 1}, {8, 32, 4}}}},
    {DType::kMXFP4, LinearForm::kLevelsFp4, "fp4 g32 exponent", {{{0, 1, 1}, {1, 4, 4}, {}}}},
};

const CodedType* coded_type(DType dtype) {
  for (const CodedType& coded : kCodedTypes) {
    if (coded.dtype == dtype) return &coded;
  }
  return nullptr;
}

const CodedType* coded_type(LinearForm form) {
  for (const CodedType& coded : kCodedTypes) {
    if (coded.form == form) return &coded;
  }
  return nullptr;
}

std::string coded_type_names() {
  std::string names;
  for (const CodedType& coded : kCodedTypes) names += fmt::format(", {}", dtype_name(coded.dtype));
  return names;
}

// Of MLX's codes, by their bits.
struct AffineForm {
  int bits;
  LinearForm form;
};
constexpr AffineForm kAffineForms[] = {{2, LinearForm::kAffine2}, {3, LinearForm::kAffine3},
                                       {4, LinearForm::kAffine4}, {5, LinearForm::kAffine5},
                                       {6, LinearForm::kAffine6}, {8, LinearForm::kAffine8}};

// Bits of a code of an affine form; 0 for the others.
int affine_bits(LinearForm form) {
  for (const AffineForm& affine : kAffineForms) {
    if (affine.form == form) return affine.bits;
  }
  return 0;
}

LinearForm mlx_form(const MlxParts& mlx) {
  if (mlx.has_exponents()) return LinearForm::kLevelsFp4;
  for (const AffineForm& affine : kAffineForms) {
    if (affine.bits == mlx.bits) return affine.form;
  }
  BUTTER_CHECK(false && "codes of so many bits");
}

ScaleType scale_type(DType dtype) {
  if (dtype == DType::kF32) return ScaleType::kF32;
  return dtype == DType::kBF16 ? ScaleType::kBF16 : ScaleType::kF16;
}

Result<LinearForm> form_of(const TensorView& view) {
  switch (view.dtype) {
    case DType::kF32:
      return LinearForm::kF32;
    case DType::kF16:
      return LinearForm::kF16;
    case DType::kBF16:
      return LinearForm::kBF16;
    case DType::kMLX:
      return mlx_form(view.mlx);
    default:
      break;
  }
  if (const CodedType* coded = coded_type(view.dtype)) return coded->form;
  return fail(StatusCode::kUnsupported,
              "a linear weight of type {} is not supported on the CPU; those of F32, F16, BF16, MLX{} are",
              dtype_name(view.dtype), coded_type_names());
}

// The bits that stand apart from their codes: bit j of byte 4t + b, column 4t + b's of group j, becomes bit t
// of byte 4j + b, so that a group's are a dword. The same again turns them back.
void turn_bits(std::byte* bytes) {
  for (int b = 0; b < 4; ++b) {
    uint64_t square = 0;  // byte t, bit j
    for (int t = 0; t < 8; ++t) square |= std::to_integer<uint64_t>(bytes[4 * t + b]) << 8 * t;
    // Bits off the diagonal change places, in squares of 2, 4 and 8 (Warren, Hacker's Delight, 7-3).
    constexpr std::pair<int, uint64_t> kSquares[] = {
        {7, 0x00aa00aa00aa00aa}, {14, 0x0000cccc0000cccc}, {28, 0x00000000f0f0f0f0}};
    for (const auto& [shift, mask] : kSquares) {
      const uint64_t differing = (square ^ square >> shift) & mask;
      square ^= differing ^ differing << shift;
    }
    for (int j = 0; j < 8; ++j) bytes[4 * j + b] = static_cast<std::byte>(square >> 8 * j & 255);
  }
}

// Units are copied through a register, since their size is known only here.
template <int unit>
void interleave(const std::byte* block, int64_t row_bytes, int64_t lanes, int count, std::byte* record) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const std::byte* from = block + lane * row_bytes;
    for (int i = 0; i < count; ++i) std::memcpy(record + (i * lanes + lane) * unit, from + i * unit, unit);
  }
}

// Gathers one block of each of `lanes` rows, `row_bytes` apart in the file, into a record.
void pack_record(const CodedType& coded, const std::byte* block, int64_t row_bytes, int64_t lanes,
                 std::byte* record) {
  for (const Segment& segment : coded.segments) {
    const std::byte* from = block + segment.offset;
    if (segment.turned) {
      std::array<std::byte, 32 * kPanelRows> turned;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        std::memcpy(&turned[static_cast<size_t>(32 * lane)], from + lane * row_bytes, 32);
        turn_bits(&turned[static_cast<size_t>(32 * lane)]);
      }
      interleave<4>(turned.data(), 32, lanes, segment.count, record);
      record += 32 * lanes;
      continue;
    }
    if (segment.unit == 1) interleave<1>(from, row_bytes, lanes, segment.count, record);
    if (segment.unit == 2) interleave<2>(from, row_bytes, lanes, segment.count, record);
    if (segment.unit == 4) {
      interleave<4>(from, row_bytes, lanes, segment.count, record);
      for (int64_t i = 0; coded.flip != 0 && i < lanes * segment.count; ++i) {
        uint32_t quad;
        std::memcpy(&quad, record + 4 * i, 4);
        quad ^= coded.flip;
        std::memcpy(record + 4 * i, &quad, 4);
      }
    }
    record += lanes * segment.count * segment.unit;
  }
}

// The other way, for one row.
void unpack_block(const CodedType& coded, const std::byte* record, int64_t lanes, int64_t lane,
                  std::byte* block) {
  for (const Segment& segment : coded.segments) {
    for (int i = 0; i < segment.count; ++i) {
      std::byte* unit = block + segment.offset + i * segment.unit;
      std::memcpy(unit, record + (i * lanes + lane) * segment.unit, static_cast<size_t>(segment.unit));
      for (int b = 0; coded.flip != 0 && segment.unit == 4 && b < 4; ++b) unit[b] ^= std::byte{0x80};
    }
    if (segment.turned) turn_bits(block + segment.offset);
    record += lanes * segment.count * segment.unit;
  }
}

}  // namespace

int64_t LinearWeight::storage_bytes(const TensorView& view) {
  return dtype_info(view.dtype).quantised ? view.bytes() : 0;
}

Result<LinearWeight> LinearWeight::allocate(const TensorView& view, Isa isa, std::byte* storage) {
  LinearWeight weight;
  weight.isa_ = isa;
  BUTTER_ASSIGN(weight.matrix_.form, form_of(view));
  weight.matrix_.rows = view.rows();
  weight.matrix_.columns = view.columns();
  weight.matrix_.group = view.mlx.group;
  weight.matrix_.scales = scale_type(view.mlx.scale_dtype);
  weight.bytes_ = view.bytes();
  if (storage_bytes(view) == 0) {
    weight.matrix_.data = view.data;
    return weight;
  }
  if (storage == nullptr) {
    BUTTER_ASSIGN(weight.buffer_, Buffer::allocate(weight.bytes_));
    storage = weight.buffer_.data();
  }
  weight.packed_ = storage;
  weight.matrix_.data = storage;
  weight.source_ = view;
  weight.copied_ = true;
  return weight;
}

Result<LinearWeight> LinearWeight::make(const TensorView& view, Isa isa) {
  BUTTER_ASSIGN(LinearWeight weight, allocate(view, isa));
  weight.repack({0, weight.rows()});
  weight.finish();
  return weight;
}

void LinearWeight::repack(IndexRange rows) {
  if (!copied_) return;
  BUTTER_CHECK(!source_.empty() && rows.begin % kPanelRows == 0 && rows.end <= source_.rows());
  for (int64_t n = rows.begin; n < rows.end; n += kPanelRows) {
    const int64_t lanes = std::min(kPanelRows, source_.rows() - n);
    if (source_.dtype == DType::kMLX) {
      pack_mlx(n, lanes);
    } else {
      pack_blocks(n, lanes);
    }
  }
}

void LinearWeight::pack_blocks(int64_t n, int64_t lanes) {
  const CodedType& coded = *coded_type(source_.dtype);
  const DTypeInfo& info = dtype_info(source_.dtype);
  const int64_t blocks = columns() / info.block_elements;
  std::byte* record = packed_ + n * blocks * info.block_bytes;
  const std::byte* block = source_.row(n);
  for (int64_t i = 0; i < blocks; ++i, block += info.block_bytes, record += lanes * info.block_bytes)
    pack_record(coded, block, source_.row_bytes(), lanes, record);
}

// A record's scales, biases and codes; exponents have no biases, and their codes stand as those of 4 bits.
void LinearWeight::pack_mlx(int64_t n, int64_t lanes) {
  const MlxParts& mlx = source_.mlx;
  const int64_t scale_size = dtype_bytes(mlx.scale_dtype, 1), scale_row = source_.scale_row_bytes();
  std::byte* out = packed_ + n * (bytes_ / rows());
  const auto put_scales = [&](const std::byte* from, int64_t at) {
    for (int64_t lane = 0; from != nullptr && lane < lanes; ++lane, out += scale_size)
      std::memcpy(out, from + (n + lane) * scale_row + at * scale_size, static_cast<size_t>(scale_size));
  };
  const int64_t code_bytes = kGroup * mlx.bits / 8;
  for (int64_t k = 0; k < columns(); k += kGroup, out += lanes * code_bytes) {
    if (k % mlx.group == 0) {
      put_scales(mlx.scales, k / mlx.group);
      put_scales(mlx.biases, k / mlx.group);
    }
    for (int64_t lane = 0; lane < lanes; ++lane)
      pack_codes(source_.row(n + lane) + k * mlx.bits / 8, mlx.bits, out + 4 * lane, 4 * lanes);
  }
}

std::string LinearWeight::form_name() const {
  switch (matrix_.form) {
    case LinearForm::kF32:
      return "f32";
    case LinearForm::kF16:
      return "f16";
    case LinearForm::kBF16:
      return "bf16";
    default:
      break;
  }
  const int bits = affine_bits(matrix_.form);
  return bits > 0 ? fmt::format("q{} g{} scale+bias", bits, matrix_.group) : coded_type(matrix_.form)->name;
}

void LinearWeight::dequantise_affine_row(int64_t r, float* out) const {
  const int bits = affine_bits(matrix_.form), group = matrix_.group;
  const DType scale_dtype = matrix_.scales == ScaleType::kF32   ? DType::kF32
                            : matrix_.scales == ScaleType::kF16 ? DType::kF16
                                                                : DType::kBF16;
  const int64_t scale_size = dtype_bytes(scale_dtype, 1);
  const int64_t lane = r % kPanelRows, lanes = std::min(kPanelRows, rows() - (r - lane));
  const std::byte* record = matrix_.data + (r - lane) * (bytes_ / rows());
  for (int64_t begin = 0; begin < columns(); begin += group) {
    float scale, bias;
    butter::dequantise_row(scale_dtype, record + lane * scale_size, 1, &scale);
    butter::dequantise_row(scale_dtype, record + (lanes + lane) * scale_size, 1, &bias);
    record += 2 * lanes * scale_size;
    for (int64_t k = begin; k < begin + group; k += kGroup, record += lanes * kGroup * bits / 8) {
      uint8_t codes[kGroup];
      unpack_codes(record + 4 * lane, bits, 4 * lanes, codes);
      for (int64_t i = 0; i < kGroup; ++i) out[k + i] = scale * static_cast<float>(codes[i]) + bias;
    }
  }
}

void LinearWeight::dequantise_row(int64_t r, float* out) const {
  if (affine_bits(matrix_.form) > 0) return dequantise_affine_row(r, out);
  if (!copied_) {
    const LinearForm form = matrix_.form;
    const DType dtype = form == LinearForm::kF32   ? DType::kF32
                        : form == LinearForm::kF16 ? DType::kF16
                                                   : DType::kBF16;
    butter::dequantise_row(dtype, matrix_.data + r * dtype_bytes(dtype, columns()), columns(), out);
    return;
  }
  const CodedType& coded = *coded_type(matrix_.form);
  const DTypeInfo& info = dtype_info(coded.dtype);
  const int64_t first = r / kPanelRows * kPanelRows;
  const int64_t lanes = std::min(kPanelRows, rows() - first);
  const std::byte* record = matrix_.data + first * (columns() / info.block_elements) * info.block_bytes;
  std::array<std::byte, 256> block;  // the largest is 210 bytes
  for (int64_t k = 0; k < columns(); k += info.block_elements, record += lanes * info.block_bytes) {
    unpack_block(coded, record, lanes, r - first, block.data());
    butter::dequantise_row(coded.dtype, block.data(), info.block_elements, out + k);
  }
}

InputKind input_kind(const LinearWeight& weight, LinearPath path) {
  if (path != LinearPath::kDecode && kernels_of(weight.isa()).tiles != nullptr) {
    const bool pairs = weight.finer_than_bf16() || path == LinearPath::kFinePrefill;
    return pairs ? InputKind::kBf16Pair : InputKind::kBf16;
  }
  return weight.copied() ? InputKind::kInt8 : InputKind::kFloat;
}

namespace {

// bf16 parts of a value; 0 for kinds without tiles.
int tile_parts(InputKind kind) {
  if (kind == InputKind::kBf16Pair) return 2;
  return kind == InputKind::kBf16 ? 1 : 0;
}

}  // namespace

int64_t input_bytes(InputKind kind, int64_t rows, int64_t columns) {
  switch (kind) {
    case InputKind::kFloat:
      return 0;
    case InputKind::kInt8:
      return rows * kCodeRows * (columns / kGroup) * kInt8GroupBytes;
    case InputKind::kBf16:
    case InputKind::kBf16Pair:
      return round_up(rows, kTileRows) * round_up(columns, 32) * 2 * tile_parts(kind);
  }
  return 0;
}

int64_t input_grain(InputKind kind) {
  return tile_parts(kind) > 0 ? kTileRows : 1;
}

namespace {

void prepare_int8(Isa isa, const LinearInput& input, IndexRange rows) {
  const int64_t groups = input.columns / kGroup;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t code_row = row * kCodeRows;
    const int64_t first = code_row / kInt8Block * kInt8Block;
    const int64_t block = std::min(kInt8Block, input.rows * kCodeRows - first);
    std::byte* record = input.prepared + first * groups * kInt8GroupBytes;
    quantise_row(
        isa, input.x + row * input.stride, groups,
        {record, block * kInt8GroupBytes, static_cast<int>(block), static_cast<int>(code_row - first)});
  }
}

void prepare_tiles(Isa isa, const LinearInput& input, IndexRange rows) {
  const LinearKernels& kernels = kernels_of(isa);
  const int parts = tile_parts(input.kind);
  const int64_t steps = parts * (round_up(input.columns, 32) / 32);
  const int64_t end = rows.end == input.rows ? round_up(input.rows, kTileRows) : rows.end;
  for (int64_t row = rows.begin; row < end; ++row) {
    std::byte* block = input.prepared + row / kTileRows * steps * kTileRows * 64;
    std::byte* out = block + row % kTileRows * 64;
    if (row < input.rows) {
      kernels.pack_tile_row(input.x + row * input.stride, input.columns, parts, out);
    } else {
      for (int64_t step = 0; step < steps; ++step) std::memset(out + step * kTileRows * 64, 0, 64);
    }
  }
}

}  // namespace

void prepare_input(Isa isa, const LinearInput& input, IndexRange rows) {
  if (input.kind == InputKind::kInt8) prepare_int8(isa, input, rows);
  if (tile_parts(input.kind) > 0) prepare_tiles(isa, input, rows);
}

int64_t linear_scratch_bytes(const LinearWeight& weight) {
  const int parts = tile_parts(input_kind(weight, LinearPath::kPrefill));
  // Two panels of 16 outputs as bf16 tiles, and twice four tiles of float32 results.
  return parts > 0 ? parts * round_up(weight.columns(), 32) * 64 + 8 * 1024 : 0;
}

void linear(const LinearWeight& weight, const LinearInput& input, IndexRange outputs,
            const LinearTarget& target, std::byte* scratch) {
  if (outputs.begin >= outputs.end || input.rows == 0) return;
  const LinearMatrix& matrix = weight.matrix();
  BUTTER_CHECK(outputs.begin % kPanelRows == 0 && outputs.end <= matrix.rows &&
               input.columns == matrix.columns);
  const LinearKernels& kernels = kernels_of(weight.isa());
  switch (input.kind) {
    case InputKind::kFloat:
      return kernels.floats(matrix, {input.x, input.stride, input.rows}, outputs.begin, outputs.end, target);
    case InputKind::kInt8:
      return kernels.codes(matrix, {input.prepared, input.rows * kCodeRows}, outputs.begin, outputs.end,
                           target);
    case InputKind::kBf16:
    case InputKind::kBf16Pair:
      return kernels.tiles(matrix, {input.prepared, input.rows, tile_parts(input.kind)}, outputs.begin,
                           outputs.end, target, scratch);
  }
}

}  // namespace butter::cpu
