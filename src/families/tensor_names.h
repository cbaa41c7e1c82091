// The standard tensor names of transformers, in Hugging Face and GGUF files (families.md 5.2, 6).
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "families/family.h"

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

// TensorNames: makes references to the tensors of one part of a model (a layer, a mixer) by what they are
// called behind the part's prefix in either kind of file. The source must outlive it.
class TensorNames {
 public:
  struct Name {
    const char* hf = "";
    const char* gguf = "";
  };

  TensorNames(const FamilySource& source, std::string hf_prefix, std::string gguf_prefix)
      : source_(source), hf_prefix_(std::move(hf_prefix)), gguf_prefix_(std::move(gguf_prefix)) {}

  const FamilySource& source() const { return source_; }
  bool gguf() const { return source_.gguf(); }
  // Names of a part of this part in Hugging Face files; GGUF has one prefix a layer.
  TensorNames within(const std::string& hf) const { return {source_, hf_prefix_ + hf, gguf_prefix_}; }

  std::string full(const Name& name) const;
  // Whether the file has a tensor: the name with its suffix.
  bool has(const Name& name) const { return source_.has_tensor(full(name)); }
  // The shape that the file has it in; `otherwise` where it has none.
  Shape stored_shape(const std::string& full_name, const Shape& otherwise) const;

  // As many values as the shape has, in whatever shape they are stored. The suffix is part of the name.
  TensorRef vector(const Name& name, int64_t width) const;
  // a of a recurrence: stored as its negated logarithm in Hugging Face files.
  TensorRef decay(const Name& name, int64_t width) const;
  // ".weight" and, where `bias`, ".bias" of it.
  LinearSpec linear(const Name& name, int out, int in, bool bias = false) const;
  // Rows [first, first + out) of a tensor of `all` rows.
  LinearSpec rows(const Name& name, int out, int in, int first, int all, bool bias = false) const;
  NormSpec norm(const Name& name, int width, float eps, bool centred = false) const;
  // A depthwise convolution: [channels, 1, taps], [channels, taps, 1] (MLX) or [channels, taps] (GGUF).
  ConvSpec conv(const Name& name, int channels, int taps, bool bias) const;

 private:
  const FamilySource& source_;
  std::string hf_prefix_, gguf_prefix_;
};

// What stands before "layers." in the names of a Hugging Face file: the first of the prefixes with which the
// file has `probe`, or the first.
std::string find_prefix(const FamilySource& source, std::initializer_list<const char*> prefixes,
                        const std::string& probe);

// The head's reference, or none where it is tied: a flag that says untied does not hold where there is no
// head tensor.
std::optional<TensorRef> head_or_tied(const FamilySource& source, const std::string& name, const Shape& shape,
                                      bool tied);

// Whether a Hugging Face folder was written by MLX, as a depthwise convolution of it shows: [channels, taps,
// 1] in place of [channels, 1, taps]. `conv`: its name behind what find_prefix() finds, taps other than 1.
bool has_mlx_convolution(const FamilySource& source, const std::string& conv);

// Type of raw KV rows: the checkpoint's own 16-bit type, as its embedding has it, or the final norm where
// that is quantised; fp16 where it has none.
DType raw_kv_dtype(const FamilySource& source, const ModelSpec& spec);

}  // namespace butter
