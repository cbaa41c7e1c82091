#include "model/decoder.h"

namespace butter {
namespace {

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& spec, WeightLoader& weights) : spec_(spec), weights_(weights) {}

  Result<Program> build() {
    x_ = slot("x", spec_.hidden);
    h_ = slot("h", spec_.hidden);
    program_.rope_tables = spec_.rope_tables;
    program_.kv_layers = kv_layers(spec_);
    program_.window_classes = window_classes(spec_);
    program_.vocabulary = spec_.vocabulary;
    BUTTER_TRY(add_embedding());
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
      BUTTER_TRY(add_layer(spec_.layers[static_cast<size_t>(layer_)]));
    }
    layer_ = kNone;
    BUTTER_TRY(add_head());
    return std::move(program_);
  }

 private:
  // The slot of this name and width; layers that need the same share it.
  SlotId slot(const char* name, int width, SlotRows rows = SlotRows::kStep) {
    for (size_t i = 0; i < program_.slots.size(); ++i) {
      if (program_.slots[i].name == name && program_.slots[i].width == width) return static_cast<SlotId>(i);
    }
    program_.slots.push_back({name, width, rows});
    return static_cast<SlotId>(program_.slots.size()) - 1;
  }

  void add_op(Op op, const char* what) {
    program_.ops.push_back(std::move(op));
    program_.labels.push_back({layer_, what});
  }

  Status add_embedding() {
    BUTTER_ASSIGN(const WeightId table, weights_.linear(spec_.embedding));
    add_op(EmbedOp{table, spec_.embedding_scale, x_}, "embedding");
    if (spec_.embedding_norm) {
      BUTTER_ASSIGN(const RmsNormOp normed, norm(*spec_.embedding_norm, x_, x_));
      add_op(normed, "embedding norm");
    }
    return {};
  }

  Result<RmsNormOp> norm(const NormSpec& spec, SlotId in, SlotId out) {
    RmsNormOp op;
    op.in = in;
    op.out = out;
    op.eps = spec.eps;
    op.centred = spec.centred;
    if (spec.weight) {
      BUTTER_ASSIGN(op.weight, weights_.vector(*spec.weight));
    }
    return op;
  }

  // Per-head norm of q or k, in place.
  Status add_head_norm(const std::optional<NormSpec>& spec, SlotId slot, int heads) {
    if (!spec) return {};
    BUTTER_ASSIGN(RmsNormOp op, norm(*spec, slot, slot));
    op.runs = heads;
    op.shared_weight = true;
    add_op(op, "qk norm");
    return {};
  }

  Result<LinearPart> part(const LinearSpec& spec, SlotId out) {
    LinearPart made;
    made.out = out;
    BUTTER_ASSIGN(made.weight, weights_.linear(spec.weight));
    if (spec.bias) {
      BUTTER_ASSIGN(made.bias, weights_.vector(*spec.bias));
    }
    return made;
  }

  // x += multiplier · post_norm(W·in + b)
  Status add_residual(const LinearSpec& spec, SlotId in, const std::optional<NormSpec>& post_norm,
                      const char* what) {
    const float multiplier = spec_.layers[static_cast<size_t>(layer_)].residual_multiplier;
    LinearOp op;
    op.in = in;
    op.count = 1;
    if (!post_norm) {
      BUTTER_ASSIGN(op.parts[0], part(spec, x_));
      op.parts[0].accumulate = true;
      op.parts[0].multiplier = multiplier;
      add_op(op, what);
      return {};
    }
    const SlotId branch = slot("branch", spec_.hidden);
    BUTTER_ASSIGN(op.parts[0], part(spec, branch));
    add_op(op, what);
    BUTTER_ASSIGN(const RmsNormOp normed, norm(*post_norm, branch, branch));
    add_op(normed, "post norm");
    add_op(AddOp{branch, x_, multiplier}, "residual");
    return {};
  }

  Status add_layer(const LayerSpec& layer) {
    BUTTER_ASSIGN(const RmsNormOp pre_norm, norm(layer.pre_norm, x_, h_));
    add_op(pre_norm, "mixer norm");
    BUTTER_TRY(std::visit([&](const auto& mixer) { return add_mixer(mixer, layer); }, layer.mixer));
    BUTTER_ASSIGN(const RmsNormOp ffn_norm, norm(layer.ffn_norm, x_, h_));
    add_op(ffn_norm, "ffn norm");
    return std::visit([&](const auto& ffn) { return add_ffn(ffn, layer); }, layer.ffn);
  }

  Status add_mixer(const AttentionSpec& attention, const LayerSpec& layer) {
    const int q_width = attention.heads * attention.head_dim;
    const int kv_width = attention.kv_heads * attention.head_dim;
    const SlotId q = slot("q", q_width), k = slot("k", kv_width), v = slot("v", kv_width);
    const SlotId mixed = slot("attention", q_width);
    LinearOp qkv;
    qkv.in = h_;
    qkv.count = 3;
    BUTTER_ASSIGN(qkv.parts[0], part(attention.q, q));
    BUTTER_ASSIGN(qkv.parts[1], part(attention.k, k));
    BUTTER_ASSIGN(qkv.parts[2], part(attention.v, v));
    if (attention.gate) {
      const SlotId gate = slot("output gate", static_cast<int>(attention.gate->weight.shape[0]));
      BUTTER_ASSIGN(qkv.parts[3], part(*attention.gate, gate));
      qkv.count = 4;
    }
    add_op(qkv, "qkv");
    BUTTER_TRY(add_head_norm(attention.q_norm, q, attention.heads));
    BUTTER_TRY(add_head_norm(attention.k_norm, k, attention.kv_heads));
    if (attention.rope_table) {
      add_op(RopeOp{q, attention.heads, attention.head_dim, *attention.rope_table}, "rope q");
      add_op(RopeOp{k, attention.kv_heads, attention.head_dim, *attention.rope_table}, "rope k");
    }
    add_op(WriteKvOp{k, v, kv_layer_}, "write kv");
    add_op(SealOp{kv_layer_}, "seal");
    add_op(AttendOp{q, mixed, kv_layer_, attention.heads, attention.scale}, "attend");
    ++kv_layer_;
    SlotId out = mixed;
    if (attention.gate) {
      out = slot("gated attention", q_width);
      add_op(ActivateMulOp{qkv.parts[3].out, mixed, out, Activation::kSigmoid}, "output gate");
    }
    return add_residual(attention.o, out, layer.mixer_post_norm, "attention out");
  }

  Status add_ffn(const GatedFfnSpec& ffn, const LayerSpec& layer) {
    const SlotId gate = slot("gate", ffn.width), up = slot("up", ffn.width);
    LinearOp gate_up;
    gate_up.in = h_;
    gate_up.count = 2;
    BUTTER_ASSIGN(gate_up.parts[0], part(ffn.gate, gate));
    BUTTER_ASSIGN(gate_up.parts[1], part(ffn.up, up));
    add_op(gate_up, "gate up");
    const SlotId activated = slot("activated", ffn.width);
    add_op(ActivateMulOp{gate, up, activated, ffn.activation}, "activation");
    return add_residual(ffn.down, activated, layer.ffn_post_norm, "ffn out");
  }

  Status add_head() {
    const SlotId last = slot("last", spec_.hidden, SlotRows::kLogits);
    program_.hidden = slot("hidden", spec_.hidden, SlotRows::kLogits);
    program_.logits = slot("logits", spec_.vocabulary, SlotRows::kLogits);
    add_op(GatherRowsOp{x_, last}, "last rows");
    BUTTER_ASSIGN(const RmsNormOp final_norm, norm(spec_.final_norm, last, program_.hidden));
    add_op(final_norm, "final norm");
    LinearOp head;
    head.in = program_.hidden;
    head.count = 1;
    head.parts[0].out = program_.logits;
    BUTTER_ASSIGN(head.parts[0].weight, weights_.linear(spec_.head ? *spec_.head : spec_.embedding));
    add_op(head, "head");
    if (spec_.logit_multiplier != 1 || spec_.logit_cap != 0)
      add_op(ScaleOp{program_.logits, spec_.logit_multiplier, spec_.logit_cap}, "logit scale");
    return {};
  }

  const ModelSpec& spec_;
  WeightLoader& weights_;
  Program program_;
  SlotId x_ = kNone;  // the residual stream
  SlotId h_ = kNone;  // its normed copy
  int layer_ = kNone;
  int kv_layer_ = 0;
};

}  // namespace

Result<Program> build_program(const ModelSpec& spec, WeightLoader& weights) {
  return ProgramBuilder(spec, weights).build();
}

}  // namespace butter
