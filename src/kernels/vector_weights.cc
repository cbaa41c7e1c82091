#include "kernels/vector_weights.h"

#include "core/dequantise.h"

namespace butter {

Result<WeightId> VectorWeights::add(const std::string& name, const TensorView& weight) {
  if (dtype_info(weight.dtype).quantised) {
    return fail(StatusCode::kUnsupported, "{} is stored as {}; a vector is expected to be F32, F16 or BF16",
                name, dtype_name(weight.dtype));
  }
  std::vector<float> values(static_cast<size_t>(weight.shape.elements()));
  dequantise_row(weight.dtype, weight.data, weight.shape.elements(), values.data());
  bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
  values_.push_back(std::move(values));
  return static_cast<WeightId>(values_.size()) - 1;
}

}  // namespace butter
