// TestCache: one sequence's cache of one layer with random rows, for tests and benchmarks of attention.
//
// Sealed pages are encoded once, by the reference codec, and stand in two orders of bytes: that of the
// reference device, which is the exchange form, and that of the CPU. So both read the same codes.
//
// Everything that no query of a step may read is poison: rows that are hidden or not yet written hold NaN (in
// codes, which have none, values far off), pages whose rows are all hidden are null.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"

namespace butter {

struct TestCacheOptions {
  KvLayerShape shape;
  KvScheme scheme;
  Window window;
  int64_t position = 0;  // of the step's first row
  int rows = 1;          // of the step
  uint64_t seed = 1;     // of keys and values, which depend on (seed, position, head, channel) alone
  float bias = 0;        // keys are R_t of it more: what a centre takes off (rms of a channel)
};

class TestCache {
 public:
  explicit TestCache(const TestCacheOptions& options);

  // Its place in a batch whose rows before it are `first_row`, as the reference device reads it and as the
  // CPU does.
  AttendSequence sequence(int first_row = 0) const;
  AttendSequence cpu_sequence(int first_row = 0) const;
  // What was written for one channel of a position that is not hidden, before rounding.
  float written(Side side, int64_t position, int head, int channel) const;

 private:
  using Block = std::unique_ptr<std::byte[]>;

  bool hidden(int64_t position) const;  // from every query of the step
  void fill_page(int64_t page);
  // The two orders of a sealed page.
  struct SealedPage {
    Block reference, cpu;
  };
  // What a view points at.
  struct SealedRuns {
    std::vector<const std::byte*> kept, sealed;
  };

  void make_centre_block();
  void seal(const RowShape& row, int64_t page, std::vector<float>& rows, int head,
            const SealedPage& sealed) const;
  KvView make_view(const SealedRuns& runs) const;
  SealedRuns make_runs(Block SealedPage::*order) const;

  TestCacheOptions options_;
  RotaryTable rotary_;
  std::vector<float> bias_;  // [kv_heads][key_dim], before RoPE
  std::vector<Block> raw_blocks_;
  std::vector<SealedPage> sealed_pages_;  // by page; null where not made
  Block pinned_block_, centre_block_;
  BlockLayout raw_layout_, sealed_layout_, pinned_layout_, centre_layout_;
  std::vector<RawPage> raw_pages_;
  SealedRuns reference_runs_, cpu_runs_;
};

// A batch of caches, its queries, and what a device answers.
struct AttendCase {
  AttendCase(const std::vector<TestCacheOptions>& options, int group);

  std::vector<float> reference();
  // Scratch is exactly as large as planned, and full of NaN.
  std::vector<float> cpu(Isa isa, int workers = 1);

  std::vector<std::unique_ptr<TestCache>> caches;
  std::vector<AttendSequence> sequences, cpu_sequences;
  std::vector<float> queries;
  AttendBatch batch;
  AttendLimits limits;
  int64_t max_positions = 0;
  int64_t out_width = 0;
};

std::string describe_case(const TestCacheOptions& options, int group, Isa isa);

// Every lossy format for both sides, pairs of formats that share no code, and some of the plain forms.
std::vector<KvScheme> code_schemes();

// How far `out` is from `expected` as a share of it: the largest |out - expected| / |expected| of the rows of
// all heads, `width` values each.
double worst_share(const std::vector<float>& out, const std::vector<float>& expected, int width);

// Runs one cache of codes on every instruction set, with and without leave to round to bf16; what is wrong,
// or nothing. A width that the scheme does not take is right.
//
// Bounds, as a share of the output. Decode: a query is rounded to 8 bits by its largest channel, which is 3
// times its rms: an error of 0.7 % of a channel's rms, and so of a score of spread 1, so that weights are off
// by 0.7 %, independently; weights are rounded to 1/255 of the page's largest, again up to half a per cent of
// what few rows carry. Over the rows and heads of the whole matrix the worst is 2 to 3 times that: the bound
// is 4 %. Codes of 8 bits have queries and weights of 16 and stay within 1e-3. Prefill reads the codes as
// floats: sums differ in their order alone, within 1e-4; where AMX may round to bf16 (2^-9 of each factor), 5
// %.
std::string parity_on_codes(const TestCacheOptions& options, int group);

// Numbers of a standard normal distribution, more or less: `count` of them, from a seed.
std::vector<float> random_floats(uint64_t seed, int64_t count);

}  // namespace butter
