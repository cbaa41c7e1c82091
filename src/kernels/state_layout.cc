#include "kernels/state_layout.h"

#include <algorithm>

#include "core/buffer.h"

namespace butter {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

int64_t conv_bytes(const StateShape& shape) {
  return int64_t{shape.conv_rows} * shape.conv_channels * kFloat;
}

}  // namespace

StateLayout state_layout(const std::vector<StateShape>& layers) {
  StateLayout layout;
  for (const StateShape& shape : layers) {
    StateOffsets offsets;
    offsets.conv = layout.bytes;
    offsets.state = offsets.conv + round_up(conv_bytes(shape), Buffer::kAlignment);
    layout.bytes = offsets.state + round_up(shape.values * kFloat, Buffer::kAlignment);
    offsets.bytes = layout.bytes - offsets.conv;
    layout.layers.push_back(offsets);
  }
  return layout;
}

void clear_padding(const std::vector<StateShape>& layers, const StateLayout& layout, std::byte* block) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const StateOffsets& offsets = layout.layers[i];
    std::fill(block + offsets.conv + conv_bytes(layers[i]), block + offsets.state, std::byte{0});
    std::fill(block + offsets.state + layers[i].values * kFloat, block + offsets.conv + offsets.bytes,
              std::byte{0});
  }
}

}  // namespace butter
