// ModelSpec: a model as data. One decoder (model/decoder.h) walks it; a family (src/families) makes it from a
// configuration and names its tensors. A trait that the spec cannot say becomes a new field or a new kind of
// mixer or feed-forward here, never a question about the family.
//
// Shapes are (out, in). See docs/families.md for the equations; a layer is
//   h = pre_norm(x); x += r · post_norm(Σ mixer(h)); h = ffn_norm(x); x += r · post_norm(ffn(h))
// and the logits are cap · tanh(m · head(final_norm(x)) / cap), with the parts that the spec has.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor_view.h"
#include "kernels/program.h"

namespace butter {

// A tensor of the checkpoint: what it is called there, what shape the model wants, and how it is stored.
//
// Files keep several matrices in one tensor (stacked experts; q, k and v), one behind the other or their rows
// by turns, and some the other way round.
struct TensorRef {
  std::string name;
  Shape shape;
  Shape stored;  // what the file must have; rank 0: `shape`
  // Of the stored tensor's matrices, counted over all dimensions but the last two (or, where a vector is
  // wanted, but the last).
  int64_t matrix = 0;
  bool transposed = false;  // its rows are stored as columns
  // All of the stored tensor is one matrix, its first dimension the rows: convolutions are [channels, 1,
  // taps] or [channels, taps, 1].
  bool convolution = false;
  // Which of its rows: from first_row on all, or of every group_rows the first group_take.
  int64_t first_row = 0;
  int64_t group_rows = 0;
  int64_t group_take = 0;
  // GGUF files of some architectures store q and k rows permuted, head by head, so that rope pairs are
  // adjacent (new row 2i + s = old row s·D/2 + i). The number of heads to undo that for; 0: rows are as they
  // should be.
  int permuted_heads = 0;
  bool log_decay = false;  // of vectors: stored as log(−a), where a is wanted
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
  std::optional<TensorRef> sinks;          // a score a head
};

// Depthwise convolution in front of a recurrent mixer.
struct ConvSpec {
  TensorRef weight;  // [taps][channels]
  std::optional<TensorRef> bias;
  int taps = 0;
};

// What a recurrent mixer gives becomes the output projection's input.
enum class OutputNorm : uint8_t {
  kGateOnly,      // y · silu(z)
  kGateThenNorm,  // norm(y · silu(z))
  kNormThenGate,  // norm(y) · silu(z)
};

struct Mamba2Spec {
  int heads = 0;
  int head_dim = 0;
  int groups = 1;
  int state_size = 0;
  LinearSpec z, xbc, dt;                               // rows of one projection
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};  // of what it gives: z, x, B, C, dt
  ConvSpec conv;
  TensorRef decay, skip, dt_bias;  // [heads]
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  OutputNorm output = OutputNorm::kGateThenNorm;
  NormSpec norm;
  int norm_groups = 1;
  LinearSpec out;

  int width() const { return heads * head_dim; }
};

struct Mamba1Spec {
  int width = 0;
  int state_size = 0;
  int dt_rank = 0;
  LinearSpec x, z;  // rows of one projection
  ConvSpec conv;
  LinearSpec dt_low, b, c;  // rows of one projection
  std::optional<NormSpec> dt_norm, b_norm, c_norm;
  LinearSpec dt;
  TensorRef decay, skip;  // [state_size][width], [width]
  LinearSpec out;
};

// Gated delta rule.
struct DeltaNetSpec {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  std::vector<LinearSpec> qkv;  // one behind the other: all of it, or q, k, v
  LinearSpec z, beta, alpha;
  ConvSpec conv;
  TensorRef decay, dt_bias;  // [value_heads]
  bool tiled = false;        // value head j reads key head j mod key_heads
  NormSpec norm;             // per value head, before the gate
  LinearSpec out;
};

using MixerKind = std::variant<AttentionSpec, Mamba1Spec, Mamba2Spec, DeltaNetSpec>;

struct MixerSpec {
  MixerKind kind;
  float in_multiplier = 1;   // of its normed input
  float out_multiplier = 1;  // of what it gives
};

// multiplier · down(function(gate(x), up(x)))
struct GatedFfnSpec {
  LinearSpec gate, up, down;
  int width = 0;
  GateFunction function;
  float multiplier = 1;
};

// down(relu(up(x))²)
struct PlainFfnSpec {
  LinearSpec up, down;
  int width = 0;
};

struct ExpertSpec {
  std::optional<LinearSpec> gate;  // none: plain, as PlainFfnSpec
  LinearSpec up, down;
};

// Routed experts, and beside them what every token sees. families.md 3.8.
struct ExpertsSpec {
  LinearSpec router;
  std::optional<TensorRef> choice_bias;
  Routing routing;
  std::vector<ExpertSpec> experts;
  int width = 0;  // of an expert
  GateFunction function;
  // Where the routed experts work on a projection of their own.
  std::optional<LinearSpec> latent_in, latent_out;
  std::variant<std::monostate, GatedFfnSpec, PlainFfnSpec> shared;
  std::optional<LinearSpec> shared_gate;  // one row: the shared part is multiplied by its sigmoid
};

using FfnSpec = std::variant<GatedFfnSpec, PlainFfnSpec, ExpertsSpec>;

// A layer may be a mixer alone, a feed-forward alone, or have two mixers side by side, which read the same
// normed input.
struct LayerSpec {
  NormSpec pre_norm;
  std::vector<MixerSpec> mixers;
  std::optional<NormSpec> mixer_post_norm;  // of what the mixers give, before it is added
  NormSpec ffn_norm;
  std::optional<FfnSpec> ffn;
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
  // What is odd about the files as this model and does not stand in the way, a sentence each.
  std::vector<std::string> notes;
};

// Every tensor that the model reads, in order of the layers; one that is cut into parts once a part.
void for_each_tensor(const ModelSpec& spec, const std::function<void(const TensorRef&)>& visit);
// Distinct model windows, in order of appearance: the window classes of the cache.
std::vector<Window> window_classes(const ModelSpec& spec);
// Geometry of every mixer that has a KV cache.
std::vector<KvLayerShape> kv_layers(const ModelSpec& spec);
// Of every mixer that has recurrent state.
std::vector<StateShape> state_layers(const ModelSpec& spec);

}  // namespace butter
