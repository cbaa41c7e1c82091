// Device: owns weights and memory, and runs Programs.
//
// ReferenceDevice: float32 rows and arithmetic, scalar text: the specification. CpuDevice: the fast one.
// A device runs one step at a time; the engine serialises them. start_step() validates everything first and
// may return before the work is done; only finish_step() waits. A step that fails leaves the caches'
// committed rows and state as they were: it wrote only what the sequences had not committed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/buffer.h"
#include "core/status.h"
#include "core/tensor_view.h"
#include "kernels/kv_view.h"
#include "kernels/program.h"

namespace butter {

// The pages of one window class of one sequence, for one step.
struct ClassPages {
  // Block bases by logical page in two runs: kept from page 0, sealed from first_sealed (kv_view.h). In a
  // step that fills pages, those are among the sealed ones: SealOp writes them.
  std::span<std::byte* const> kept;
  std::span<std::byte* const> sealed;
  int64_t first_sealed = 0;
  // Raw blocks by logical page, from first_raw. Null for the inner pages of a prefill chunk in a scheme that
  // seals: their rows live in the device's scratch, one layer at a time, and are gone when sealed.
  std::span<std::byte* const> raw;
  int64_t first_raw = 0;
  std::byte* pinned = nullptr;
  std::byte* centre = nullptr;  // of positions 0..63: from the step that fills page 0 on
  const BlockLayout* sealed_layout = nullptr;
  const BlockLayout* raw_layout = nullptr;  // of the sequence's own raw blocks
  const BlockLayout* pinned_layout = nullptr;
  const BlockLayout* centre_layout = nullptr;
  Window window;
};

// One sequence's part of a step.
struct StepSequence {
  int first_row = 0;
  int rows = 0;
  int64_t position = 0;       // of the first row
  int64_t max_positions = 0;  // that it may have in its life: RopeTable::frequencies()
  const KvScheme* scheme = nullptr;
  std::span<const ClassPages> classes;  // by window class
  // Recurrent state (kernels/state_layout.h): read from `state`, or all zeros where that is null; written,
  // whole, to `next_state`. Null where the model has none.
  const std::byte* state = nullptr;
  std::byte* next_state = nullptr;
};

struct StepInputs {
  std::span<const int32_t> ids;  // a row each
  std::span<const StepSequence> sequences;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

// The largest step that a prepared program will see.
struct StepLimits {
  int rows = 0;
  int logit_rows = 0;
  int sequences = 1;
  int64_t max_positions = 0;  // of a sequence
  DType raw = DType::kF16;    // of raw rows
  bool seals = false;         // a scheme that seals may be present
};

// A Program with its workspace on a device. Not thread-safe; one step at a time.
class PreparedProgram {
 public:
  virtual ~PreparedProgram() = default;
  virtual int64_t workspace_bytes() const = 0;
  // [logit rows of the last step][vocabulary]; valid until the next step.
  virtual const float* logits() const = 0;
  // [logit rows of the last step][hidden], after the final norm.
  virtual const float* hidden() const = 0;
};

// Called after each op of a step that is traced: rows [rows][width] of the slot that the op wrote. What it
// writes there after an AttendOp or a RouteOp is what the next op reads; after other ops it must not write.
using TraceFn = std::function<void(const OpLabel& label, const Slot& slot, float* rows, int64_t row_count)>;

struct DeviceInfo {
  std::string name;  // "cpu", "reference"
  std::string isa;
  int threads = 1;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  // The type of raw KV rows for a model that asks for `wanted` (the reference device answers F32).
  virtual DType raw_dtype(DType wanted) const = 0;

  // Weights. The view must stay valid for the device's life unless `copied` says that the device keeps
  // nothing of it. Names are for error messages.
  struct LoadedWeight {
    WeightId id = kNone;
    bool copied = false;  // the view's bytes are no longer needed
  };
  virtual Result<LoadedWeight> load_linear(const std::string& name, const TensorView& weight) = 0;
  virtual Result<LoadedWeight> load_vector(const std::string& name, const TensorView& weight) = 0;
  // Bytes of all weights in their run-time forms, mapped ones included.
  virtual int64_t weight_bytes() const = 0;
  // Of one linear weight.
  virtual int64_t weight_bytes(WeightId id) const = 0;
  // "q4 g32 scale+bias", for inspect.
  virtual std::string weight_form(WeightId id) const = 0;

  // Memory for pages.
  virtual Result<Buffer> allocate_pages(int64_t bytes) { return Buffer::allocate(bytes); }

  // Workspace that prepare() will allocate for these limits, to the byte.
  virtual int64_t workspace_bytes(const Program& program, const StepLimits& limits) const = 0;
  virtual Result<std::unique_ptr<PreparedProgram>> prepare(const Program& program,
                                                           const StepLimits& limits) = 0;

  virtual Status start_step(PreparedProgram& prepared, const StepInputs& inputs,
                            const TraceFn* trace = nullptr) = 0;
  virtual Status finish_step(PreparedProgram& prepared) = 0;

  // Submissions are numbered from 1; a page that submission n read may be reused once completed() >= n.
  virtual uint64_t submitted() const = 0;
  virtual uint64_t completed() const = 0;
};

Result<std::unique_ptr<Device>> make_reference_device();
// threads 0: as many as the CPUs that this process may use. The ISA is choose_isa()'s.
// `precise`: prefill rounds its operands no more than decode does (to 16 bits), which is slower where there
// are bf16 tiles: to compare caches whose errors are smaller than such rounding.
Result<std::unique_ptr<Device>> make_cpu_device(int threads, bool precise = false);

}  // namespace butter
