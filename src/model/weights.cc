#include "model/weights.h"

#include <cstring>

#include "core/check.h"

namespace butter {

WeightLoader::WeightLoader(Checkpoint& checkpoint, Device& device, Progress progress)
    : checkpoint_(checkpoint), device_(device), progress_(std::move(progress)) {}

// Rows back in the order of two halves: old row s·D/2 + i = stored row 2i + s, head by head. Whole rows move,
// so any type can be reordered.
Result<TensorView> WeightLoader::unpermute(const TensorRef& ref, const TensorView& stored) {
  const bool is_vector = stored.shape.rank() == 1;
  const int64_t rows = is_vector ? stored.columns() : stored.rows();
  const int64_t row_bytes = is_vector ? dtype_info(stored.dtype).block_bytes : stored.row_bytes();
  const int64_t head_rows = rows / ref.permuted_heads;
  BUTTER_CHECK(rows % ref.permuted_heads == 0);
  if (head_rows % 2 != 0) {
    return fail(StatusCode::kUnsupported,
                "{} has heads of {} rows; an even number is expected where rope pairs rows", ref.name,
                head_rows);
  }
  if (is_vector && dtype_info(stored.dtype).quantised) {
    return fail(StatusCode::kUnsupported, "{} is stored as {}; a vector is expected to be F32, F16 or BF16",
                ref.name, dtype_name(stored.dtype));
  }
  BUTTER_ASSIGN(Buffer buffer, Buffer::allocate(rows * row_bytes));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_rows, within = row % head_rows;
    const int64_t half = within / (head_rows / 2), pair = within % (head_rows / 2);
    const int64_t from = head * head_rows + 2 * pair + half;
    std::memcpy(buffer.data() + row * row_bytes, stored.data + from * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  TensorView view = stored;
  view.data = buffer.data();
  buffers_.push_back(std::move(buffer));
  return view;
}

// The rows of the checkpoint that a reference means.
Result<TensorView> WeightLoader::find_rows(const TensorRef& ref) const {
  if (ref.stored_rows == 0) return checkpoint_.require_tensor(ref.name, ref.shape);
  BUTTER_CHECK(ref.shape.rank() == 2 && ref.first_row + ref.shape[0] <= ref.stored_rows);
  BUTTER_ASSIGN(TensorView view, checkpoint_.require_tensor(ref.name, Shape{ref.stored_rows, ref.shape[1]}));
  view.data = view.row(ref.first_row);
  view.shape = ref.shape;
  return view;
}

Result<WeightId> WeightLoader::load(const TensorRef& ref, LoadFn load_on_device) {
  const std::pair key{ref.name, ref.first_row};
  if (const auto known = handles_.find(key); known != handles_.end()) return known->second;
  BUTTER_ASSIGN(const TensorView stored, find_rows(ref));
  const bool permuted = ref.permuted_heads > 0;
  TensorView view = stored;
  if (permuted) {
    BUTTER_ASSIGN(view, unpermute(ref, stored));
  }
  BUTTER_ASSIGN(const Device::LoadedWeight weight, (device_.*load_on_device)(ref.name, view));
  if (permuted && weight.copied) buffers_.pop_back();
  if (weight.copied || permuted) checkpoint_.release_pages(stored);
  BUTTER_TRY(checkpoint_.check_undamaged());
  done_bytes_ += stored.bytes();
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
