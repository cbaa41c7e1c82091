// ReferenceDevice: one thread, float32 rows and arithmetic, every op in the plain text of reference/. The
// specification that other devices are compared with; it computes each row alone, so answers do not depend on
// how tokens are cut into steps, bit for bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/cache_ops.h"
#include "kernels/device.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/ops.h"
#include "kernels/reference/recurrent.h"
#include "kernels/step_views.h"
#include "kernels/vector_weights.h"

namespace butter {
namespace {

class ReferenceDevice;

class ReferenceProgram final : public PreparedProgram {
 public:
  ReferenceProgram(const Program& source, const StepLimits& step_limits)
      : program(source),
        limits(step_limits),
        views(program, step_limits),
        states(state_layout(program.state_layers)) {}

  int64_t workspace_bytes() const override { return workspace.capacity(); }
  const float* logits() const override { return slots[static_cast<size_t>(program.logits)]; }
  const float* hidden() const override { return slots[static_cast<size_t>(program.hidden)]; }

  const Program program;
  const StepLimits limits;
  StepViews views;
  const StateLayout states;
  Arena workspace;
  std::vector<float*> slots;
  float* row_scratch = nullptr;  // one decoded weight row
  float* op_scratch = nullptr;   // of routes, experts and delta rules
  float* angles = nullptr;       // cos and sin of one position
  std::byte* kv_scratch = nullptr;
  std::byte* seal_scratch = nullptr;
  NonFinite non_finite;
};

// Sizes of the workspace's pieces, in order: planned and taken by the same list.
struct WorkspacePlan {
  std::vector<int64_t> slot_bytes;
  int64_t row_scratch_bytes = 0;
  int64_t op_scratch_bytes = 0;
  int64_t angle_bytes = 0;
  int64_t kv_scratch_bytes = 0;
  int64_t seal_bytes = 0;

  int64_t total() const {
    int64_t bytes = Arena::piece_bytes(row_scratch_bytes) + Arena::piece_bytes(op_scratch_bytes) +
                    Arena::piece_bytes(angle_bytes) + Arena::piece_bytes(kv_scratch_bytes) +
                    Arena::piece_bytes(seal_bytes);
    for (int64_t slot : slot_bytes) bytes += Arena::piece_bytes(slot);
    return bytes;
  }
};

class ReferenceDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  DType raw_dtype(DType) const override { return DType::kF32; }

  Result<LoadedWeight> load_linear(const std::string&, const TensorView& weight) override {
    linears_.push_back(weight);
    linear_bytes_ += weight.bytes();
    widest_row_ = std::max(widest_row_, weight.columns());
    return LoadedWeight{static_cast<WeightId>(linears_.size()) - 1, false};
  }

  Result<LoadedWeight> load_vector(const std::string& name, const TensorView& weight) override {
    BUTTER_ASSIGN(const WeightId id, vectors_.add(name, weight));
    return LoadedWeight{id, true};
  }

  int64_t weight_bytes() const override { return linear_bytes_ + vectors_.bytes(); }
  int64_t weight_bytes(WeightId id) const override { return linears_[static_cast<size_t>(id)].bytes(); }
  std::string weight_form(WeightId id) const override {
    return linears_[static_cast<size_t>(id)].type_name();
  }

  int64_t workspace_bytes(const Program& program, const StepLimits& limits) const override {
    return plan(program, limits).total();
  }

  Result<std::unique_ptr<PreparedProgram>> prepare(const Program& program,
                                                   const StepLimits& limits) override {
    auto prepared = std::make_unique<ReferenceProgram>(program, limits);
    const WorkspacePlan sizes = plan(program, limits);
    BUTTER_ASSIGN(Buffer buffer, Buffer::allocate(sizes.total()));
    prepared->workspace = Arena(std::move(buffer));
    Arena& arena = prepared->workspace;
    for (int64_t bytes : sizes.slot_bytes)
      prepared->slots.push_back(reinterpret_cast<float*>(arena.take(bytes)));
    prepared->row_scratch = reinterpret_cast<float*>(arena.take(sizes.row_scratch_bytes));
    prepared->op_scratch = reinterpret_cast<float*>(arena.take(sizes.op_scratch_bytes));
    prepared->angles = reinterpret_cast<float*>(arena.take(sizes.angle_bytes));
    prepared->kv_scratch = arena.take(sizes.kv_scratch_bytes);
    prepared->seal_scratch = arena.take(sizes.seal_bytes);
    return std::unique_ptr<PreparedProgram>(std::move(prepared));
  }

  Status start_step(PreparedProgram& prepared, const StepInputs& inputs, const TraceFn* trace) override {
    auto& step = static_cast<ReferenceProgram&>(prepared);
    BUTTER_TRY(step.views.check(inputs));
    step.views.set(inputs, step.kv_scratch);
    step.non_finite.reset();
    begin_states(step, inputs);
    ++submitted_;
    for (size_t i = 0; i < step.program.ops.size() && !step.non_finite.found(); ++i) {
      const Op& op = step.program.ops[i];
      std::visit([&](const auto& known) { run(known, step, inputs); }, op);
      const SlotId written = written_slot(op);
      if (trace == nullptr || written == kNone) continue;
      const Slot& slot = step.program.slots[static_cast<size_t>(written)];
      (*trace)(step.program.labels[i], slot, step.slots[static_cast<size_t>(written)], rows_of(slot, inputs));
    }
    return {};
  }

  Status finish_step(PreparedProgram& prepared) override {
    completed_ = submitted_.load();
    return static_cast<ReferenceProgram&>(prepared).non_finite.status();
  }

  uint64_t submitted() const override { return submitted_; }
  uint64_t completed() const override { return completed_; }

 private:
  static int64_t rows_of(const Slot& slot, const StepInputs& inputs) {
    return static_cast<int64_t>(slot.rows == SlotRows::kStep ? inputs.ids.size() : inputs.logit_rows.size());
  }

  WorkspacePlan plan(const Program& program, const StepLimits& limits) const {
    WorkspacePlan sizes;
    for (const Slot& slot : program.slots) {
      const int64_t rows = slot.rows == SlotRows::kStep ? limits.rows : limits.logit_rows;
      sizes.slot_bytes.push_back(rows * slot.width * static_cast<int64_t>(sizeof(float)));
    }
    sizes.row_scratch_bytes = widest_row_ * static_cast<int64_t>(sizeof(float));
    for (const Op& op : program.ops) {
      const int64_t floats =
          std::visit([&](const auto& known) { return scratch_floats(known, program); }, op);
      sizes.op_scratch_bytes = std::max(sizes.op_scratch_bytes, floats * static_cast<int64_t>(sizeof(float)));
    }
    for (const RopeTable& table : program.rope_tables) {
      sizes.angle_bytes =
          std::max(sizes.angle_bytes, static_cast<int64_t>(2 * table.inv_freq.size() * sizeof(float)));
    }
    sizes.kv_scratch_bytes = StepViews::scratch_bytes(program, limits);
    for (const KvLayerShape& shape : program.kv_layers) {
      sizes.seal_bytes = std::max(sizes.seal_bytes, seal_scratch_bytes(shape));
    }
    return sizes;
  }

  static int64_t scratch_floats(const RouteOp& op, const Program&) {
    return op.routing.experts + op.routing.groups;
  }
  static int64_t scratch_floats(const ExpertsOp& op, const Program& program) {
    return 2 * op.width + program.slots[static_cast<size_t>(op.out)].width;
  }
  static int64_t scratch_floats(const DeltaRuleOp& op, const Program&) {
    return 2 * op.key_dim + op.value_dim;
  }
  template <typename OtherOp>
  static int64_t scratch_floats(const OtherOp&, const Program&) {
    return 0;
  }

  // The state that the step's rows begin with: what the committed ones left.
  static void begin_states(const ReferenceProgram& step, const StepInputs& inputs) {
    if (step.states.bytes == 0) return;
    for (const StepSequence& sequence : inputs.sequences) {
      const auto bytes = static_cast<size_t>(step.states.bytes);
      if (sequence.state != nullptr) {
        std::memcpy(sequence.next_state, sequence.state, bytes);
      } else {
        std::memset(sequence.next_state, 0, bytes);
      }
    }
  }

  static int64_t width(const ReferenceProgram& step, SlotId slot) {
    return step.program.slots[static_cast<size_t>(slot)].width;
  }
  static float* row(const ReferenceProgram& step, SlotId slot, int64_t index) {
    return step.slots[static_cast<size_t>(slot)] + index * width(step, slot);
  }
  int64_t rows(const ReferenceProgram& step, SlotId slot, const StepInputs& inputs) const {
    return rows_of(step.program.slots[static_cast<size_t>(slot)], inputs);
  }
  void run(const EmbedOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (size_t r = 0; r < inputs.ids.size(); ++r) {
      reference::embed(linears_[static_cast<size_t>(op.table)], inputs.ids[r], op.scale,
                       row(step, op.out, static_cast<int64_t>(r)));
    }
  }

  void run(const RmsNormOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (int64_t r = 0; r < rows(step, op.in, inputs); ++r) {
      reference::rms_norm(op, row(step, op.in, r), width(step, op.in), vectors_.find(op.weight),
                          row(step, op.out, r));
    }
  }

  void run(const LinearOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (int i = 0; i < op.count; ++i) {
      const LinearPart& part = op.parts[static_cast<size_t>(i)];
      const TensorView& weight = linears_[static_cast<size_t>(part.weight)];
      const LinearTarget target{row(step, part.out, 0) + part.first_column, width(step, part.out),
                                vectors_.find(part.bias), part.accumulate, part.multiplier};
      reference::linear(weight, row(step, op.in, 0), width(step, op.in), rows(step, op.in, inputs),
                        {0, weight.rows()}, target, step.row_scratch);
    }
  }

  void run(const RopeOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const RopeTable& table = step.program.rope_tables[static_cast<size_t>(op.table)];
    const auto pairs = static_cast<int64_t>(table.inv_freq.size());
    for (const StepSequence& sequence : inputs.sequences) {
      for (int r = 0; r < sequence.rows; ++r) {
        reference::rope_angles(table.frequencies(sequence.max_positions), table.amplitude,
                               sequence.position + r, step.angles, step.angles + pairs);
        reference::rope(op, pairs, step.angles, step.angles + pairs,
                        row(step, op.in_out, sequence.first_row + r));
      }
    }
  }

  void run(const WriteKvOp& op, ReferenceProgram& step, const StepInputs&) {
    const AttendSequence* sequences = step.views.layer(op.kv_layer);
    for (int s = 0; s < step.views.sequences(); ++s) {
      for (int r = 0; r < sequences[s].rows; ++r) {
        const int64_t index = sequences[s].first_row + r;
        write_kv_row(sequences[s], r, row(step, op.key, index), row(step, op.value, index), kScalarConverter,
                     step.non_finite);
      }
    }
  }

  void run(const SealOp& op, ReferenceProgram& step, const StepInputs&) {
    const AttendSequence* sequences = step.views.layer(op.kv_layer);
    for (int s = 0; s < step.views.sequences(); ++s) {
      if (!sequences[s].view.scheme.seals()) continue;
      const PageSpan filled = filled_pages(sequences[s]);
      const SealOptions options{true, Isa::kPortable};
      for (int head = 0; makes_centre(sequences[s]) && head < sequences[s].view.shape.kv_heads; ++head)
        make_head_centre(sequences[s], head, options, step.seal_scratch);
      for (int64_t page = filled.begin; page < filled.end; ++page) {
        for (int head = 0; head < sequences[s].view.shape.kv_heads; ++head) {
          seal_head(sequences[s], page, head, options, step.seal_scratch);
        }
      }
    }
  }

  void run(const AttendOp& op, ReferenceProgram& step, const StepInputs&) {
    AttendBatch batch;
    batch.sequences = step.views.layer(op.kv_layer);
    batch.count = step.views.sequences();
    batch.queries = row(step, op.query, 0);
    batch.out = row(step, op.out, 0);
    batch.q_heads = op.q_heads;
    batch.scale = op.scale;
    batch.sinks = vectors_.find(op.sinks);
    reference::attend(batch);
  }

  void run(const ActivateMulOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t count = rows(step, op.up, inputs) * width(step, op.up);
    reference::activate_mul(op.function, row(step, op.gate, 0), row(step, op.up, 0), count,
                            row(step, op.out, 0), width(step, op.up) / width(step, op.gate));
  }

  void run(const AddOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t count = rows(step, op.in, inputs) * width(step, op.in);
    reference::add(op.multiplier, row(step, op.in, 0), count, row(step, op.out, 0));
  }

  void run(const ScaleOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t count = rows(step, op.out, inputs) * width(step, op.out);
    reference::scale(op.multiplier, op.cap, count, row(step, op.out, 0));
  }

  void run(const ScaleRunsOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (int64_t r = 0; r < rows(step, op.in_out, inputs); ++r)
      reference::scale_runs(op, row(step, op.in_out, r));
  }

  void run(const RouteOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (int64_t r = 0; r < rows(step, op.scores, inputs); ++r) {
      reference::route(op.routing, row(step, op.scores, r), vectors_.find(op.choice_bias), step.op_scratch,
                       row(step, op.out, r));
    }
  }

  void run(const ExpertsOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t hidden = width(step, op.out);
    float* sum = step.op_scratch + 2 * op.width;
    for (int64_t r = 0; r < rows(step, op.in, inputs); ++r) {
      const float* routes = row(step, op.routes, r);
      std::fill_n(sum, hidden, 0.0f);
      for (int i = 0; i < op.chosen; ++i) {
        const ExpertWeights& expert = op.experts[static_cast<size_t>(routes[i])];
        add_expert(op, expert, routes[op.chosen + i], row(step, op.in, r), step, sum);
      }
      float* out = row(step, op.out, r);
      if (!op.accumulate) std::fill_n(out, hidden, 0.0f);
      reference::add(op.accumulate ? op.multiplier : 1, sum, hidden, out);
    }
  }

  // sum += weight · expert(x)
  void add_expert(const ExpertsOp& op, const ExpertWeights& expert, float weight, const float* x,
                  const ReferenceProgram& step, float* sum) {
    float* gate = step.op_scratch;
    float* up = gate + op.width;
    one_row(expert.up, expert.up_bias, x, step, {up});
    if (expert.gate != kNone) one_row(expert.gate, expert.gate_bias, x, step, {gate});
    reference::activate_mul(op.function, expert.gate != kNone ? gate : up, up, op.width, gate);
    LinearTarget target{sum};
    target.accumulate = true;
    target.multiplier = weight;
    one_row(expert.down, expert.down_bias, gate, step, target);
  }

  void one_row(WeightId weight_id, WeightId bias, const float* x, const ReferenceProgram& step,
               LinearTarget target) {
    const TensorView& weight = linears_[static_cast<size_t>(weight_id)];
    target.bias = vectors_.find(bias);
    reference::linear(weight, x, 0, 1, {0, weight.rows()}, target, step.row_scratch);
  }

  // --- Recurrent mixers: each(row of the step, the sequence's own state), in order of position.

  template <typename Each>
  static void for_state_rows(const StepInputs& inputs, int64_t offset, const Each& each) {
    for (const StepSequence& sequence : inputs.sequences) {
      auto* state = reinterpret_cast<float*>(sequence.next_state + offset);
      for (int r = 0; r < sequence.rows; ++r) each(sequence.first_row + r, state);
    }
  }

  // A state that is not finite is the layer's end: no later row is right.
  void check_state(int layer, ReferenceProgram& step, const StepInputs& inputs) {
    const StateShape& shape = step.program.state_layers[static_cast<size_t>(layer)];
    for (const StepSequence& sequence : inputs.sequences) {
      const auto* state = reinterpret_cast<const float*>(
          sequence.next_state + step.states.layers[static_cast<size_t>(layer)].state);
      if (std::all_of(state, state + shape.values, [](float value) { return std::isfinite(value); }))
        continue;
      step.non_finite.report_state(shape.layer, sequence.position);
    }
  }

  void run(const ConvOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t offset = step.states.layers[static_cast<size_t>(op.state)].conv;
    for_state_rows(inputs, offset, [&](int64_t r, float* past) {
      reference::conv(op, width(step, op.in), vectors_.find(op.weight), vectors_.find(op.bias),
                      row(step, op.in, r), past, row(step, op.out, r));
    });
  }

  void run(const Mamba2Op& op, ReferenceProgram& step, const StepInputs& inputs) {
    const reference::Mamba2Weights weights{vectors_.find(op.decay), vectors_.find(op.skip),
                                           vectors_.find(op.dt_bias)};
    const int64_t offset = step.states.layers[static_cast<size_t>(op.state)].state;
    for_state_rows(inputs, offset, [&](int64_t r, float* state) {
      reference::mamba2(op, weights, row(step, op.conv, r), row(step, op.dt, r), state, row(step, op.out, r));
    });
    check_state(op.state, step, inputs);
  }

  void run(const Mamba1Op& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t offset = step.states.layers[static_cast<size_t>(op.state)].state;
    for_state_rows(inputs, offset, [&](int64_t r, float* state) {
      reference::mamba1(op, width(step, op.x), vectors_.find(op.decay), vectors_.find(op.skip),
                        {row(step, op.x, r), row(step, op.dt, r), row(step, op.b, r), row(step, op.c, r)},
                        state, row(step, op.out, r));
    });
    check_state(op.state, step, inputs);
  }

  void run(const DeltaRuleOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    const int64_t offset = step.states.layers[static_cast<size_t>(op.state)].state;
    for_state_rows(inputs, offset, [&](int64_t r, float* state) {
      reference::delta_rule(op, vectors_.find(op.decay), vectors_.find(op.dt_bias),
                            {row(step, op.conv, r), row(step, op.beta, r), row(step, op.alpha, r)}, state,
                            step.op_scratch, row(step, op.out, r));
    });
    check_state(op.state, step, inputs);
  }

  void run(const GatherRowsOp& op, ReferenceProgram& step, const StepInputs& inputs) {
    for (size_t i = 0; i < inputs.logit_rows.size(); ++i) {
      std::memcpy(row(step, op.out, static_cast<int64_t>(i)), row(step, op.in, inputs.logit_rows[i]),
                  static_cast<size_t>(width(step, op.in)) * sizeof(float));
    }
  }

  DeviceInfo info_{"reference", "scalar", 1};
  std::vector<TensorView> linears_;
  VectorWeights vectors_;
  int64_t linear_bytes_ = 0;
  int64_t widest_row_ = 1;
  std::atomic<uint64_t> submitted_ = 0;
  std::atomic<uint64_t> completed_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> make_reference_device() {
  return std::unique_ptr<Device>(std::make_unique<ReferenceDevice>());
}

}  // namespace butter
