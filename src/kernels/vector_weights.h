// VectorWeights: the small weights of a model (norms, biases) as float32, as both host devices hold them.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor_view.h"
#include "kernels/program.h"

namespace butter {

class VectorWeights {
 public:
  // Copies the tensor; its handle counts from 0. `name` is for the error where it is block-quantised.
  Result<WeightId> add(const std::string& name, const TensorView& weight);
  // Null for kNone.
  const float* find(WeightId id) const {
    return id == kNone ? nullptr : values_[static_cast<size_t>(id)].data();
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<std::vector<float>> values_;
  int64_t bytes_ = 0;
};

}  // namespace butter
