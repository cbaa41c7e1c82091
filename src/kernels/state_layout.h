// Where the recurrent state of a sequence stands in memory: one block, a fixed number of bytes, float32.
//
//   block = [layer 0][layer 1]...
//   layer = [the inputs of the last taps − 1 positions, before convolution: [taps − 1][channels]]
//           [the state proper]            each a multiple of 64 bytes
//
// State is a function of the whole past: it cannot be cut, windowed or rolled back, only copied
// (families.md 4.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace butter {

// The state of one layer.
struct StateShape {
  int layer = 0;  // the model's layer index
  int conv_rows = 0;
  int conv_channels = 0;
  int64_t values = 0;  // of the state proper
};

struct StateOffsets {
  int64_t conv = 0;  // bytes from the block's base
  int64_t state = 0;
  int64_t bytes = 0;  // of both
};

struct StateLayout {
  std::vector<StateOffsets> layers;
  int64_t bytes = 0;
};

StateLayout state_layout(const std::vector<StateShape>& layers);

// Zeroes what no kernel writes: the same state is then the same bytes.
void clear_padding(const std::vector<StateShape>& layers, const StateLayout& layout, std::byte* block);

}  // namespace butter
