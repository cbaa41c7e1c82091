// Limits and Budget: what a template may use up before rendering stops with an error.
//
// Templates come out of model files and are not trusted. Every loop, every text and every nesting that a
// template can cause is charged here; the error names the bound that was exceeded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace butter::jinja {

struct Limits {
  size_t max_template_bytes = size_t{1} << 20;
  int max_nesting = 100;                           // of blocks and expressions in the source
  int max_eval_depth = 500;                        // of statements and expressions being evaluated (macros)
  int max_value_depth = 100;                       // of lists and dicts in each other
  int64_t max_steps = 10'000'000;                  // nodes evaluated and items visited
  size_t max_output_bytes = size_t{32} << 20;      // of the output, and of any text on the way to it
  size_t max_allocated_bytes = size_t{256} << 20;  // of all texts and lists made in one rendering
  size_t max_repeated_bytes = size_t{1} << 20;     // of 'text' * n, [list] * n and padding
  int64_t max_range = 100'000;                     // items of range(), the bound that jinja2's sandbox has
};

// What is left of the limits in one rendering. Not thread-safe: one per rendering.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  const Limits& limits() const { return limits_; }

  Status use_steps(int64_t count);
  Status use_bytes(size_t count);
  // use_bytes() for a text of `size` bytes, which also may not exceed max_output_bytes.
  Status use_text(size_t size);

 private:
  Limits limits_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
};

// Counts nesting for the length of its scope. ok() must be asked before going deeper.
class DepthGuard {
 public:
  DepthGuard(int& depth, int limit) : depth_(depth), limit_(limit) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  bool ok() const { return depth_ <= limit_; }

 private:
  int& depth_;
  int limit_;
};

}  // namespace butter::jinja
