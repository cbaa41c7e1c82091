// Where the rows of a KV cache stand in memory: plain offsets, shared by planner, allocator and kernels.
//
// A page is 64 consecutive positions of a sequence. All layers of a window class keep their rows for a page
// in one block:
//
//   block  = [layer 0][layer 1]...          each a multiple of 64 bytes
//   layer  = [head 0: K record, V record][head 1: K record, V record]... and, in schemes that seal, [a tail
//            of 16 bytes a head]
//   record = the 64 rows of one KV head and side, in the layout of its row format
//   raw    = [64 rows][dim] of the raw type, natural order
//
// Attention reads a layer of page after page, so in the pool the blocks of a slab may stand side by side,
// layer by layer: [layer 0 of block 0][layer 0 of block 1]...[layer 1 of block 0]... A block is then several
// pieces.
//
// Offsets are data (sizes may differ from head to head), so a format never shows in the code that walks them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace butter {

constexpr int kPageRows = 64;
constexpr int kPinnedRows = 4;  // positions that lossy formats keep raw for the sequence's life

inline int64_t page_of(int64_t position) {
  return position / kPageRows;
}
inline int64_t pages_for(int64_t positions) {
  return (positions + kPageRows - 1) / kPageRows;
}

enum class Side : uint8_t { kKey, kValue };

// What a codec must know of the rows it stores: constant for one side of one layer.
struct RowShape {
  int dim = 0;              // values in a row
  DType raw = DType::kF16;  // type of raw rows: F16, BF16, or F32 on the reference device
  int layer = 0;            // the model's layer index (seeds)
  Side side = Side::kKey;
  int bits = 16;  // of a code, and channels that share a scale: the format's own
  int group = 0;
};

// Names a centre by its bytes (kernels/centre.h); zeros where there is none.
using CentreId = std::array<uint8_t, 6>;

// What stands beside the records of one KV head of a sealed page.
struct RecordTail {
  int8_t exponent[2] = {};  // of the row scales of K and of V, in formats that have one
  CentreId centre = {};     // the one that the keys were coded with: no other may read them
  uint64_t centred = 0;     // rows whose key was coded without the centre, as bits
};
static_assert(sizeof(RecordTail) == 16);

struct RowFormat;

// The formats of a sequence's sealed rows and the type of its raw ones.
struct KvScheme {
  const RowFormat* key = nullptr;
  const RowFormat* value = nullptr;
  DType raw = DType::kF16;
  bool plain = false;        // neither pinned rows nor a centre, for comparison
  int64_t span = kPageRows;  // positions that a prompt reads raw among themselves: a multiple of 64

  // Whether sealing changes anything: then a separate open block exists.
  bool seals() const;
  // Whether the first positions stay raw for the sequence's life.
  bool pins() const { return seals() && !plain; }
  // Whether keys are coded without their centre (centre.h).
  bool centres() const;
  const RowFormat& format(Side side) const { return side == Side::kKey ? *key : *value; }
  bool operator==(const KvScheme&) const = default;
};

// The attention geometry of one layer that has a KV cache.
struct KvLayerShape {
  int layer = 0;  // the model's layer index
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int window_class = 0;  // index into the model's list of distinct windows
  int rope_table = -1;   // index into Program::rope_tables; none: keys are not rotated

  // Of raw rows, and of rows in the scheme's format.
  RowShape row_shape(Side side, DType raw) const {
    return {side == Side::kKey ? key_dim : value_dim, raw, layer, side};
  }
  RowShape row_shape(Side side, const KvScheme& scheme) const;
};

struct RecordOffsets {
  int64_t key = 0;
  int64_t value = 0;
  int64_t tail = 0;  // a RecordTail, in sealed blocks of schemes that seal
};

// Records of one layer, as offsets from the block's base.
struct LayerLayout {
  std::vector<RecordOffsets> heads;
  int64_t begin = 0;  // where the layer's bytes start
  int64_t bytes = 0;
};

// One window class of one format.
struct BlockLayout {
  std::vector<LayerLayout> layers;  // in the order of the class's layers
  int64_t bytes = 0;                // of all layers
  int64_t side_by_side = 1;         // blocks of a slab that are laid out together
};

// Layout of a sealed block (`rows` = 64, the scheme's formats).
BlockLayout sealed_layout(const std::vector<KvLayerShape>& class_layers, const KvScheme& scheme);
// Layout of raw rows: an open page (rows = 64) or the pinned rows (rows = 4).
BlockLayout raw_layout(const std::vector<KvLayerShape>& class_layers, DType raw, int rows);

// Lets `blocks` blocks stand side by side. Layers must be of one size. Block i's base is i · (bytes of a
// layer) from the slab's.
void lay_side_by_side(BlockLayout& layout, int64_t blocks);
// One block's rows to another of the same layout.
void copy_block(const BlockLayout& layout, const std::byte* from, std::byte* to);

}  // namespace butter
