#include "kernels/kv_layout.h"

#include <cstring>

#include "core/buffer.h"
#include "core/check.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

// Lays records of the given sizes one after the other; every layer starts on a cache line.
template <typename RecordBytes>
BlockLayout lay_out(const std::vector<KvLayerShape>& class_layers, const RecordBytes& record_bytes) {
  BlockLayout block;
  for (const KvLayerShape& shape : class_layers) {
    LayerLayout layer;
    layer.begin = block.bytes;
    for (int head = 0; head < shape.kv_heads; ++head) {
      RecordOffsets offsets;
      offsets.key = block.bytes;
      offsets.value = offsets.key + record_bytes(shape, Side::kKey);
      block.bytes = offsets.value + record_bytes(shape, Side::kValue);
      layer.heads.push_back(offsets);
    }
    block.bytes = round_up(block.bytes, Buffer::kAlignment);
    layer.bytes = block.bytes - layer.begin;
    block.layers.push_back(std::move(layer));
  }
  return block;
}

}  // namespace

bool KvScheme::seals() const {
  return key->seals || value->seals;
}

BlockLayout sealed_layout(const std::vector<KvLayerShape>& class_layers, const KvScheme& scheme) {
  return lay_out(class_layers, [&](const KvLayerShape& shape, Side side) {
    const RowFormat* format = side == Side::kKey ? scheme.key : scheme.value;
    return format->record_bytes(shape.row_shape(side, scheme.raw));
  });
}

BlockLayout raw_layout(const std::vector<KvLayerShape>& class_layers, DType raw, int rows) {
  return lay_out(class_layers, [&](const KvLayerShape& shape, Side side) {
    return raw_rows_bytes(shape.row_shape(side, raw), rows);
  });
}

void lay_side_by_side(BlockLayout& layout, int64_t blocks) {
  BUTTER_CHECK(layout.side_by_side == 1);
  layout.side_by_side = blocks;
  for (LayerLayout& layer : layout.layers) {
    BUTTER_CHECK(layer.bytes == layout.layers[0].bytes);
    const int64_t shift = (blocks - 1) * layer.begin;
    layer.begin += shift;
    for (RecordOffsets& offsets : layer.heads) {
      offsets.key += shift;
      offsets.value += shift;
    }
  }
}

void copy_block(const BlockLayout& layout, const std::byte* from, std::byte* to) {
  for (const LayerLayout& layer : layout.layers)
    std::memcpy(to + layer.begin, from + layer.begin, static_cast<size_t>(layer.bytes));
}

}  // namespace butter
