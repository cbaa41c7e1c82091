// WeightLoader: brings a checkpoint's tensors onto a device, in the order that the decoder asks for them.
//
// Checks the shape against the spec and that scales are finite, brings the rows of a reference together, and
// lets go of the mapped pages of every tensor that the device copied. A tensor that the device reads in place
// stays mapped, or, if its rows had to be reordered, lives in a buffer that the loader owns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/buffer.h"
#include "kernels/device.h"
#include "model/model_spec.h"

namespace butter {

class WeightLoader {
 public:
  // Called after each tensor with the bytes done so far.
  using Progress = std::function<void(int64_t done_bytes)>;

  WeightLoader(Checkpoint& checkpoint, Device& device, Progress progress = nullptr);

  // Loads a tensor once; asking again gives the same handle (a tied head).
  Result<WeightId> linear(const TensorRef& ref);
  Result<WeightId> vector(const TensorRef& ref);
  // Buffers that must live as long as the device's weights.
  std::vector<Buffer> take_buffers() { return std::move(buffers_); }

 private:
  using LoadFn = Result<Device::LoadedWeight> (Device::*)(const std::string&, const TensorView&);

  // What a reference means, and the buffer that holds it where it could not be left as it is stored.
  struct Loaded {
    TensorView view;
    std::optional<Buffer> buffer;
  };

  Result<WeightId> load(const TensorRef& ref, LoadFn load_on_device);
  Result<Loaded> assemble(const TensorRef& ref, const TensorView& stored) const;
  Result<Loaded> assemble_mlx(const TensorRef& ref, const TensorView& stored) const;

  Checkpoint& checkpoint_;
  Device& device_;
  Progress progress_;
  std::map<std::tuple<std::string, int64_t, int64_t>, WeightId> handles_;  // by name, matrix and first row
  std::vector<Buffer> buffers_;
  int64_t done_bytes_ = 0;
};

}  // namespace butter
