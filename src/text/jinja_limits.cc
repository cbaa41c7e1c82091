#include "text/jinja_limits.h"

namespace butter::jinja {

Status Budget::use_steps(int64_t count) {
  if (count > limits_.max_steps - steps_) {
    return fail(StatusCode::kLimit, "the template takes more than {} steps (max_steps)", limits_.max_steps);
  }
  steps_ += count;
  return {};
}

Status Budget::use_bytes(size_t count) {
  if (count > limits_.max_allocated_bytes - bytes_) {
    return fail(StatusCode::kLimit,
                "the template makes more than {} bytes of texts and lists (max_allocated_bytes)",
                limits_.max_allocated_bytes);
  }
  bytes_ += count;
  return {};
}

Status Budget::use_text(size_t size) {
  if (size > limits_.max_output_bytes) {
    return fail(StatusCode::kLimit, "the template makes a text of more than {} bytes (max_output_bytes)",
                limits_.max_output_bytes);
  }
  return use_bytes(size);
}

}  // namespace butter::jinja
