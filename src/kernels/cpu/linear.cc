#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/dequantise.h"
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

// How a block-quantised type becomes codes.
struct CodedType {
  LinearForm form;
  int block_bytes;
  int header_bytes;  // fp16 scale and, in some, bias: what comes before the codes
};

const CodedType* coded_type(DType dtype) {
  static constexpr CodedType kQ4_0 = {LinearForm::kCodes4, 18, 2};
  static constexpr CodedType kQ4_1 = {LinearForm::kCodes4Bias, 20, 4};
  static constexpr CodedType kQ8_0 = {LinearForm::kCodes8, 34, 2};
  switch (dtype) {
    case DType::kQ4_0:
      return &kQ4_0;
    case DType::kQ4_1:
      return &kQ4_1;
    case DType::kQ8_0:
      return &kQ8_0;
    default:
      return nullptr;
  }
}

Result<LinearForm> form_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return LinearForm::kF32;
    case DType::kF16:
      return LinearForm::kF16;
    case DType::kBF16:
      return LinearForm::kBF16;
    default:
      break;
  }
  if (const CodedType* coded = coded_type(dtype)) return coded->form;
  return fail(
      StatusCode::kUnsupported,
      "a linear weight of type {} is not supported on the CPU; F32, F16, BF16, Q4_0, Q4_1 and Q8_0 are",
      dtype_name(dtype));
}

// Gathers group g of the file's rows `rows` (one panel) into a record.
void pack_record(const TensorView& source, const CodedType& coded, IndexRange rows, int64_t g,
                 std::byte* record) {
  const int64_t lanes = rows.size();
  const int64_t row_bytes = source.row_bytes();
  const std::byte* block = source.row(rows.begin) + g * coded.block_bytes;
  for (int header = 0; header < coded.header_bytes; header += 2, record += 2 * lanes) {
    for (int64_t i = 0; i < lanes; ++i) std::memcpy(record + 2 * i, block + i * row_bytes + header, 2);
  }
  const int quads = (coded.block_bytes - coded.header_bytes) / 4;
  const uint32_t flip = coded.form == LinearForm::kCodes8 ? 0x80808080u : 0u;  // signed to offset binary
  for (int64_t i = 0; i < lanes; ++i) {
    const std::byte* codes = block + i * row_bytes + coded.header_bytes;
    for (int q = 0; q < quads; ++q) {
      uint32_t quad;
      std::memcpy(&quad, codes + 4 * q, 4);
      quad ^= flip;
      std::memcpy(record + (q * lanes + i) * 4, &quad, 4);
    }
  }
}

float load_fp16(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return fp16_to_float(bits);
}

}  // namespace

int64_t LinearWeight::storage_bytes(const TensorView& view) {
  return coded_type(view.dtype) != nullptr ? view.bytes() : 0;
}

Result<LinearWeight> LinearWeight::allocate(const TensorView& view, Isa isa, std::byte* storage) {
  LinearWeight weight;
  weight.isa_ = isa;
  BUTTER_ASSIGN(weight.matrix_.form, form_of(view.dtype));
  weight.matrix_.rows = view.rows();
  weight.matrix_.columns = view.columns();
  weight.bytes_ = view.bytes();
  if (coded_type(view.dtype) == nullptr) {
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
  const CodedType& coded = *coded_type(source_.dtype);
  const int64_t groups = columns() / kGroup;
  for (int64_t n = rows.begin; n < rows.end; n += kPanelRows) {
    const IndexRange panel{n, std::min(n + kPanelRows, source_.rows())};
    std::byte* record = packed_ + n * groups * coded.block_bytes;
    for (int64_t g = 0; g < groups; ++g, record += panel.size() * coded.block_bytes)
      pack_record(source_, coded, panel, g, record);
  }
}

const char* LinearWeight::form_name() const {
  switch (matrix_.form) {
    case LinearForm::kF32:
      return "f32";
    case LinearForm::kF16:
      return "f16";
    case LinearForm::kBF16:
      return "bf16";
    case LinearForm::kCodes4:
      return "q4 g32 scale";
    case LinearForm::kCodes4Bias:
      return "q4 g32 scale+bias";
    case LinearForm::kCodes8:
      return "q8 g32 scale";
  }
  return "";
}

void LinearWeight::dequantise_row(int64_t r, float* out) const {
  const LinearForm form = matrix_.form;
  if (!copied_) {
    const DType dtype = form == LinearForm::kF32   ? DType::kF32
                        : form == LinearForm::kF16 ? DType::kF16
                                                   : DType::kBF16;
    butter::dequantise_row(dtype, matrix_.data + r * dtype_bytes(dtype, columns()), columns(), out);
    return;
  }
  const bool has_bias = form == LinearForm::kCodes4Bias;
  const int quads = form == LinearForm::kCodes8 ? 8 : 4;
  const int64_t block_bytes = (has_bias ? 4 : 2) + quads * 4;
  const int64_t first = r / kPanelRows * kPanelRows;
  const int64_t lanes = std::min(kPanelRows, rows() - first);
  const int64_t lane = r - first;
  const std::byte* record = matrix_.data + first * (columns() / kGroup) * block_bytes;
  for (int64_t k = 0; k < columns(); k += kGroup, record += lanes * block_bytes, out += kGroup) {
    const float scale = load_fp16(record + 2 * lane);
    const float bias = has_bias ? load_fp16(record + 2 * (lanes + lane)) : 0.0f;
    const std::byte* codes = record + lanes * (has_bias ? 4 : 2) + lane * 4;
    for (int q = 0; q < quads; ++q, codes += lanes * 4) {
      for (int b = 0; b < 4; ++b) {
        const int code = std::to_integer<int>(codes[b]);
        if (form == LinearForm::kCodes8) {
          out[4 * q + b] = scale * static_cast<float>(code - 128);
        } else if (has_bias) {
          out[4 * q + b] = scale * static_cast<float>(code & 15) + bias;
          out[16 + 4 * q + b] = scale * static_cast<float>(code >> 4) + bias;
        } else {
          out[4 * q + b] = scale * static_cast<float>((code & 15) - 8);
          out[16 + 4 * q + b] = scale * static_cast<float>((code >> 4) - 8);
        }
      }
    }
  }
}

void LinearWeight::prefetch_head(IndexRange outputs) const {
  constexpr int64_t kLines = 64;
  if (outputs.begin >= outputs.end) return;
  const std::byte* at = matrix_.data + outputs.begin * (bytes_ / std::max<int64_t>(1, rows()));
  const std::byte* end = matrix_.data + bytes_;
  for (int64_t line = 0; line < kLines && at < end; ++line, at += 64) __builtin_prefetch(at);
}

InputKind input_kind(const LinearWeight& weight, LinearPath path) {
  const LinearForm form = weight.matrix().form;
  if (form == LinearForm::kF32) return InputKind::kFloat;
  if (path == LinearPath::kPrefill && kernels_of(weight.isa()).tiles != nullptr) return InputKind::kBf16;
  return weight.copied() ? InputKind::kInt8 : InputKind::kFloat;
}

int64_t input_bytes(InputKind kind, int64_t rows, int64_t columns) {
  switch (kind) {
    case InputKind::kFloat:
      return 0;
    case InputKind::kInt8:
      return rows * (columns / kGroup) * kInt8GroupBytes;
    case InputKind::kBf16:
      return round_up(rows, kTileRows) * round_up(columns, 32) * 2;
  }
  return 0;
}

int64_t input_grain(InputKind kind) {
  return kind == InputKind::kBf16 ? kTileRows : 1;
}

namespace {

void prepare_int8(Isa isa, const LinearInput& input, IndexRange rows) {
  const int64_t groups = input.columns / kGroup;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t first = row / kInt8Block * kInt8Block;
    const int64_t block = std::min(kInt8Block, input.rows - first);
    std::byte* record = input.prepared + first * groups * kInt8GroupBytes;
    quantise_row(isa, input.x + row * input.stride, groups,
                 {record, block * kInt8GroupBytes, static_cast<int>(block), static_cast<int>(row - first)});
  }
}

void prepare_bf16(Isa isa, const LinearInput& input, IndexRange rows) {
  const LinearKernels& kernels = kernels_of(isa);
  const int64_t steps = round_up(input.columns, 32) / 32;
  const int64_t end = rows.end == input.rows ? round_up(input.rows, kTileRows) : rows.end;
  for (int64_t row = rows.begin; row < end; ++row) {
    std::byte* block = input.prepared + row / kTileRows * steps * kTileRows * 64;
    std::byte* out = block + row % kTileRows * 64;
    if (row < input.rows) {
      kernels.pack_tile_row(input.x + row * input.stride, input.columns, out);
    } else {
      for (int64_t step = 0; step < steps; ++step) std::memset(out + step * kTileRows * 64, 0, 64);
    }
  }
}

}  // namespace

void prepare_input(Isa isa, const LinearInput& input, IndexRange rows) {
  if (input.kind == InputKind::kInt8) prepare_int8(isa, input, rows);
  if (input.kind == InputKind::kBf16) prepare_bf16(isa, input, rows);
}

int64_t linear_scratch_bytes(Isa isa, int64_t columns) {
  // Two panels of 16 outputs as bf16 tiles, and twice four tiles of float32 results.
  return kernels_of(isa).tiles != nullptr ? round_up(columns, 32) * 64 + 8 * 1024 : 0;
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
      return kernels.codes(matrix, {input.prepared, input.rows}, outputs.begin, outputs.end, target);
    case InputKind::kBf16:
      return kernels.tiles(matrix, {input.prepared, input.rows}, outputs.begin, outputs.end, target, scratch);
  }
}

}  // namespace butter::cpu
