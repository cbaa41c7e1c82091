#include "model/decoder.h"

#include <algorithm>

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
    program_.state_layers = state_layers(spec_);
    program_.window_classes = window_classes(spec_);
    program_.vocabulary = spec_.vocabulary;
    BUTTER_TRY(add_embedding());
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
      BUTTER_TRY(add_layer(spec_.layers[static_cast<size_t>(layer_)]));
    }
    layer_ = kNone;
    BUTTER_TRY(add_head());
    if (is_sensitive()) keep_rows_fine();
    return std::move(program_);
  }

 private:
  // A delta rule corrects its state by what it reads from it, and Mamba1 norms what makes its decay:
  // roundings of the rows come back enlarged. Those to 8 bits moved the logits of the fixtures qwen3_5 and
  // jamba by 0.8 and 0.5, those to 16 by 4e-3 and 7e-3.
  bool is_sensitive() const {
    return std::any_of(program_.ops.begin(), program_.ops.end(), [](const Op& op) {
      return std::holds_alternative<DeltaRuleOp>(op) || std::holds_alternative<Mamba1Op>(op);
    });
  }

  void keep_rows_fine() {
    for (Op& op : program_.ops) {
      if (auto* linear = std::get_if<LinearOp>(&op)) linear->fine = true;
      if (auto* experts = std::get_if<ExpertsOp>(&op)) experts->fine = true;
    }
  }

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

  Result<LinearPart> part(const LinearSpec& spec, SlotId out, int first_column = 0) {
    LinearPart made;
    made.out = out;
    made.first_column = first_column;
    BUTTER_ASSIGN(made.weight, weights_.linear(spec.weight));
    if (spec.bias) {
      BUTTER_ASSIGN(made.bias, weights_.vector(*spec.bias));
    }
    return made;
  }

  static int rows_of(const LinearSpec& spec) { return static_cast<int>(spec.weight.shape[0]); }

  // One more matrix of a LinearOp.
  Status add_part(LinearOp& op, const LinearSpec& spec, SlotId out, int first_column = 0) {
    BUTTER_ASSIGN(op.parts[static_cast<size_t>(op.count)], part(spec, out, first_column));
    ++op.count;
    return {};
  }

  // out = W·in + b
  Status add_linear(const LinearSpec& spec, SlotId in, SlotId out, const char* what) {
    LinearOp op;
    op.in = in;
    BUTTER_TRY(add_part(op, spec, out));
    add_op(op, what);
    return {};
  }

  // --- Branches: what a layer's mixers or its feed-forward add to the residual stream. Where a norm stands
  // between, the parts of a branch meet in a slot of their own.

  struct Branch {
    SlotId out = kNone;
    bool empty = true;  // nothing is in `out` yet, which is not the residual stream
    float multiplier = 1;

    bool accumulates() const { return !empty; }
  };

  Branch begin_branch(const std::optional<NormSpec>& post_norm) {
    const float multiplier = spec_.layers[static_cast<size_t>(layer_)].residual_multiplier;
    if (post_norm) return {slot("branch", spec_.hidden), true, 1};
    return {x_, false, multiplier};
  }

  Status end_branch(const Branch& branch, const std::optional<NormSpec>& post_norm) {
    if (!post_norm) return {};
    BUTTER_ASSIGN(const RmsNormOp normed, norm(*post_norm, branch.out, branch.out));
    add_op(normed, "post norm");
    const float multiplier = spec_.layers[static_cast<size_t>(layer_)].residual_multiplier;
    add_op(AddOp{branch.out, x_, multiplier}, "residual");
    return {};
  }

  // multiplier · (W·in + b) becomes part of a branch.
  Status add_to_branch(Branch& branch, const LinearSpec& spec, SlotId in, float multiplier,
                       const char* what) {
    LinearOp op;
    op.in = in;
    BUTTER_TRY(add_part(op, spec, branch.out));
    op.parts[0].accumulate = branch.accumulates();
    op.parts[0].multiplier = branch.multiplier * multiplier;
    add_op(op, what);
    if (branch.empty && multiplier != 1) add_op(scale_all(branch.out, multiplier), "output scale");
    branch.empty = false;
    return {};
  }

  ScaleRunsOp scale_all(SlotId slot, float multiplier) const {
    ScaleRunsOp op;
    op.in_out = slot;
    op.runs[0] = {program_.slots[static_cast<size_t>(slot)].width, multiplier};
    op.count = 1;
    return op;
  }

  Status add_layer(const LayerSpec& layer) {
    if (!layer.mixers.empty()) BUTTER_TRY(add_mixers(layer));
    if (!layer.ffn) return {};
    BUTTER_ASSIGN(const RmsNormOp ffn_norm, norm(layer.ffn_norm, x_, h_));
    add_op(ffn_norm, "ffn norm");
    Branch branch = begin_branch(layer.ffn_post_norm);
    BUTTER_TRY(std::visit([&](const auto& ffn) { return add_ffn(ffn, branch); }, *layer.ffn));
    return end_branch(branch, layer.ffn_post_norm);
  }

  // Every mixer reads the residual stream as it was before any of them added to it.
  Status add_mixers(const LayerSpec& layer) {
    static constexpr const char* kInputs[] = {"h", "h of the second mixer"};
    for (size_t i = 0; i < layer.mixers.size(); ++i) {
      BUTTER_ASSIGN(RmsNormOp pre_norm, norm(layer.pre_norm, x_, slot(kInputs[i], spec_.hidden)));
      pre_norm.multiplier = layer.mixers[i].in_multiplier;
      add_op(pre_norm, "mixer norm");
    }
    Branch branch = begin_branch(layer.mixer_post_norm);
    for (size_t i = 0; i < layer.mixers.size(); ++i) {
      const MixerSpec& mixer = layer.mixers[i];
      const SlotId in = slot(kInputs[i], spec_.hidden);
      BUTTER_TRY(std::visit(
          [&](const auto& kind) { return add_mixer(kind, in, mixer.out_multiplier, branch); }, mixer.kind));
    }
    return end_branch(branch, layer.mixer_post_norm);
  }

  // --- Mixers

  Status add_mixer(const AttentionSpec& attention, SlotId in, float multiplier, Branch& branch) {
    const int q_width = attention.heads * attention.head_dim;
    const int kv_width = attention.kv_heads * attention.head_dim;
    const SlotId q = slot("q", q_width), k = slot("k", kv_width), v = slot("v", kv_width);
    const SlotId mixed = slot("attention", q_width);
    SlotId gate = kNone;
    LinearOp qkv;
    qkv.in = in;
    BUTTER_TRY(add_part(qkv, attention.q, q));
    BUTTER_TRY(add_part(qkv, attention.k, k));
    BUTTER_TRY(add_part(qkv, attention.v, v));
    if (attention.gate) {
      gate = slot("output gate", rows_of(*attention.gate));
      BUTTER_TRY(add_part(qkv, *attention.gate, gate));
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
    AttendOp attend{q, mixed, kv_layer_, attention.heads, attention.scale};
    if (attention.sinks) {
      BUTTER_ASSIGN(attend.sinks, weights_.vector(*attention.sinks));
    }
    add_op(attend, "attend");
    ++kv_layer_;
    SlotId out = mixed;
    if (attention.gate) {
      out = slot("gated attention", q_width);
      add_op(ActivateMulOp{gate, mixed, out, Activation::kSigmoid}, "output gate");
    }
    return add_to_branch(branch, attention.o, out, multiplier, "attention out");
  }

  // Convolves the rows of `in` into a slot that is returned.
  Result<SlotId> add_conv(const ConvSpec& conv, SlotId in) {
    ConvOp op;
    op.in = in;
    op.out = slot("convolved", static_cast<int>(conv.weight.shape[1]));
    op.taps = conv.taps;
    op.state = state_layer_;
    BUTTER_ASSIGN(op.weight, weights_.vector(conv.weight));
    if (conv.bias) {
      BUTTER_ASSIGN(op.bias, weights_.vector(*conv.bias));
    }
    add_op(op, "conv");
    return op.out;
  }

  Status add_mixer(const Mamba2Spec& mamba, SlotId in, float multiplier, Branch& branch) {
    const int width = mamba.width(), group_width = mamba.groups * mamba.state_size;
    const SlotId z = slot("z", width), xbc = slot("xBC", width + 2 * group_width);
    Mamba2Op op;
    op.dt = slot("dt", mamba.heads);
    LinearOp projection;
    projection.in = in;
    BUTTER_TRY(add_part(projection, mamba.z, z));
    BUTTER_TRY(add_part(projection, mamba.xbc, xbc));
    BUTTER_TRY(add_part(projection, mamba.dt, op.dt));
    add_op(projection, "mamba in");
    const auto& by = mamba.multipliers;
    if (by != std::array<float, 5>{1, 1, 1, 1, 1}) {
      add_op(scale_all(z, by[0]), "z scale");
      add_op(ScaleRunsOp{xbc, {{{width, by[1]}, {group_width, by[2]}, {group_width, by[3]}}}, 3},
             "xBC scale");
      add_op(scale_all(op.dt, by[4]), "dt scale");
    }
    BUTTER_ASSIGN(op.conv, add_conv(mamba.conv, xbc));
    op.out = slot("mixed", width);
    op.heads = mamba.heads;
    op.head_dim = mamba.head_dim;
    op.groups = mamba.groups;
    op.state_size = mamba.state_size;
    op.dt_min = mamba.dt_min;
    op.dt_max = mamba.dt_max;
    op.state = state_layer_++;
    BUTTER_ASSIGN(op.decay, weights_.vector(mamba.decay));
    BUTTER_ASSIGN(op.skip, weights_.vector(mamba.skip));
    BUTTER_ASSIGN(op.dt_bias, weights_.vector(mamba.dt_bias));
    add_op(op, "mamba2");
    BUTTER_ASSIGN(const SlotId out,
                  add_output_norm(mamba.output, mamba.norm, mamba.norm_groups, false, op.out, z));
    return add_to_branch(branch, mamba.out, out, multiplier, "mamba out");
  }

  // The gate z and, before or after it, a norm of `runs` runs. Returns the slot of the result.
  Result<SlotId> add_output_norm(OutputNorm kind, const NormSpec& spec, int runs, bool shared_weight,
                                 SlotId mixed, SlotId z) {
    const SlotId out = slot("gated", program_.slots[static_cast<size_t>(mixed)].width);
    RmsNormOp normed;
    if (kind != OutputNorm::kGateOnly) {
      const SlotId in = kind == OutputNorm::kNormThenGate ? mixed : out;
      BUTTER_ASSIGN(normed, norm(spec, in, in));
      normed.runs = runs;
      normed.shared_weight = shared_weight;
    }
    if (kind == OutputNorm::kNormThenGate) add_op(normed, "mixer out norm");
    add_op(ActivateMulOp{z, mixed, out, Activation::kSilu}, "mixer gate");
    if (kind == OutputNorm::kGateThenNorm) add_op(normed, "mixer out norm");
    return out;
  }

  Status add_mixer(const Mamba1Spec& mamba, SlotId in, float multiplier, Branch& branch) {
    const SlotId x = slot("x of mamba", mamba.width), z = slot("z", mamba.width);
    LinearOp projection;
    projection.in = in;
    BUTTER_TRY(add_part(projection, mamba.x, x));
    BUTTER_TRY(add_part(projection, mamba.z, z));
    add_op(projection, "mamba in");
    Mamba1Op op;
    BUTTER_ASSIGN(op.x, add_conv(mamba.conv, x));
    const SlotId dt_low = slot("low dt", mamba.dt_rank);
    op.b = slot("B", mamba.state_size);
    op.c = slot("C", mamba.state_size);
    LinearOp inputs;
    inputs.in = op.x;
    BUTTER_TRY(add_part(inputs, mamba.dt_low, dt_low));
    BUTTER_TRY(add_part(inputs, mamba.b, op.b));
    BUTTER_TRY(add_part(inputs, mamba.c, op.c));
    add_op(inputs, "mamba dt, B, C");
    BUTTER_TRY(add_head_norm(mamba.b_norm, op.b, 1));
    BUTTER_TRY(add_head_norm(mamba.c_norm, op.c, 1));
    BUTTER_TRY(add_head_norm(mamba.dt_norm, dt_low, 1));
    op.dt = slot("dt", mamba.width);
    BUTTER_TRY(add_linear(mamba.dt, dt_low, op.dt, "mamba dt"));
    op.out = slot("mixed", mamba.width);
    op.state_size = mamba.state_size;
    op.state = state_layer_++;
    BUTTER_ASSIGN(op.decay, weights_.vector(mamba.decay));
    BUTTER_ASSIGN(op.skip, weights_.vector(mamba.skip));
    add_op(op, "mamba1");
    const SlotId out = slot("gated", mamba.width);
    add_op(ActivateMulOp{z, op.out, out, Activation::kSilu}, "mixer gate");
    return add_to_branch(branch, mamba.out, out, multiplier, "mamba out");
  }

  Status add_mixer(const DeltaNetSpec& delta, SlotId in, float multiplier, Branch& branch) {
    const int key_width = delta.key_heads * delta.key_dim, value_width = delta.value_heads * delta.value_dim;
    const SlotId qkv = slot("qkv", 2 * key_width + value_width), z = slot("z", value_width);
    DeltaRuleOp op;
    op.beta = slot("beta", delta.value_heads);
    op.alpha = slot("alpha", delta.value_heads);
    LinearOp projection;
    projection.in = in;
    int first = 0;
    for (const LinearSpec& rows : delta.qkv) {
      BUTTER_TRY(add_part(projection, rows, qkv, first));
      first += rows_of(rows);
    }
    BUTTER_TRY(add_part(projection, delta.z, z));
    BUTTER_TRY(add_part(projection, delta.beta, op.beta));
    BUTTER_TRY(add_part(projection, delta.alpha, op.alpha));
    add_op(projection, "delta in");
    BUTTER_ASSIGN(op.conv, add_conv(delta.conv, qkv));
    op.out = slot("mixed", value_width);
    op.key_heads = delta.key_heads;
    op.value_heads = delta.value_heads;
    op.key_dim = delta.key_dim;
    op.value_dim = delta.value_dim;
    op.tiled = delta.tiled;
    op.state = state_layer_++;
    BUTTER_ASSIGN(op.decay, weights_.vector(delta.decay));
    BUTTER_ASSIGN(op.dt_bias, weights_.vector(delta.dt_bias));
    add_op(op, "delta rule");
    BUTTER_ASSIGN(const SlotId out,
                  add_output_norm(OutputNorm::kNormThenGate, delta.norm, delta.value_heads, true, op.out, z));
    return add_to_branch(branch, delta.out, out, multiplier, "delta out");
  }

  // --- Feed-forwards: of the rows of h_

  // The activated rows of a gated or plain feed-forward, as a slot.
  Result<SlotId> add_activated(const GatedFfnSpec& ffn) {
    const SlotId gate = slot("gate", ffn.width), up = slot("up", ffn.width);
    LinearOp gate_up;
    gate_up.in = h_;
    BUTTER_TRY(add_part(gate_up, ffn.gate, gate));
    BUTTER_TRY(add_part(gate_up, ffn.up, up));
    add_op(gate_up, "gate up");
    const SlotId activated = slot("activated", ffn.width);
    add_op(ActivateMulOp{gate, up, activated, ffn.function}, "activation");
    return activated;
  }
  Result<SlotId> add_activated(const PlainFfnSpec& ffn) {
    const SlotId up = slot("up", ffn.width), activated = slot("activated", ffn.width);
    BUTTER_TRY(add_linear(ffn.up, h_, up, "up"));
    add_op(ActivateMulOp{up, up, activated, Activation::kRelu}, "activation");
    return activated;
  }

  Status add_ffn(const GatedFfnSpec& ffn, Branch& branch) {
    BUTTER_ASSIGN(const SlotId activated, add_activated(ffn));
    return add_to_branch(branch, ffn.down, activated, ffn.multiplier, "ffn out");
  }
  Status add_ffn(const PlainFfnSpec& ffn, Branch& branch) {
    BUTTER_ASSIGN(const SlotId activated, add_activated(ffn));
    return add_to_branch(branch, ffn.down, activated, 1, "ffn out");
  }

  Status add_ffn(const ExpertsSpec& ffn, Branch& branch) {
    const SlotId scores = slot("router scores", ffn.routing.experts);
    LinearOp router;
    router.in = h_;
    router.fine = true;
    BUTTER_TRY(add_part(router, ffn.router, scores));
    add_op(router, "router");
    RouteOp route;
    route.scores = scores;
    route.out = slot("routes", 2 * ffn.routing.chosen);
    route.routing = ffn.routing;
    if (ffn.choice_bias) {
      BUTTER_ASSIGN(route.choice_bias, weights_.vector(*ffn.choice_bias));
    }
    add_op(route, "route");
    BUTTER_TRY(add_experts(ffn, route.out, branch));
    return std::visit([&](const auto& shared) { return add_shared(shared, ffn.shared_gate, branch); },
                      ffn.shared);
  }

  Status add_experts(const ExpertsSpec& ffn, SlotId routes, Branch& branch) {
    ExpertsOp op;
    op.in = h_;
    op.routes = routes;
    op.width = ffn.width;
    op.chosen = ffn.routing.chosen;
    op.function = ffn.function;
    for (const ExpertSpec& expert : ffn.experts) {
      BUTTER_ASSIGN(const ExpertWeights loaded, load_expert(expert));
      op.experts.push_back(loaded);
    }
    if (ffn.latent_in) {
      op.in = slot("latent", rows_of(*ffn.latent_in));
      BUTTER_TRY(add_linear(*ffn.latent_in, h_, op.in, "latent in"));
      op.out = slot("latent out", rows_of(*ffn.latent_in));
      add_op(std::move(op), "experts");
      return add_to_branch(branch, *ffn.latent_out, slot("latent out", rows_of(*ffn.latent_in)), 1,
                           "latent out");
    }
    op.out = branch.out;
    op.accumulate = branch.accumulates();
    op.multiplier = branch.multiplier;
    branch.empty = false;
    add_op(std::move(op), "experts");
    return {};
  }

  Result<ExpertWeights> load_expert(const ExpertSpec& expert) {
    ExpertWeights loaded;
    const auto load = [&](const LinearSpec& spec, WeightId& weight, WeightId& bias) -> Status {
      BUTTER_ASSIGN(weight, weights_.linear(spec.weight));
      if (spec.bias) {
        BUTTER_ASSIGN(bias, weights_.vector(*spec.bias));
      }
      return {};
    };
    if (expert.gate) BUTTER_TRY(load(*expert.gate, loaded.gate, loaded.gate_bias));
    BUTTER_TRY(load(expert.up, loaded.up, loaded.up_bias));
    BUTTER_TRY(load(expert.down, loaded.down, loaded.down_bias));
    return loaded;
  }

  Status add_shared(std::monostate, const std::optional<LinearSpec>&, Branch&) { return {}; }
  template <typename Ffn>
  Status add_shared(const Ffn& ffn, const std::optional<LinearSpec>& gate, Branch& branch) {
    BUTTER_ASSIGN(const SlotId activated, add_activated(ffn));
    if (!gate) return add_to_branch(branch, ffn.down, activated, 1, "shared expert");
    const SlotId scalar = slot("shared gate", 1), shared = slot("shared", spec_.hidden);
    BUTTER_TRY(add_linear(*gate, h_, scalar, "shared gate"));
    BUTTER_TRY(add_linear(ffn.down, activated, shared, "shared expert"));
    add_op(ActivateMulOp{scalar, shared, shared, Activation::kSigmoid}, "shared gate");
    add_op(AddOp{shared, branch.out, branch.multiplier}, "shared expert");
    return {};
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
  int state_layer_ = 0;
};

}  // namespace

Result<Program> build_program(const ModelSpec& spec, WeightLoader& weights) {
  return ProgramBuilder(spec, weights).build();
}

}  // namespace butter
