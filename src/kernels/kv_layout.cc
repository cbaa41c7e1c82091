#include "kernels/kv_layout.h"

#include <cstring>

#include "core/buffer.h"
#include "core/check.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

// Lays records of the given sizes one after the other, then `tail_bytes` for each head; every layer starts on
// a cache line.
template <typename RecordBytes>
BlockLayout lay_out(const std::vector<KvLayerShape>& class_layers, int64_t tail_bytes,
                    const RecordBytes& record_bytes) {
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
    block.bytes = round_up(block.bytes, tail_bytes > 0 ? tail_bytes : 1);
    for (RecordOffsets& offsets : layer.heads) {
      offsets.tail = block.bytes;
      block.bytes += tail_bytes;
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

bool KvScheme::centres() const {
  return key->lossy && !plain;
}

RowShape KvLayerShape::row_shape(Side side, const KvScheme& scheme) const {
  RowShape shape = row_shape(side, scheme.raw);
  shape.bits = scheme.format(side).bits;
  shape.group = scheme.format(side).group;
  return shape;
}

BlockLayout sealed_layout(const std::vector<KvLayerShape>& class_layers, const KvScheme& scheme) {
  const int64_t tail_bytes = scheme.seals() ? int64_t{sizeof(RecordTail)} : 0;
  return lay_out(class_layers, tail_bytes, [&](const KvLayerShape& shape, Side side) {
    return scheme.format(side).record_bytes(shape.row_shape(side, scheme));
  });
}

BlockLayout raw_layout(const std::vector<KvLayerShape>& class_layers, DType raw, int rows) {
  return lay_out(class_layers, 0, [&](const KvLayerShape& shape, Side side) {
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
      offsets.tail += shift;
    }
  }
}

void copy_block(const BlockLayout& layout, const std::byte* from, std::byte* to) {
  for (const LayerLayout& layer : layout.layers)
    std::memcpy(to + layer.begin, from + layer.begin, static_cast<size_t>(layer.bytes));
}

}  // namespace butter
