// CpuDevice: runs a Program on a team of threads, in one region a step.
//
// At prepare() the ops are grouped into phases; a barrier stands between two phases, nowhere else:
//   rows    a run of ops that work on each row alone (embed, norms, rope, write kv); a worker does all of
//   them for
//           the rows it owns
//   linear  a LinearOp, with the norm or activation before it where that feeds nothing else. In steps of few
//   rows
//           every worker makes the input for itself, which is quicker than meeting at a barrier; then each
//           owns a slice of the output columns
//   experts and recurrent mixers, with barriers of their own inside
//   seal, attend, scale, gather
// Who does what depends on the number of workers; what is computed does not.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/cache_ops.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/weight_storage.h"
#include "kernels/device.h"
#include "kernels/reference/ops.h"
#include "kernels/step_views.h"
#include "kernels/vector_weights.h"

namespace butter {
namespace {

// Up to so many rows every worker prepares linear inputs for itself.
constexpr int kPrivateRows = 4;

enum class PhaseKind : uint8_t { kRows, kLinear, kSeal, kAttend, kScale, kGather, kExperts, kRecurrent };

struct Phase {
  PhaseKind kind = PhaseKind::kRows;
  size_t first = 0;  // ops [first, end)
  size_t end = 0;
};

bool is_row_op(const Op& op) {
  return std::holds_alternative<EmbedOp>(op) || std::holds_alternative<RmsNormOp>(op) ||
         std::holds_alternative<RopeOp>(op) || std::holds_alternative<WriteKvOp>(op) ||
         std::holds_alternative<ActivateMulOp>(op) || std::holds_alternative<AddOp>(op) ||
         std::holds_alternative<ScaleRunsOp>(op) || std::holds_alternative<RouteOp>(op);
}

PhaseKind kind_of(const Op& op) {
  if (std::holds_alternative<LinearOp>(op)) return PhaseKind::kLinear;
  if (std::holds_alternative<SealOp>(op)) return PhaseKind::kSeal;
  if (std::holds_alternative<AttendOp>(op)) return PhaseKind::kAttend;
  if (std::holds_alternative<ScaleOp>(op)) return PhaseKind::kScale;
  if (std::holds_alternative<GatherRowsOp>(op)) return PhaseKind::kGather;
  if (std::holds_alternative<ExpertsOp>(op)) return PhaseKind::kExperts;
  return is_row_op(op) ? PhaseKind::kRows : PhaseKind::kRecurrent;
}

// The slot that a norm or activation writes; kNone for other ops.
SlotId produced_slot(const Op& op) {
  if (const auto* norm = std::get_if<RmsNormOp>(&op)) return norm->out == norm->in ? kNone : norm->out;
  if (const auto* activation = std::get_if<ActivateMulOp>(&op)) return activation->out;
  return kNone;
}

bool feeds_linear(const std::vector<Op>& ops, size_t index) {
  if (index + 1 >= ops.size()) return false;
  const auto* linear = std::get_if<LinearOp>(&ops[index + 1]);
  return linear != nullptr && produced_slot(ops[index]) == linear->in;
}

std::vector<Phase> group_phases(const std::vector<Op>& ops) {
  std::vector<Phase> phases;
  for (size_t i = 0; i < ops.size();) {
    Phase phase;
    phase.first = i;
    if (feeds_linear(ops, i)) {
      phase.kind = PhaseKind::kLinear;
      phase.end = i + 2;
    } else if (is_row_op(ops[i])) {
      phase.end = i + 1;
      while (phase.end < ops.size() && is_row_op(ops[phase.end]) && !feeds_linear(ops, phase.end))
        ++phase.end;
    } else {
      phase.end = i + 1;
      phase.kind = kind_of(ops[i]);
    }
    i = phase.end;
    phases.push_back(phase);
  }
  return phases;
}

// Sizes of the workspace's pieces; planned and taken by the same list.
struct WorkspacePlan {
  std::vector<int64_t> slots;
  std::vector<int64_t> angles;  // a rope table each: cos and sin of every row
  int64_t input = 0;            // a linear input that workers share
  int64_t attend = 0;
  int64_t experts = 0;
  int64_t kv = 0;
  // Of each worker.
  int64_t private_rows = 0;
  int64_t private_input = 0;
  int64_t linear = 0;
  int64_t seal = 0;
  int64_t route = 0;
  int64_t recurrent = 0;
  int workers = 1;

  int64_t total() const {
    int64_t bytes = Arena::piece_bytes(input) + Arena::piece_bytes(attend) + Arena::piece_bytes(experts) +
                    Arena::piece_bytes(kv);
    for (int64_t slot : slots) bytes += Arena::piece_bytes(slot);
    for (int64_t table : angles) bytes += Arena::piece_bytes(table);
    return bytes + workers * (Arena::piece_bytes(private_rows) + Arena::piece_bytes(private_input) +
                              Arena::piece_bytes(linear) + Arena::piece_bytes(seal) +
                              Arena::piece_bytes(route) + Arena::piece_bytes(recurrent));
  }
};

struct WorkerScratch {
  float* rows = nullptr;
  std::byte* input = nullptr;
  std::byte* linear = nullptr;
  std::byte* seal = nullptr;
  float* route = nullptr;
  float* recurrent = nullptr;
};

class CpuProgram final : public PreparedProgram {
 public:
  CpuProgram(const Program& source, const StepLimits& step_limits)
      : program(source),
        phases(group_phases(program.ops)),
        views(program, step_limits),
        states(state_layout(program.state_layers)) {}

  int64_t workspace_bytes() const override { return workspace.capacity(); }
  const float* logits() const override { return slots[static_cast<size_t>(program.logits)]; }
  const float* hidden() const override { return slots[static_cast<size_t>(program.hidden)]; }

  int64_t width(SlotId slot) const { return program.slots[static_cast<size_t>(slot)].width; }
  float* row(SlotId slot, int64_t index) const {
    return slots[static_cast<size_t>(slot)] + index * width(slot);
  }

  const Program program;
  const std::vector<Phase> phases;
  StepViews views;
  const StateLayout states;
  Arena workspace;
  std::vector<float*> slots;
  std::vector<float*> angles;
  std::byte* input = nullptr;
  std::byte* attend = nullptr;
  std::byte* experts = nullptr;
  std::byte* kv = nullptr;
  std::vector<WorkerScratch> workers;
  NonFinite non_finite;
};

// Workers own rows in multiples of this: in prefill, of the tiles that inputs are packed into.
int64_t row_grain(int64_t rows) {
  const bool prefill = cpu::linear_path(rows, false) != cpu::LinearPath::kDecode;
  return prefill ? cpu::input_grain(cpu::InputKind::kBf16) : 1;
}

// What the ops of one step need, seen by one worker.
struct StepContext {
  CpuProgram& program;
  const StepInputs& inputs;
  const Worker& worker;
  int64_t rows;  // of the step
  int64_t logit_rows;
  IndexRange own_rows;  // of the step's rows, in row phases

  WorkerScratch& scratch() const { return program.workers[static_cast<size_t>(worker.index())]; }
  int64_t rows_of(SlotId slot) const {
    return program.program.slots[static_cast<size_t>(slot)].rows == SlotRows::kStep ? rows : logit_rows;
  }
};

class CpuDevice final : public Device {
 public:
  CpuDevice(Isa isa, int threads, bool precise)
      : isa_(isa),
        precise_(precise),
        elementwise_(cpu::elementwise(isa)),
        recurrent_(cpu::recurrent(isa)),
        convert_{elementwise_.to_f16, elementwise_.to_bf16, elementwise_.copy},
        pool_(threads) {
    info_ = {"cpu", isa_name(isa), pool_.threads()};
  }

  const DeviceInfo& info() const override { return info_; }
  DType raw_dtype(DType wanted) const override { return wanted; }

  Result<LoadedWeight> load_linear(const std::string& name, const TensorView& view) override {
    const int64_t stored = cpu::LinearWeight::storage_bytes(view);
    std::byte* storage = nullptr;
    if (stored > 0) {
      BUTTER_ASSIGN(storage, weight_storage_.take(stored));
    }
    auto weight = cpu::LinearWeight::allocate(view, isa_, storage);
    if (!weight) return fail(weight.error().within(name));
    if (weight->copied()) {
      pool_.run([&](const Worker& worker) { weight->repack(worker.slice(view.rows(), cpu::kPanelRows)); });
    }
    weight->finish();
    linear_bytes_ += weight->bytes();
    if (!precise_ && !weight->finer_than_bf16()) products_ = Products::kBf16;
    const bool copied = weight->copied();
    linears_.push_back(std::move(*weight));
    return LoadedWeight{static_cast<WeightId>(linears_.size()) - 1, copied};
  }

  Result<LoadedWeight> load_vector(const std::string& name, const TensorView& view) override {
    BUTTER_ASSIGN(const WeightId id, vectors_.add(name, view));
    return LoadedWeight{id, true};
  }

  int64_t weight_bytes() const override { return linear_bytes_ + vectors_.bytes(); }
  int64_t weight_bytes(WeightId id) const override { return linears_[static_cast<size_t>(id)].bytes(); }
  std::string weight_form(WeightId id) const override {
    return linears_[static_cast<size_t>(id)].form_name();
  }

  int64_t workspace_bytes(const Program& program, const StepLimits& limits) const override {
    return plan(program, limits).total();
  }

  Result<std::unique_ptr<PreparedProgram>> prepare(const Program& program,
                                                   const StepLimits& limits) override {
    auto prepared = std::make_unique<CpuProgram>(program, limits);
    const WorkspacePlan sizes = plan(program, limits);
    BUTTER_ASSIGN(Buffer buffer, Buffer::allocate(sizes.total()));
    prepared->workspace = Arena(std::move(buffer));
    Arena& arena = prepared->workspace;
    for (int64_t bytes : sizes.slots) prepared->slots.push_back(reinterpret_cast<float*>(arena.take(bytes)));
    for (int64_t bytes : sizes.angles)
      prepared->angles.push_back(reinterpret_cast<float*>(arena.take(bytes)));
    prepared->input = arena.take(sizes.input);
    prepared->attend = arena.take(sizes.attend);
    prepared->experts = arena.take(sizes.experts);
    prepared->kv = arena.take(sizes.kv);
    for (int i = 0; i < sizes.workers; ++i) {
      WorkerScratch scratch;
      scratch.rows = reinterpret_cast<float*>(arena.take(sizes.private_rows));
      scratch.input = arena.take(sizes.private_input);
      scratch.linear = arena.take(sizes.linear);
      scratch.seal = arena.take(sizes.seal);
      scratch.route = reinterpret_cast<float*>(arena.take(sizes.route));
      scratch.recurrent = reinterpret_cast<float*>(arena.take(sizes.recurrent));
      prepared->workers.push_back(scratch);
    }
    return std::unique_ptr<PreparedProgram>(std::move(prepared));
  }

  Status start_step(PreparedProgram& prepared, const StepInputs& inputs, const TraceFn* trace) override {
    auto& program = static_cast<CpuProgram&>(prepared);
    BUTTER_TRY(program.views.check(inputs));
    program.views.set(inputs, program.kv);
    program.non_finite.reset();
    ++submitted_;
    const auto region = [&](const Worker& worker) { run_program(program, inputs, worker, trace); };
    pool_.run(std::ref(region));
    return {};
  }

  Status finish_step(PreparedProgram& prepared) override {
    completed_ = submitted_.load();
    return static_cast<CpuProgram&>(prepared).non_finite.status();
  }

  uint64_t submitted() const override { return submitted_; }
  uint64_t completed() const override { return completed_; }

 private:
  WorkspacePlan plan(const Program& program, const StepLimits& limits) const {
    WorkspacePlan sizes;
    sizes.workers = pool_.threads();
    for (const Slot& slot : program.slots) {
      const int64_t rows = slot.rows == SlotRows::kStep ? limits.rows : limits.logit_rows;
      sizes.slots.push_back(rows * slot.width * static_cast<int64_t>(sizeof(float)));
    }
    for (const RopeTable& table : program.rope_tables) {
      sizes.angles.push_back(limits.rows * static_cast<int64_t>(2 * table.inv_freq.size() * sizeof(float)));
    }
    plan_linear(std::max(limits.rows, limits.logit_rows), sizes);
    sizes.kv = StepViews::scratch_bytes(program, limits);
    for (const KvLayerShape& shape : program.kv_layers) {
      sizes.seal = std::max(sizes.seal, seal_scratch_bytes(shape));
    }
    for (const Op& op : program.ops)
      std::visit([&](const auto& known) { plan_scratch(known, program, limits, sizes); }, op);
    return sizes;
  }

  // What one op needs of the workspace beside slots and linear inputs.
  void plan_scratch(const AttendOp& op, const Program& program, const StepLimits& limits,
                    WorkspacePlan& sizes) const {
    const KvLayerShape& shape = program.kv_layers[static_cast<size_t>(op.kv_layer)];
    const AttendLimits attend_limits{limits.rows,   limits.max_positions, op.q_heads,     shape.kv_heads,
                                     shape.key_dim, shape.value_dim,      pool_.threads()};
    sizes.attend = std::max(sizes.attend, cpu::attend_scratch_bytes(attend_limits));
  }
  void plan_scratch(const RouteOp& op, const Program&, const StepLimits&, WorkspacePlan& sizes) const {
    sizes.route = std::max(sizes.route, float_bytes(op.routing.experts + op.routing.groups));
  }
  void plan_scratch(const ExpertsOp& op, const Program&, const StepLimits& limits,
                    WorkspacePlan& sizes) const {
    sizes.experts = std::max(sizes.experts, cpu::experts_scratch_bytes(op, linears_, limits.rows));
  }
  void plan_scratch(const Mamba2Op& op, const Program&, const StepLimits&, WorkspacePlan& sizes) const {
    sizes.recurrent = std::max(sizes.recurrent, float_bytes(cpu::recurrent_scratch_floats(op)));
  }
  void plan_scratch(const DeltaRuleOp& op, const Program&, const StepLimits&, WorkspacePlan& sizes) const {
    sizes.recurrent = std::max(sizes.recurrent, float_bytes(cpu::recurrent_scratch_floats(op)));
  }
  template <typename OtherOp>
  void plan_scratch(const OtherOp&, const Program&, const StepLimits&, WorkspacePlan&) const {}

  static int64_t float_bytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

  void plan_linear(int64_t rows, WorkspacePlan& sizes) const {
    for (const cpu::LinearWeight& weight : linears_) {
      const int64_t columns = weight.columns();
      const cpu::InputKind decode = cpu::input_kind(weight, cpu::LinearPath::kDecode);
      const cpu::InputKind prefill = cpu::input_kind(weight, cpu::LinearPath::kFinePrefill);
      sizes.input = std::max(
          {sizes.input, cpu::input_bytes(decode, rows, columns), cpu::input_bytes(prefill, rows, columns)});
      sizes.private_input = std::max(sizes.private_input, cpu::input_bytes(decode, kPrivateRows, columns));
      sizes.private_rows =
          std::max(sizes.private_rows, kPrivateRows * columns * static_cast<int64_t>(sizeof(float)));
      sizes.linear = std::max(sizes.linear, cpu::linear_scratch_bytes(weight));
    }
  }

  void run_program(CpuProgram& program, const StepInputs& inputs, const Worker& worker,
                   const TraceFn* trace) {
    const auto rows = static_cast<int64_t>(inputs.ids.size());
    const StepContext step{program,
                           inputs,
                           worker,
                           rows,
                           static_cast<int64_t>(inputs.logit_rows.size()),
                           worker.slice(rows, row_grain(rows))};
    fill_angles(step);
    for (const Phase& phase : program.phases) {
      run_phase(step, phase);
      // A step that found a number that is not finite goes on to its end, and is refused there: a worker that
      // has passed this barrier may report one before another has left it, so they could not agree on
      // stopping here.
      worker.barrier();
      if (trace == nullptr) continue;
      if (worker.index() == 0) trace_phase(step, phase, *trace);
      worker.barrier();
    }
  }

  // cos and sin for the rows that this worker turns itself.
  void fill_angles(const StepContext& step) {
    for (size_t t = 0; t < step.program.angles.size(); ++t) {
      const RopeTable& table = step.program.program.rope_tables[t];
      const auto pairs = static_cast<int64_t>(table.inv_freq.size());
      for_own_rows(step, [&](int64_t row, int64_t position, int64_t max_positions) {
        float* cos = step.program.angles[t] + row * 2 * pairs;
        reference::rope_angles(table.frequencies(max_positions), table.amplitude, position, cos, cos + pairs);
      });
    }
  }

  // each(row of the step, its position, its sequence's limit) for the rows that the worker owns.
  template <typename Each>
  static void for_own_rows(const StepContext& step, const Each& each) {
    for (const StepSequence& sequence : step.inputs.sequences) {
      const int64_t begin = std::max<int64_t>(sequence.first_row, step.own_rows.begin);
      const int64_t end = std::min<int64_t>(sequence.first_row + sequence.rows, step.own_rows.end);
      for (int64_t row = begin; row < end; ++row)
        each(row, sequence.position + row - sequence.first_row, sequence.max_positions);
    }
  }

  void run_phase(const StepContext& step, const Phase& phase) {
    const std::vector<Op>& ops = step.program.program.ops;
    switch (phase.kind) {
      case PhaseKind::kRows:
        for (size_t i = phase.first; i < phase.end; ++i) {
          std::visit([&](const auto& op) { run_rows(op, step, step.own_rows, nullptr); }, ops[i]);
        }
        return;
      case PhaseKind::kLinear:
        return run_linear(step, phase);
      case PhaseKind::kSeal:
        return run_seal(std::get<SealOp>(ops[phase.first]), step);
      case PhaseKind::kAttend:
        return run_attend(std::get<AttendOp>(ops[phase.first]), step);
      case PhaseKind::kScale:
        return run_scale(std::get<ScaleOp>(ops[phase.first]), step);
      case PhaseKind::kGather:
        return run_gather(std::get<GatherRowsOp>(ops[phase.first]), step);
      case PhaseKind::kExperts:
        return run_experts(std::get<ExpertsOp>(ops[phase.first]), step);
      case PhaseKind::kRecurrent:
        return std::visit([&](const auto& op) { run_recurrent(op, step); }, ops[phase.first]);
    }
  }

  static void trace_phase(const StepContext& step, const Phase& phase, const TraceFn& trace) {
    const Program& program = step.program.program;
    for (size_t i = phase.first; i < phase.end; ++i) {
      const SlotId slot = written_slot(program.ops[i]);
      if (slot == kNone) continue;
      trace(program.labels[i], program.slots[static_cast<size_t>(slot)], step.program.row(slot, 0),
            step.rows_of(slot));
    }
  }

  // --- Row ops: rows [rows.begin, rows.end), into the op's own slot, or into `out` (row 0 first) where
  // given.

  void run_rows(const EmbedOp& op, const StepContext& step, IndexRange rows, float*) {
    const cpu::LinearWeight& table = linears_[static_cast<size_t>(op.table)];
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      float* out = step.program.row(op.out, r);
      table.dequantise_row(step.inputs.ids[static_cast<size_t>(r)], out);
      if (op.scale != 1) elementwise_.scale(op.scale, table.columns(), out);
    }
  }

  void run_rows(const RmsNormOp& op, const StepContext& step, IndexRange rows, float* out) {
    const int64_t width = step.program.width(op.in);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      float* to = out != nullptr ? out + r * width : step.program.row(op.out, r);
      elementwise_.rms_norm(op, step.program.row(op.in, r), width, vectors_.find(op.weight), to);
    }
  }

  void run_rows(const RopeOp& op, const StepContext& step, IndexRange rows, float*) {
    const auto table = static_cast<size_t>(op.table);
    const auto pairs = static_cast<int64_t>(step.program.program.rope_tables[table].inv_freq.size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const float* cos = step.program.angles[table] + r * 2 * pairs;
      elementwise_.rope(op, pairs, cos, cos + pairs, step.program.row(op.in_out, r));
    }
  }

  void run_rows(const WriteKvOp& op, const StepContext& step, IndexRange rows, float*) {
    const AttendSequence* sequences = step.program.views.layer(op.kv_layer);
    for (int s = 0; s < step.program.views.sequences(); ++s) {
      const int64_t first = sequences[s].first_row;
      const int64_t begin = std::max(first, rows.begin), end = std::min(first + sequences[s].rows, rows.end);
      for (int64_t r = begin; r < end; ++r) {
        write_kv_row(sequences[s], r - first, step.program.row(op.key, r), step.program.row(op.value, r),
                     convert_, step.program.non_finite);
      }
    }
  }

  void run_rows(const ActivateMulOp& op, const StepContext& step, IndexRange rows, float* out) {
    const int64_t width = step.program.width(op.out);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      float* to = out != nullptr ? out + r * width : step.program.row(op.out, r);
      const float* gate = step.program.row(op.gate, r);
      const float* up = step.program.row(op.up, r);
      if (step.program.width(op.gate) == width) {
        elementwise_.activate_mul(op.function, gate, up, width, to);
      } else {
        activate_runs(op.function, gate, step.program.width(op.gate), up, width, to);
      }
    }
  }

  // A gate for each of `gates` equal runs.
  void activate_runs(const GateFunction& function, const float* gate, int64_t gates, const float* up,
                     int64_t width, float* out) {
    const int64_t run = width / gates;
    if (out != up) std::copy_n(up, width, out);
    for (int64_t i = 0; i < gates; ++i, out += run) {
      const float one = 1;
      float factor;
      elementwise_.activate_mul(function, gate + i, &one, 1, &factor);
      elementwise_.scale(factor, run, out);
    }
  }

  void run_rows(const AddOp& op, const StepContext& step, IndexRange rows, float*) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      elementwise_.add(step.program.row(op.in, r), op.multiplier, step.program.width(op.in),
                       step.program.row(op.out, r));
    }
  }

  void run_rows(const ScaleRunsOp& op, const StepContext& step, IndexRange rows, float*) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      float* run = step.program.row(op.in_out, r);
      for (int i = 0; i < op.count; run += op.runs[static_cast<size_t>(i++)].width) {
        const ScaleRunsOp::Run& by = op.runs[static_cast<size_t>(i)];
        elementwise_.scale(by.multiplier, by.width, run);
      }
    }
  }

  // Choosing is no work worth another text than the reference's.
  void run_rows(const RouteOp& op, const StepContext& step, IndexRange rows, float*) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      reference::route(op.routing, step.program.row(op.scores, r), vectors_.find(op.choice_bias),
                       step.scratch().route, step.program.row(op.out, r));
    }
  }

  // Ops that never stand in a row phase.
  template <typename OtherOp>
  void run_rows(const OtherOp&, const StepContext&, IndexRange, float*) {
    BUTTER_CHECK(!"an op without a row form");
  }

  // --- Linear
  // ------------------------------------------------------------------------------------------------

  void run_linear(const StepContext& step, const Phase& phase) {
    const std::vector<Op>& ops = step.program.program.ops;
    const auto& op = std::get<LinearOp>(ops[phase.end - 1]);
    const Op* producer = phase.end - phase.first == 2 ? &ops[phase.first] : nullptr;
    const int64_t rows = step.rows_of(op.in);
    if (rows == 0) return;
    const cpu::LinearPath path = precise_ ? cpu::LinearPath::kDecode : cpu::linear_path(rows, op.fine);
    const bool alone = rows <= kPrivateRows;  // every worker makes the input for itself
    const IndexRange own = alone ? IndexRange{0, rows} : step.worker.slice(rows, row_grain(rows));

    cpu::LinearInput input;
    input.x = step.program.row(op.in, 0);
    input.stride = input.columns = step.program.width(op.in);
    input.rows = rows;
    input.prepared = alone ? step.scratch().input : step.program.input;
    if (producer != nullptr) {
      // The first worker's copy is the slot itself, where traces and callers look for it.
      const bool in_slot = !alone || step.worker.index() == 0;
      float* out = in_slot ? nullptr : step.scratch().rows;
      std::visit([&](const auto& made) { run_rows(made, step, own, out); }, *producer);
      if (!in_slot) input.x = out;
    }
    bool prepared[cpu::kInputKinds] = {};
    for (int i = 0; i < op.count; ++i) {
      const LinearPart& part = op.parts[static_cast<size_t>(i)];
      const cpu::LinearWeight& weight = linears_[static_cast<size_t>(part.weight)];
      const cpu::InputKind kind = cpu::input_kind(weight, path);
      if (kind != input.kind || !prepared[static_cast<size_t>(kind)]) {
        // A second kind goes where the first one stands: wait until everyone has read that.
        if (i > 0 && !alone) step.worker.barrier();
        input.kind = kind;
        cpu::prepare_input(isa_, input, own);
        std::fill(std::begin(prepared), std::end(prepared), false);
        prepared[static_cast<size_t>(kind)] = true;
        if (!alone) step.worker.barrier();
      }
      const LinearTarget target{step.program.row(part.out, 0) + part.first_column,
                                step.program.width(part.out), vectors_.find(part.bias), part.accumulate,
                                part.multiplier};
      cpu::linear(weight, input, step.worker.slice(weight.rows(), cpu::kPanelRows), target,
                  step.scratch().linear);
    }
  }

  // --- The others
  // --------------------------------------------------------------------------------------------

  void run_seal(const SealOp& op, const StepContext& step) {
    const AttendSequence* sequences = step.program.views.layer(op.kv_layer);
    const SealOptions options{false, isa_};
    bool centres = false;
    for (int s = 0; s < step.program.views.sequences(); ++s) {
      if (!makes_centre(sequences[s])) continue;
      centres = true;
      const IndexRange own = step.worker.slice(sequences[s].view.shape.kv_heads);
      for (int64_t head = own.begin; head < own.end; ++head)
        make_head_centre(sequences[s], static_cast<int>(head), options, step.scratch().seal);
    }
    if (centres) step.worker.barrier();  // every page is coded without it
    for (int s = 0; s < step.program.views.sequences(); ++s) {
      const AttendSequence& sequence = sequences[s];
      if (!sequence.view.scheme.seals()) continue;
      const PageSpan filled = filled_pages(sequence);
      const int heads = sequence.view.shape.kv_heads;
      const IndexRange own = step.worker.slice((filled.end - filled.begin) * heads);
      for (int64_t item = own.begin; item < own.end; ++item) {
        seal_head(sequence, filled.begin + item / heads, static_cast<int>(item % heads), options,
                  step.scratch().seal);
      }
    }
  }

  void run_attend(const AttendOp& op, const StepContext& step) {
    AttendBatch batch;
    batch.sequences = step.program.views.layer(op.kv_layer);
    batch.count = step.program.views.sequences();
    batch.queries = step.program.row(op.query, 0);
    batch.out = step.program.row(op.out, 0);
    batch.q_heads = op.q_heads;
    batch.scale = op.scale;
    batch.sinks = vectors_.find(op.sinks);
    batch.products = products_;
    cpu::attend(batch, isa_, step.program.attend, step.worker);
  }

  void run_experts(const ExpertsOp& op, const StepContext& step) {
    cpu::ExpertsStep experts;
    experts.op = &op;
    experts.weights = &linears_;
    experts.vectors = &vectors_;
    experts.elementwise = &elementwise_;
    experts.isa = isa_;
    experts.path = precise_ ? cpu::LinearPath::kDecode : cpu::linear_path(step.rows, op.fine);
    experts.rows = step.rows;
    experts.in = strided(step, op.in);
    experts.routes = strided(step, op.routes);
    experts.out = strided(step, op.out);
    cpu::run_experts(experts, step.program.experts, step.scratch().linear, step.worker);
  }

  static cpu::StridedRows strided(const StepContext& step, SlotId slot, int64_t first_row = 0) {
    return {step.program.row(slot, first_row), step.program.width(slot)};
  }

  // --- Recurrent mixers: every sequence's rows are a matter of its own

  // Bytes of a sequence's state from `offset` on, or null; and where the next one's go.
  struct StatePlace {
    const float* state = nullptr;
    float* next = nullptr;
  };
  static StatePlace state_of(const StepSequence& sequence, int64_t offset) {
    StatePlace place;
    if (sequence.state != nullptr) place.state = reinterpret_cast<const float*>(sequence.state + offset);
    place.next = reinterpret_cast<float*>(sequence.next_state + offset);
    return place;
  }
  static const StateOffsets& offsets(const StepContext& step, int state) {
    return step.program.states.layers[static_cast<size_t>(state)];
  }
  static void report(const StepContext& step, int state, const StepSequence& sequence, bool finite) {
    const int layer = step.program.program.state_layers[static_cast<size_t>(state)].layer;
    if (!finite) step.program.non_finite.report_state(layer, sequence.position);
  }

  static constexpr int64_t kChannelGrain = 16;  // channels of a cache line

  void run_recurrent(const ConvOp& op, const StepContext& step) {
    for (const StepSequence& sequence : step.inputs.sequences) {
      const StatePlace place = state_of(sequence, offsets(step, op.state).conv);
      cpu::ConvRows rows;
      rows.in = strided(step, op.in, sequence.first_row);
      rows.out = strided(step, op.out, sequence.first_row);
      rows.rows = sequence.rows;
      rows.channels = step.program.width(op.in);
      rows.taps = op.taps;
      rows.weight = vectors_.find(op.weight);
      rows.bias = vectors_.find(op.bias);
      rows.past = place.state;
      rows.next_past = place.next;
      const IndexRange own = step.worker.slice(rows.channels, kChannelGrain);
      if (own.begin < own.end) recurrent_.conv(rows, own.begin, own.end);
    }
  }

  void run_recurrent(const Mamba1Op& op, const StepContext& step) {
    for (const StepSequence& sequence : step.inputs.sequences) {
      const StatePlace place = state_of(sequence, offsets(step, op.state).state);
      cpu::Mamba1Rows rows;
      rows.x = strided(step, op.x, sequence.first_row);
      rows.dt = strided(step, op.dt, sequence.first_row);
      rows.b = strided(step, op.b, sequence.first_row);
      rows.c = strided(step, op.c, sequence.first_row);
      rows.out = strided(step, op.out, sequence.first_row);
      rows.rows = sequence.rows;
      rows.width = step.program.width(op.x);
      rows.state_size = op.state_size;
      rows.decay = vectors_.find(op.decay);
      rows.skip = vectors_.find(op.skip);
      rows.state = place.state;
      rows.next_state = place.next;
      const IndexRange own = step.worker.slice(rows.width, kChannelGrain);
      if (own.begin < own.end) report(step, op.state, sequence, recurrent_.mamba1(rows, own.begin, own.end));
    }
  }

  void run_recurrent(const Mamba2Op& op, const StepContext& step) {
    for (const StepSequence& sequence : step.inputs.sequences) {
      const StatePlace place = state_of(sequence, offsets(step, op.state).state);
      cpu::Mamba2Rows rows;
      rows.op = &op;
      rows.conv = strided(step, op.conv, sequence.first_row);
      rows.dt = strided(step, op.dt, sequence.first_row);
      rows.out = strided(step, op.out, sequence.first_row);
      rows.rows = sequence.rows;
      rows.decay = vectors_.find(op.decay);
      rows.skip = vectors_.find(op.skip);
      rows.dt_bias = vectors_.find(op.dt_bias);
      rows.state = place.state;
      rows.next_state = place.next;
      const IndexRange own = step.worker.slice(op.heads);
      if (own.begin == own.end) continue;
      const bool finite = recurrent_.mamba2(rows, own.begin, own.end, step.scratch().recurrent);
      report(step, op.state, sequence, finite);
    }
  }

  void run_recurrent(const DeltaRuleOp& op, const StepContext& step) {
    for (const StepSequence& sequence : step.inputs.sequences) {
      const StatePlace place = state_of(sequence, offsets(step, op.state).state);
      cpu::DeltaRows rows;
      rows.op = &op;
      rows.conv = strided(step, op.conv, sequence.first_row);
      rows.beta = strided(step, op.beta, sequence.first_row);
      rows.alpha = strided(step, op.alpha, sequence.first_row);
      rows.out = strided(step, op.out, sequence.first_row);
      rows.rows = sequence.rows;
      rows.decay = vectors_.find(op.decay);
      rows.dt_bias = vectors_.find(op.dt_bias);
      rows.state = place.state;
      rows.next_state = place.next;
      const IndexRange own = step.worker.slice(op.value_heads);
      if (own.begin == own.end) continue;
      const bool finite = recurrent_.delta_rule(rows, own.begin, own.end, step.scratch().recurrent);
      report(step, op.state, sequence, finite);
    }
  }

  // Ops that are no recurrent mixers.
  template <typename OtherOp>
  void run_recurrent(const OtherOp&, const StepContext&) {
    BUTTER_CHECK(!"an op without a phase");
  }

  // A few rows, as wide as the vocabulary: workers split the columns.
  void run_scale(const ScaleOp& op, const StepContext& step) {
    constexpr int64_t kGrain = 16;
    const IndexRange own = step.worker.slice(step.program.width(op.out), kGrain);
    for (int64_t row = 0; row < step.rows_of(op.out); ++row) {
      float* out = step.program.row(op.out, row);
      elementwise_.scale(op.multiplier, own.end - own.begin, out + own.begin);
      if (op.cap == 0) continue;
      for (int64_t i = own.begin; i < own.end; ++i) out[i] = op.cap * std::tanh(out[i] / op.cap);
    }
  }

  void run_gather(const GatherRowsOp& op, const StepContext& step) {
    const IndexRange own = step.worker.slice(step.logit_rows);
    for (int64_t i = own.begin; i < own.end; ++i) {
      std::memcpy(step.program.row(op.out, i),
                  step.program.row(op.in, step.inputs.logit_rows[static_cast<size_t>(i)]),
                  static_cast<size_t>(step.program.width(op.in)) * sizeof(float));
    }
  }

  const Isa isa_;
  const bool precise_;  // prefill's linear ops take the inputs of decode, its attention exact products
  const cpu::Elementwise& elementwise_;
  const cpu::Recurrent& recurrent_;
  const RowConverter convert_;
  ThreadPool pool_;
  DeviceInfo info_;
  cpu::WeightStorage weight_storage_;
  std::vector<cpu::LinearWeight> linears_;
  VectorWeights vectors_;
  Products products_ = Products::kExact;
  int64_t linear_bytes_ = 0;
  std::atomic<uint64_t> submitted_ = 0;
  std::atomic<uint64_t> completed_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(int threads, bool precise) {
  BUTTER_ASSIGN(const Isa isa, choose_isa());
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(isa, threads > 0 ? threads : usable_cpus(), precise));
}

}  // namespace butter
