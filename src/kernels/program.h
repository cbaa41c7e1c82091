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
#include "kernels/state_layout.h"
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

// Root-mean-square norm of each of `runs` equal runs of a row: multiplier · x / sqrt(mean(x²) + eps) · w
// (families.md 3.4). The weight spans the row, or one run (shared_weight: per-head q/k norms), or is absent.
struct RmsNormOp {
  SlotId in = kNone;
  SlotId out = kNone;  // may equal in
  WeightId weight = kNone;
  float eps = 0;
  int runs = 1;
  bool shared_weight = false;
  bool centred = false;  // multiply by (1 + w)
  float multiplier = 1;
};

// One matrix of a LinearOp: out = x·Wᵀ + b, or out += multiplier · (x·Wᵀ + b), in the columns of the slot
// from first_column on.
struct LinearPart {
  WeightId weight = kNone;
  WeightId bias = kNone;
  SlotId out = kNone;
  bool accumulate = false;
  float multiplier = 1;
  int first_column = 0;
};

// Up to six matrices that read the same rows (q, k, v, output gate; gate, up).
struct LinearOp {
  SlotId in = kNone;
  std::array<LinearPart, 6> parts;
  int count = 0;
  bool fine = false;  // prefill keeps 16 bits of the rows: for routers, whose choices jump
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
  WeightId sinks = kNone;  // a score more for each query head, which has no value (families.md 3.6)
};

// kRelu with the same rows as gate and up is the squared ReLU. kClampedSilu: families.md 6.12.
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kSigmoid, kRelu, kClampedSilu };

// How a gate and a value become one: act(multiplier · gate) · up; or, for kClampedSilu, with
// g = min(gate, limit) and u = up within ±limit, g · sigmoid(alpha · g) · (u + 1).
struct GateFunction {
  Activation activation = Activation::kSilu;
  float multiplier = 1;  // not of kClampedSilu
  float limit = 0;       // of kClampedSilu
  float alpha = 1;       // of kClampedSilu

  GateFunction(Activation kind = Activation::kSilu) : activation(kind) {}  // NOLINT: an activation is one
};

// out = function(gate, up). A gate narrower than `up` has a value for each of equal runs of it (a gate a
// head).
struct ActivateMulOp {
  SlotId gate = kNone;
  SlotId up = kNone;
  SlotId out = kNone;
  GateFunction function;
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

// Runs of a row, one after the other, times a factor each.
struct ScaleRunsOp {
  struct Run {
    int width = 0;
    float multiplier = 1;
  };
  SlotId in_out = kNone;
  std::array<Run, 3> runs;
  int count = 0;
};

// --- Experts (families.md 3.8)

enum class RouterScore : uint8_t {
  kSoftmax,        // of all scores; then the best k
  kSoftmaxOfBest,  // the best k; then their softmax
  kSigmoid,        // the best k of sigmoid + choice bias; weights are the sigmoids
};

// How a row's scores of all experts become k experts and their weights.
struct Routing {
  RouterScore score = RouterScore::kSoftmax;
  int experts = 0;
  int chosen = 0;  // k
  int groups = 1;  // equal runs of experts; with more than one, only those of the best groups count
  int chosen_groups = 1;
  bool normalise = false;  // weights by their sum (+ 1e-20)
  float scale = 1;         // of weights, last
};

// out[r] = k ids of experts, best first (of equals, the lowest id), as floats; then their k weights. Where a
// score or a choice is NaN the order of experts means nothing, and all k weights are NaN.
struct RouteOp {
  SlotId scores = kNone;
  SlotId out = kNone;
  WeightId choice_bias = kNone;
  Routing routing;
};

// down(function(gate(x), up(x))), or down(function(up(x), up(x))) where there is no gate.
struct ExpertWeights {
  WeightId gate = kNone, up = kNone, down = kNone;
  WeightId gate_bias = kNone, up_bias = kNone, down_bias = kNone;
};

// out[r] = Σ over the row's routes, in their order: weight · expert(in[r]); or out += multiplier · that.
struct ExpertsOp {
  SlotId in = kNone;
  SlotId routes = kNone;
  SlotId out = kNone;
  int width = 0;   // of an expert: columns of `down`
  int chosen = 0;  // routes of a row
  GateFunction function;
  bool accumulate = false;
  float multiplier = 1;
  bool fine = false;  // as LinearOp's
  std::vector<ExpertWeights> experts;
};

// --- Recurrent mixers (families.md 4). `state` is an index into Program::state_layers. A sequence's rows are
// taken in order; what the last row leaves is the state that the next step begins with. Heads and groups are
// equal runs of columns.

// Causal depthwise convolution with silu: out[t][c] = silu(b[c] + Σ_j w[j][c] · in[t − taps + 1 + j][c]).
// The rows before the step are the state's.
struct ConvOp {
  SlotId in = kNone;
  SlotId out = kNone;
  WeightId weight = kNone;  // [taps][channels]
  WeightId bias = kNone;
  int taps = 0;
  int state = 0;
};

// Mamba2: S = exp(δ·a)·S + B ⊗ (δ·x); y = Cᵀ·S + d·x, with δ = softplus(dt + bias) within [dt_min, dt_max].
// S is [state_size][head_dim] a head.
struct Mamba2Op {
  SlotId conv = kNone;  // [x: heads · head_dim | B: groups · state_size | C: the same]
  SlotId dt = kNone;    // [heads]
  SlotId out = kNone;   // [heads · head_dim]
  WeightId decay = kNone, skip = kNone, dt_bias = kNone;  // a, d, bias: [heads]
  int heads = 0;
  int head_dim = 0;
  int groups = 1;
  int state_size = 0;
  float dt_min = 0;
  float dt_max = 0;
  int state = 0;
};

// Mamba1: S[n][i] = exp(δ[i]·a[n][i])·S[n][i] + B[n]·δ[i]·x[i]; y[i] = Σ_n C[n]·S[n][i] + d[i]·x[i], with
// δ = softplus(dt).
struct Mamba1Op {
  SlotId x = kNone;
  SlotId dt = kNone;  // as wide as x
  SlotId b = kNone;   // [state_size]
  SlotId c = kNone;
  SlotId out = kNone;
  WeightId decay = kNone, skip = kNone;  // a: [state_size][width]; d: [width]
  int state_size = 0;
  int state = 0;
};

// Gated delta rule: with β = sigmoid(beta) and g = a · softplus(alpha + bias), q and k of length 1 and q
// times key_dim^-½:  S = exp(g)·S; e = β·(v − Sᵀk); S += k ⊗ e; out = Sᵀq.  S is [key_dim][value_dim] a value
// head.
struct DeltaRuleOp {
  SlotId conv = kNone;                      // [q: key heads | k: key heads | v: value heads]
  SlotId beta = kNone;                      // [value_heads]
  SlotId alpha = kNone;                     // [value_heads]
  SlotId out = kNone;                       // [value_heads · value_dim]
  WeightId decay = kNone, dt_bias = kNone;  // a, bias: [value_heads]
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool tiled = false;  // value head j reads key head j mod key_heads; else j / (value_heads / key_heads)
  int state = 0;
};

// Rows of `in` whose logits were asked for, in order.
struct GatherRowsOp {
  SlotId in = kNone;
  SlotId out = kNone;
};

using Op = std::variant<EmbedOp, RmsNormOp, LinearOp, RopeOp, WriteKvOp, SealOp, AttendOp, ActivateMulOp,
                        AddOp, ScaleOp, ScaleRunsOp, RouteOp, ExpertsOp, ConvOp, Mamba1Op, Mamba2Op,
                        DeltaRuleOp, GatherRowsOp>;

// The slot that an op leaves its result in, for traces; kNone where it leaves none (write kv, seal).
SlotId written_slot(const Op& op);

struct RopeTable {
  std::vector<double> inv_freq;  // radians a position, one for each pair; scaling folded in
  float amplitude = 1;
  // LongRoPE (Ding et al. 2024): sequences admitted to more than `reach` positions turn by these, from their
  // first position on: keys that are cached have been turned. As many as inv_freq; empty: there is one way.
  std::vector<double> long_inv_freq;
  int64_t reach = 0;

  bool turns_long(int64_t max_positions) const { return !long_inv_freq.empty() && max_positions > reach; }
  // Those of a sequence that may have so many positions.
  const std::vector<double>& frequencies(int64_t max_positions) const {
    return turns_long(max_positions) ? long_inv_freq : inv_freq;
  }
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
  std::vector<KvLayerShape> kv_layers;   // layers that have a KV cache, in order
  std::vector<Window> window_classes;    // the model's distinct windows
  std::vector<StateShape> state_layers;  // layers that have recurrent state, in order
  SlotId logits = kNone;
  SlotId hidden = kNone;  // after the final norm, a row for each token whose logits were asked for
  int vocabulary = 0;

  // Index of a KV layer among the layers of its window class.
  int index_in_class(int kv_layer) const;
  std::vector<KvLayerShape> class_layers(int window_class) const;
};

}  // namespace butter
