#include "model/weights.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/dequantise.h"

namespace butter {
namespace {

// Rows of equal length: a matrix, or a vector as rows of one value each.
struct Rows {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t row_bytes = 0;
};

// Rows and columns of a stored matrix.
struct MatrixShape {
  int64_t rows = 1;
  int64_t columns = 1;
};
MatrixShape matrix_shape(const TensorRef& ref, const Shape& stored) {
  if (ref.convolution) return {stored[0], stored.elements() / stored[0]};
  if (stored.rank() < 2) return {1, stored.elements()};
  return {stored[stored.rank() - 2], stored[stored.rank() - 1]};
}

Rows stored_rows(const TensorRef& ref, const TensorView& stored) {
  if (ref.shape.rank() == 1) {
    const int64_t first = ref.matrix * stored.columns();
    const int64_t bytes = dtype_info(stored.dtype).block_bytes;
    return {stored.data + first * bytes, stored.shape.elements() - first, bytes};
  }
  const MatrixShape shape = matrix_shape(ref, stored.shape);
  BUTTER_CHECK((ref.matrix + 1) * shape.rows * shape.columns <= stored.shape.elements());
  const int64_t row_bytes = dtype_bytes(stored.dtype, shape.columns);
  return {stored.data + ref.matrix * shape.rows * row_bytes, shape.rows, row_bytes};
}

Result<Buffer> transpose(const TensorRef& ref, const TensorView& stored) {
  const DTypeInfo& info = dtype_info(stored.dtype);
  if (info.quantised) {
    return fail(StatusCode::kUnsupported,
                "{} is stored as {} with its rows as columns; F32, F16 or BF16 is expected", ref.name,
                dtype_name(stored.dtype));
  }
  const MatrixShape shape = matrix_shape(ref, stored.shape);
  const Rows from = stored_rows(ref, stored);
  const auto value_bytes = static_cast<size_t>(info.block_bytes);
  BUTTER_ASSIGN(Buffer buffer, Buffer::allocate(shape.rows * from.row_bytes));
  std::byte* to = buffer.data();
  for (int64_t column = 0; column < shape.columns; ++column) {
    for (int64_t row = 0; row < shape.rows; ++row, to += value_bytes)
      std::memcpy(to, from.data + row * from.row_bytes + column * info.block_bytes, value_bytes);
  }
  return buffer;
}

// Which stored row is row `row` of the reference.
int64_t source_row(const TensorRef& ref, int64_t row) {
  if (ref.permuted_heads > 0) {
    // Back in the order of two halves: old row s·D/2 + i = stored row 2i + s, head by head.
    const int64_t head_rows = ref.shape[0] / ref.permuted_heads, half = head_rows / 2;
    const int64_t within = row % head_rows;
    row += 2 * (within % half) + within / half - within;
  }
  if (ref.group_take > 0) row = row / ref.group_take * ref.group_rows + row % ref.group_take;
  return ref.first_row + row;
}

Status check_permutation(const TensorRef& ref) {
  if (ref.permuted_heads == 0) return {};
  const int64_t head_rows = ref.shape[0] / ref.permuted_heads;
  BUTTER_CHECK(ref.shape[0] % ref.permuted_heads == 0);
  if (head_rows % 2 == 0) return {};
  return fail(StatusCode::kUnsupported,
              "{} has heads of {} rows; an even number is expected where rope pairs rows", ref.name,
              head_rows);
}

// a of log(−a).
Result<Buffer> undo_log(const TensorView& view) {
  const int64_t count = view.shape.elements();
  BUTTER_ASSIGN(Buffer buffer, Buffer::allocate(count * static_cast<int64_t>(sizeof(float))));
  auto* values = reinterpret_cast<float*>(buffer.data());
  dequantise_row(view.dtype, view.data, count, values);
  for (int64_t i = 0; i < count; ++i) values[i] = -std::exp(values[i]);
  return buffer;
}

// The first number whose exponent has all bits set, which none that is finite has; `count` if there is none.
template <typename T>
int64_t first_with(T exponent, const std::byte* numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, numbers + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    if ((bits & exponent) == exponent) return i;
  }
  return count;
}

int64_t first_not_finite(DType dtype, const std::byte* numbers, int64_t count) {
  if (dtype == DType::kU8) return first_with<uint8_t>(0xff, numbers, count);
  if (dtype == DType::kF16) return first_with<uint16_t>(0x7c00, numbers, count);
  if (dtype == DType::kBF16) return first_with<uint16_t>(0x7f80, numbers, count);
  return first_with<uint32_t>(0x7f800000, numbers, count);
}

// Scales of MLX codes reach kernels unseen, and one that is no number would spoil every row that it meets.
Status check_scales(const std::string& name, const TensorView& weight) {
  const MlxParts& mlx = weight.mlx;
  const int64_t groups = weight.columns() / mlx.group, count = weight.rows() * groups;
  for (const std::byte* scales : {mlx.scales, mlx.biases}) {
    if (scales == nullptr) continue;
    const int64_t found = first_not_finite(mlx.scale_dtype, scales, count);
    if (found == count) continue;
    return fail(StatusCode::kCorrupt,
                "{}: the {} of group {} in row {} is NaN or infinite; a finite number is expected", name,
                scales == mlx.biases ? "bias" : "scale", found % groups, found / groups);
  }
  return {};
}

}  // namespace

WeightLoader::WeightLoader(Checkpoint& checkpoint, Device& device, Progress progress)
    : checkpoint_(checkpoint), device_(device), progress_(std::move(progress)) {}

// Whole rows move, so any type can be reordered; only vectors and transposed matrices must be floats.
Result<WeightLoader::Loaded> WeightLoader::assemble(const TensorRef& ref, const TensorView& stored) const {
  const bool is_vector = ref.shape.rank() == 1;
  if ((is_vector || ref.log_decay) && dtype_info(stored.dtype).quantised) {
    return fail(StatusCode::kUnsupported, "{} is stored as {}; a vector is expected to be F32, F16 or BF16",
                ref.name, dtype_name(stored.dtype));
  }
  BUTTER_TRY(check_permutation(ref));
  if (stored.dtype == DType::kMLX) return assemble_mlx(ref, stored);
  Loaded loaded;
  loaded.view.dtype = stored.dtype;
  loaded.view.shape = ref.shape;
  Rows rows = stored_rows(ref, stored);
  std::optional<Buffer> turned;
  if (ref.transposed) {
    BUTTER_ASSIGN(turned, transpose(ref, stored));
    const MatrixShape shape = matrix_shape(ref, stored.shape);
    rows = {turned->data(), shape.columns, dtype_bytes(stored.dtype, shape.rows)};
  }
  const int64_t count = ref.shape[0];
  BUTTER_CHECK(source_row(ref, count - 1) < rows.count);
  if (ref.permuted_heads > 0 || ref.group_take > 0) {
    BUTTER_ASSIGN(loaded.buffer, Buffer::allocate(count * rows.row_bytes));
    loaded.view.data = loaded.buffer->data();
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(loaded.buffer->data() + row * rows.row_bytes,
                  rows.data + source_row(ref, row) * rows.row_bytes, static_cast<size_t>(rows.row_bytes));
    }
  } else {
    loaded.view.data = rows.data + ref.first_row * rows.row_bytes;
    loaded.buffer = std::move(turned);
  }
  if (ref.log_decay) {
    BUTTER_ASSIGN(loaded.buffer, undo_log(loaded.view));
    loaded.view.dtype = DType::kF32;
    loaded.view.data = loaded.buffer->data();
  }
  return loaded;
}

// Scales and biases move with the rows of their codes.
Result<WeightLoader::Loaded> WeightLoader::assemble_mlx(const TensorRef& ref,
                                                        const TensorView& stored) const {
  if (ref.transposed) BUTTER_TRY(transpose(ref, stored));  // which refuses it
  const int64_t rows = stored.shape[stored.shape.rank() - 2], count = ref.shape[0];
  const TensorView matrix = stored.row_range(ref.matrix * rows, rows);
  BUTTER_CHECK(source_row(ref, count - 1) < rows);
  Loaded loaded;
  if (ref.permuted_heads == 0 && ref.group_take == 0) {
    loaded.view = matrix.row_range(ref.first_row, count);
  } else {
    loaded.view = matrix.row_range(0, count);
    BUTTER_ASSIGN(loaded.buffer, Buffer::allocate(loaded.view.bytes()));
    std::byte* to = loaded.buffer->data();
    const auto gather = [&](const std::byte* from, int64_t row_bytes) -> const std::byte* {
      if (from == nullptr) return nullptr;
      const std::byte* gathered = to;
      for (int64_t row = 0; row < count; ++row, to += row_bytes)
        std::memcpy(to, from + source_row(ref, row) * row_bytes, static_cast<size_t>(row_bytes));
      return gathered;
    };
    loaded.view.data = gather(matrix.data, matrix.row_bytes());
    loaded.view.mlx.scales = gather(matrix.mlx.scales, matrix.scale_row_bytes());
    loaded.view.mlx.biases = gather(matrix.mlx.biases, matrix.scale_row_bytes());
  }
  BUTTER_TRY(check_scales(ref.name, loaded.view));
  return loaded;
}

Result<WeightId> WeightLoader::load(const TensorRef& ref, LoadFn load_on_device) {
  const std::tuple key{ref.name, ref.matrix, ref.first_row};
  if (const auto known = handles_.find(key); known != handles_.end()) return known->second;
  BUTTER_ASSIGN(const TensorView stored,
                checkpoint_.require_tensor(ref.name, ref.stored.rank() == 0 ? ref.shape : ref.stored));
  BUTTER_ASSIGN(Loaded loaded, assemble(ref, stored));
  BUTTER_ASSIGN(const Device::LoadedWeight weight, (device_.*load_on_device)(ref.name, loaded.view));
  const bool moved = loaded.buffer.has_value();
  if (moved && !weight.copied) buffers_.push_back(std::move(*loaded.buffer));
  if (weight.copied || moved) checkpoint_.release_pages(moved ? stored : loaded.view);
  BUTTER_TRY(checkpoint_.check_undamaged());
  done_bytes_ += loaded.view.bytes();
  if (progress_) progress_(done_bytes_);
  handles_[key] = weight.id;
  return weight.id;
}

Result<WeightId> WeightLoader::linear(const TensorRef& ref) {
  return load(ref, &Device::load_linear);
}

Result<WeightId> WeightLoader::vector(const TensorRef& ref) {
  return load(ref, &Device::load_vector);
}

}  // namespace butter
