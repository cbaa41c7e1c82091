// TracedForward: Engine::forward_all() with a look at every op's rows, and a hand on some (kernels/device.h):
// for tests and comparisons.
#pragma once

#include <functional>
#include <span>

#include "butter/engine.h"
#include "kernels/device.h"

namespace butter {

class TracedForward {
 public:
  using OnLogits = std::function<void(int64_t index, std::span<const float> logits)>;

  static Status run(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens, const TraceFn& trace,
                    const OnLogits& on_logits);
};

}  // namespace butter
