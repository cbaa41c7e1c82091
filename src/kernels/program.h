// Program: a model's forward pass as a list of op records over buffer slots, made once at load.
//
// The decoder (model/decoder.h) emits it from a ModelSpec; a device prepares it for the largest step it will
// see and then runs it. What changes from step to step is in StepInputs, never in an op. Slots are float32
// matrices [rows][width]; a row belongs to one token of the step. Weights are named by the handles that
// Device::load_* returned.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/kv_layout.h"
#include "kernels/window.h"

namespace butter {

using SlotId = int;    // index into Program::slots
using WeightId = int;  // handle of a weight that the device holds
constexpr int kNone = -1;

enum class SlotRows : uint8_t {
  kStep,    // a row for each token of the step
  kLogits,  // a row for each token whose logits were asked for
};

struct Slot {
  std::string name;  // for traces: "x", "q", ...
  int width = 0;
  SlotRows rows = SlotRows::kStep;
};

// out[r] = scale · table[ids[r]]
struct EmbedOp {
  WeightId table = kNone;
  float scale = 1;
  SlotId out = kNone;
};

// Root-mean-square norm of each of `runs` equal runs of a row: x / sqrt(mean(x²) + eps) · w
// (families.md 3.4). The weight spans the row, or one run (shared_weight: per-head q/k norms), or is absent.
struct RmsNormOp {
  SlotId in = kNone;
  SlotId out = kNone;  // may equal in
  WeightId weight = kNone;
  float eps = 0;
  int runs = 1;
  bool shared_weight = false;
  bool centred = false;  // multiply by (1 + w)
};

// One matrix of a LinearOp: out = x·Wᵀ + b, or out += multiplier · (x·Wᵀ + b).
struct LinearPart {
  WeightId weight = kNone;
  WeightId bias = kNone;
  SlotId out = kNone;
  bool accumulate = false;
  float multiplier = 1;
};

// Up to four matrices that read the same rows (q, k, v, output gate; gate, up).
struct LinearOp {
  SlotId in = kNone;
  std::array<LinearPart, 4> parts;
  int count = 0;
};

// Rotary embedding of the first `rotary` channels of every head, half pairing: channel i turns with
// i + rotary/2 by angle position · inv_freq[i]; sin and cos are multiplied by amplitude (families.md 3.5).
struct RopeOp {
  SlotId in_out = kNone;
  int heads = 0;
  int head_dim = 0;
  int table = 0;  // index into Program::rope_tables
};

// Writes the step's K and V rows, rounded to the raw type, into the sequences' raw pages (and pinned rows).
// A value that is NaN or infinite fails the step and names layer, head and position.
struct WriteKvOp {
  SlotId key = kNone;
  SlotId value = kNone;
  int kv_layer = 0;  // index into Program::kv_layers
};

// Encodes the pages that the step fills, in schemes that seal.
struct SealOp {
  int kv_layer = 0;
};

struct AttendOp {
  SlotId query = kNone;
  SlotId out = kNone;
  int kv_layer = 0;
  int q_heads = 0;
  float scale = 1;
};

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kSigmoid };

// out = act(gate) · up. A gate narrower than `up` has a value for each of equal runs of it (a gate a head).
struct ActivateMulOp {
  SlotId gate = kNone;
  SlotId up = kNone;
  SlotId out = kNone;
  Activation activation = Activation::kSilu;
};

// out += multiplier · in
struct AddOp {
  SlotId in = kNone;
  SlotId out = kNone;
  float multiplier = 1;
};

// y = multiplier · out; out = cap · tanh(y / cap), or y where cap is 0.
struct ScaleOp {
  SlotId out = kNone;
  float multiplier = 1;
  float cap = 0;
};

// Rows of `in` whose logits were asked for, in order.
struct GatherRowsOp {
  SlotId in = kNone;
  SlotId out = kNone;
};

using Op = std::variant<EmbedOp, RmsNormOp, LinearOp, RopeOp, WriteKvOp, SealOp, AttendOp, ActivateMulOp,
                        AddOp, ScaleOp, GatherRowsOp>;

// The slot that an op leaves its result in, for traces; kNone where it leaves none (write kv, seal).
SlotId written_slot(const Op& op);

struct RopeTable {
  std::vector<double> inv_freq;  // radians a position, one for each pair; scaling folded in
  float amplitude = 1;
};

// What a trace names an op by: "layer 3 attention", and which slot it leaves its result in.
struct OpLabel {
  int layer = kNone;  // the model's layer, or kNone for embedding and head
  const char* what = "";
};

struct Program {
  std::vector<Slot> slots;
  std::vector<Op> ops;
  std::vector<OpLabel> labels;  // one for each op
  std::vector<RopeTable> rope_tables;
  std::vector<KvLayerShape> kv_layers;  // layers that have a KV cache, in order
  std::vector<Window> window_classes;   // the model's distinct windows
  SlotId logits = kNone;
  SlotId hidden = kNone;  // after the final norm, a row for each token whose logits were asked for
  int vocabulary = 0;

  // Index of a KV layer among the layers of its window class.
  int index_in_class(int kv_layer) const;
  std::vector<KvLayerShape> class_layers(int window_class) const;
};

}  // namespace butter
