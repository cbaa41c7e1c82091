// LinearWeight: one matrix of a model in the form that the CPU kernels read, and the linear op on it.
//
// Forms (docs/weights.md has their layouts). Float checkpoints keep their type and are read in place, row by
// row. Quantised ones are repacked once, at load, into panels of 16 rows, and take exactly the file's bytes.
// A view that is read in place must outlive the weight.
//
// An op is three steps, and the caller puts a barrier between them:
//
//   LinearInput input{kind, x, stride, rows, columns, prepared};   // kind = input_kind(weight, path)
//   prepare_input(isa, input, worker.slice(rows, input_grain(kind)));
//   barrier
//   linear(weight, input, worker.slice(weight.rows(), kPanelRows), target, scratch of this worker);
//
// Parts of an op that want the same kind share one prepared input. Nothing is allocated here: input_bytes()
// and linear_scratch_bytes() say what a step needs. A row of the result is the same, bit for bit, whatever
// rows stand beside it and however the work is split (at multiples of kPanelRows), as long as the kind is the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/cpu_isa.h"
#include "core/status.h"
#include "core/tensor_view.h"
#include "core/thread_pool.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/prefill_rows.h"
#include "kernels/linear_target.h"

namespace butter::cpu {

// Move-only. Reading is thread-safe once every row is repacked.
class LinearWeight {
 public:
  LinearWeight() = default;

  // Allocated and repacked on the calling thread. Fails with kUnsupported for a type that has no form, with
  // kOutOfMemory where the system has not got the bytes.
  static Result<LinearWeight> make(const TensorView& view, Isa isa);

  // The same in two steps, for callers that split the second over threads: allocate(), then repack() of
  // disjoint row ranges that start at multiples of kPanelRows and together cover all rows; finish() ends it.
  // `storage`, if given, holds storage_bytes(view) bytes at a multiple of 64 and outlives the weight.
  static Result<LinearWeight> allocate(const TensorView& view, Isa isa, std::byte* storage = nullptr);
  void repack(IndexRange rows);
  void finish() { source_ = {}; }
  // Bytes that allocate() needs for a view: 0 where it is read in place.
  static int64_t storage_bytes(const TensorView& view);

  int64_t rows() const { return matrix_.rows; }
  int64_t columns() const { return matrix_.columns; }
  Isa isa() const { return isa_; }
  // Of the run-time form, mapped or allocated; never more than the file's.
  int64_t bytes() const { return bytes_; }
  // Whether the view's bytes are no longer needed after finish().
  bool copied() const { return copied_; }
  // Whether its values need more than a bf16's 8 bits: those of float32 and fp16.
  bool finer_than_bf16() const {
    return matrix_.form == LinearForm::kF32 || matrix_.form == LinearForm::kF16;
  }
  // "q4 g32 scale+bias", for inspect.
  std::string form_name() const;
  const LinearMatrix& matrix() const { return matrix_; }

  // Row r as float32: the value that the file says, bit for bit. For the lookup in a tied embedding.
  void dequantise_row(int64_t r, float* out) const;

 private:
  // One panel, of `lanes` rows from n on.
  void pack_blocks(int64_t n, int64_t lanes);
  void pack_mlx(int64_t n, int64_t lanes);
  void dequantise_affine_row(int64_t r, float* out) const;

  LinearMatrix matrix_;
  Isa isa_ = Isa::kPortable;
  int64_t bytes_ = 0;
  bool copied_ = false;
  TensorView source_;  // until finish()
  std::byte* packed_ = nullptr;
  Buffer buffer_;
};

// Decode is for steps of few rows, where reading the weight is what takes time; prefill for 16 rows or more,
// which rounds rows to 8 bits where there are tiles; fine prefill to 16, at twice the work. They round
// differently, so rows of one sequence should choose by that sequence's own row count.
enum class LinearPath : uint8_t { kDecode, kPrefill, kFinePrefill };
inline LinearPath linear_path(int64_t rows, bool fine) {
  if (rows < kPrefillRows) return LinearPath::kDecode;
  return fine ? LinearPath::kFinePrefill : LinearPath::kPrefill;
}

// What a kernel reads in place of the float32 rows.
enum class InputKind : uint8_t {
  kFloat,     // the rows themselves: nothing to prepare
  kInt8,      // 8-bit codes with a scale for every 32 columns
  kBf16,      // bf16 tiles of 32 rows
  kBf16Pair,  // the same of two bf16 parts a value, 16 bits together
};
constexpr int kInputKinds = 4;

InputKind input_kind(const LinearWeight& weight, LinearPath path);

struct LinearInput {
  InputKind kind = InputKind::kFloat;
  const float* x = nullptr;
  int64_t stride = 0;  // floats from one row of x to the next
  int64_t rows = 0;
  int64_t columns = 0;
  std::byte* prepared = nullptr;  // input_bytes(), aligned to 64
};

// Bytes of a prepared input.
int64_t input_bytes(InputKind kind, int64_t rows, int64_t columns);
// Rows are prepared in multiples of this.
int64_t input_grain(InputKind kind);
// Fills the rows [rows.begin, rows.end) of input.prepared. Workers may each do some rows, or each all of them
// into memory of its own, which for a few rows is quicker than a barrier. A row that holds NaN or an infinity
// gives NaN in the groups that hold it, and so in every result.
void prepare_input(Isa isa, const LinearInput& input, IndexRange rows);

// Scratch of one worker for linear() of the weight, in either path.
int64_t linear_scratch_bytes(const LinearWeight& weight);

// target.y[row][n] for every input row and every n in `outputs`, which begins at a multiple of kPanelRows and
// ends at one or at weight.rows(). `scratch` may be null for kinds without tiles; it is aligned to 64.
void linear(const LinearWeight& weight, const LinearInput& input, IndexRange outputs,
            const LinearTarget& target, std::byte* scratch);

}  // namespace butter::cpu
