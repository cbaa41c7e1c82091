// What the measurements of butter/eval.h share: the sequences they compare, and how they are stopped.
#pragma once

#include "butter/eval.h"

namespace butter {

inline bool is_cancelled(const EvalControl& control) {
  return control.cancel != nullptr && control.cancel->load();
}

// The options' windows with scheme number s.
inline SequenceOptions scheme_options(const EvalOptions& options, size_t s) {
  SequenceOptions sequence = options.sequence;
  sequence.kv_cache = options.kv_caches[s];
  return sequence;
}

inline Result<Sequence> make_scheme_sequence(Engine& engine, const EvalOptions& options, size_t s) {
  return engine.make_layer_caches(scheme_options(options, s));
}

inline Result<Sequence> make_raw_sequence(Engine& engine, const EvalOptions& options) {
  SequenceOptions sequence = options.sequence;
  sequence.kv_cache = "raw";
  return engine.make_layer_caches(sequence);
}

// The scheme's name and sizes, by the plan.
Result<SchemeQuality> describe_scheme(const Engine& engine, const EvalOptions& options, size_t s);

}  // namespace butter
