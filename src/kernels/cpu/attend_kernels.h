// The kernels behind cpu/attend*.cc, one table for each instruction set: what a page costs is spent here.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function: the
// linker might keep the copy that an older CPU cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products.h"
#include "kernels/row_format.h"

namespace butter::cpu {

// The largest score so far of a row that has seen no key: finite, so that differences are never NaN.
constexpr float kNoScore = -1e30f;

// A softmax under way: `heads` states, each {max, sum, acc[dim]}, acc the sum of 2^(score − max) · value.
struct SoftmaxState {
  float* max = nullptr;  // [heads]
  float* sum = nullptr;  // [heads]
  float* acc = nullptr;  // [heads][stride]
  int64_t stride = 0;
};

// A block of query rows of one KV head with the page that they attend to (prefill). Arrays have room for rows
// rounded up to the kernels' tile_rows; queries there are zero and see nothing.
struct PrefillBlock {
  int rows = 0;
  int key_dim = 0;
  int value_dim = 0;
  SoftmaxState state;                  // of each row; stride is value_dim rounded up to 16
  const std::byte* queries = nullptr;  // packed
  const std::byte* keys = nullptr;     // packed: one page
  const std::byte* values = nullptr;   // packed: one page
  const uint64_t* visible = nullptr;   // [rows] the page's rows that a query row sees, as bits
  std::byte* scratch = nullptr;        // kPrefillScratchBytes
};

constexpr int kMaxTileRows = 32;
constexpr int64_t kPrefillScratchBytes = int64_t{kMaxTileRows} * kPageRows * 8;

// The part of a page's scores that the keys' centre adds (kernels/centre.h has the formula and its terms).
struct CentreScores {
  int heads = 0;
  int pairs = 0;
  int exact = 0;                   // exact pairs
  const float* queries = nullptr;  // [heads][stride], from prepare_centre()
  int64_t stride = 0;
  const float* page_cos = nullptr;  // [pairs] turn of the page
  const float* page_sin = nullptr;
  const float* const* rows = nullptr;     // [exact] RotaryTable::half_rows() of each exact pair
  const uint16_t* exact_pairs = nullptr;  // [2][exact]: the same twice
  uint64_t centred = 0;                   // rows that were coded without it
};

struct AttendKernels {
  // One step of the softmax of `heads` queries over a page: scores [heads][64], base-2 logarithms, become
  // weights 2^(score − max), 0 where hidden; max, sum and acc [heads][stride] follow.
  void (*soften)(float* scores, int heads, uint64_t visible, int dim, const SoftmaxState& state);
  // scores [heads][64] += q·c_t of the rows that have it.
  void (*add_centre)(const CentreScores& centre, float* scores);

  // Rows that the kernels below take at a time.
  int tile_rows;
  // rows [count][dim] to what attend_page reads. Packed bytes: at most 4 for each value, dims rounded up
  // to 32.
  void (*pack_queries)(const float* rows, int count, int dim, std::byte* packed);
  void (*pack_keys)(const float* rows, int dim, std::byte* packed);    // 64 rows
  void (*pack_values)(const float* rows, int dim, std::byte* packed);  // 64 rows
  // Query rows [first, end) attend to the page; rows beside them in a tile must have `visible` 0.
  void (*attend_page)(const PrefillBlock& block, int first, int end);
};

// Where bf16 is no quicker than float32, `products` makes no difference.
const AttendKernels& attend_kernels(Isa isa, Products products);

const AttendKernels& attend_kernels_portable();
const RowCodec& raw_codec_portable();
#if defined(__x86_64__)
const AttendKernels& attend_kernels_avx2();
const AttendKernels& attend_kernels_avx512();
const AttendKernels& attend_kernels_amx(Products products);
const RowCodec& raw_codec_avx2();
const RowCodec& raw_codec_avx512();
#endif

}  // namespace butter::cpu
