// The standard tensor names of transformers, in Hugging Face and GGUF files (families.md 5.2, 6).
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace butter {

enum class TensorRole {
  kPreNorm,
  kQkv,  // q, k and v rows in one tensor
  kQ,
  kK,
  kV,
  kO,
  kOutputGate,
  kQNorm,
  kKNorm,
  kMixerPostNorm,
  kFfnNorm,
  kFfnPostNorm,
  kGateUp,  // gate rows, then up rows
  kGate,
  kUp,
  kDown,  // of a layer
  kEmbedding,
  kFinalNorm,
  kHead,  // of the model
};

// "model.layers.3.self_attn.q_proj" or "blk.3.attn_q": the name without ".weight" or ".bias".
std::string tensor_name(CheckpointFormat format, TensorRole role, int layer = -1);

}  // namespace butter
