#include "kernels/program.h"

namespace butter {
namespace {

SlotId slot_of(const RopeOp& op) {
  return op.in_out;
}
SlotId slot_of(const LinearOp& op) {
  return op.parts[0].out;
}
SlotId slot_of(const ScaleRunsOp& op) {
  return op.in_out;
}
SlotId slot_of(const WriteKvOp&) {
  return kNone;
}
SlotId slot_of(const SealOp&) {
  return kNone;
}
template <typename OtherOp>
SlotId slot_of(const OtherOp& op) {
  return op.out;
}

}  // namespace

SlotId written_slot(const Op& op) {
  return std::visit([](const auto& known) { return slot_of(known); }, op);
}

int Program::index_in_class(int kv_layer) const {
  int index = 0;
  for (int i = 0; i < kv_layer; ++i) {
    index += kv_layers[static_cast<size_t>(i)].window_class ==
             kv_layers[static_cast<size_t>(kv_layer)].window_class;
  }
  return index;
}

std::vector<KvLayerShape> Program::class_layers(int window_class) const {
  std::vector<KvLayerShape> layers;
  for (const KvLayerShape& shape : kv_layers) {
    if (shape.window_class == window_class) layers.push_back(shape);
  }
  return layers;
}

}  // namespace butter
