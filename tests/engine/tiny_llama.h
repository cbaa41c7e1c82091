// TinyLlama: a Llama or Mistral forward pass written for tests, in double, over whole sequences and without a
// cache; which keys a query sees is a function that the test gives. It shares no code with the library.
#pragma once

#include <functional>
#include <span>

#include "support/fixture.h"
#include "support/run_engine.h"

namespace butter {

// Whether a query at p sees the key at k, for k <= p.
using Mask = std::function<bool(int64_t p, int64_t k)>;

// Logits of every position.
Logits tiny_llama(const Fixture& fixture, std::span<const int32_t> ids, const Mask& mask);

}  // namespace butter
