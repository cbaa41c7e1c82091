// ModelSpec: a model as data. One decoder (model/decoder.h) walks it; a family (src/families) makes it from a
// configuration and names its tensors. A trait that the spec cannot say becomes a new field or a new kind of
// mixer or feed-forward here, never a question about the family.
//
// Shapes are (out, in). See docs/families.md for the equations; a layer is
//   h = pre_norm(x); x += r · post_norm(mixer(h)); h = ffn_norm(x); x += r · post_norm(ffn(h))
// and the logits are cap · tanh(m · head(final_norm(x)) / cap), with the parts that the spec has.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor_view.h"
#include "kernels/program.h"

namespace butter {

// A tensor of the checkpoint: what it is called there and what shape the configuration implies.
struct TensorRef {
  std::string name;
  Shape shape;
  // GGUF files of some architectures store q and k rows permuted, head by head, so that rope pairs are
  // adjacent (new row 2i + s = old row s·D/2 + i). The number of heads to undo that for; 0: rows are as they
  // should be.
  int permuted_heads = 0;
  // Where several matrices are stored as one, above one another: the first row of this one, and how many rows
  // all of them have. 0: the tensor is this one alone.
  int64_t first_row = 0;
  int64_t stored_rows = 0;
};

struct NormSpec {
  std::optional<TensorRef> weight;  // none: normalise only
  float eps = 1e-6f;
  bool centred = false;  // multiply by 1 + w
};

struct LinearSpec {
  TensorRef weight;
  std::optional<TensorRef> bias;
};

struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  LinearSpec q, k, v, o;
  // What attention gives is multiplied by the sigmoid of this, of the layer's normed input: a value a channel
  // or, with as many rows as heads, a value a head.
  std::optional<LinearSpec> gate;
  std::optional<NormSpec> q_norm, k_norm;  // per head, weight shared by all heads, before rope
  std::optional<int> rope_table;           // index into ModelSpec::rope_tables; none: no rotation
  float scale = 1;                         // of q·k
  Window window;                           // the model's own; max_size 0: none
};

using MixerSpec = std::variant<AttentionSpec>;

// down(act(gate(x)) · up(x))
struct GatedFfnSpec {
  LinearSpec gate, up, down;
  int width = 0;
  Activation activation = Activation::kSilu;
};

using FfnSpec = std::variant<GatedFfnSpec>;

struct LayerSpec {
  NormSpec pre_norm;
  MixerSpec mixer;
  std::optional<NormSpec> mixer_post_norm;  // of what the mixer gives, before it is added
  NormSpec ffn_norm;
  FfnSpec ffn;
  std::optional<NormSpec> ffn_post_norm;
  float residual_multiplier = 1;  // of both branches
};

struct ModelSpec {
  std::string family;  // for people: "llama"
  int vocabulary = 0;
  int hidden = 0;
  int64_t max_positions = 0;  // as advertised
  TensorRef embedding;
  float embedding_scale = 1;
  std::optional<NormSpec> embedding_norm;  // of scaled embeddings
  std::optional<TensorRef> head;           // none: tied to the embedding
  NormSpec final_norm;
  float logit_multiplier = 1;
  float logit_cap = 0;  // 0: none
  std::vector<RopeTable> rope_tables;
  std::vector<LayerSpec> layers;
  DType kv_dtype = DType::kF16;  // of raw rows: the checkpoint's 16-bit type
};

// Distinct model windows, in order of appearance: the window classes of the cache.
std::vector<Window> window_classes(const ModelSpec& spec);
// Geometry of every layer that has a KV cache.
std::vector<KvLayerShape> kv_layers(const ModelSpec& spec);

}  // namespace butter
