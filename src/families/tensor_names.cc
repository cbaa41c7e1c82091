#include "families/tensor_names.h"

#include <fmt/format.h>

namespace butter {
namespace {

struct NamePair {
  const char* hf;
  const char* gguf;
};

NamePair names_of(TensorRole role) {
  switch (role) {
    case TensorRole::kPreNorm:
      return {"input_layernorm", "attn_norm"};
    case TensorRole::kQkv:
      return {"self_attn.qkv_proj", "attn_qkv"};
    case TensorRole::kQ:
      return {"self_attn.q_proj", "attn_q"};
    case TensorRole::kK:
      return {"self_attn.k_proj", "attn_k"};
    case TensorRole::kV:
      return {"self_attn.v_proj", "attn_v"};
    case TensorRole::kO:
      return {"self_attn.o_proj", "attn_output"};
    case TensorRole::kOutputGate:
      return {"self_attn.gate_proj", "attn_gate"};
    case TensorRole::kQNorm:
      return {"self_attn.q_norm", "attn_q_norm"};
    case TensorRole::kKNorm:
      return {"self_attn.k_norm", "attn_k_norm"};
    case TensorRole::kMixerPostNorm:
      return {"post_attention_layernorm", "post_attention_norm"};
    case TensorRole::kFfnNorm:
      return {"post_attention_layernorm", "ffn_norm"};
    case TensorRole::kFfnPostNorm:
      return {"post_feedforward_layernorm", "post_ffw_norm"};
    case TensorRole::kGateUp:
      return {"mlp.gate_up_proj", "ffn_up"};
    case TensorRole::kGate:
      return {"mlp.gate_proj", "ffn_gate"};
    case TensorRole::kUp:
      return {"mlp.up_proj", "ffn_up"};
    case TensorRole::kDown:
      return {"mlp.down_proj", "ffn_down"};
    case TensorRole::kEmbedding:
      return {"model.embed_tokens", "token_embd"};
    case TensorRole::kFinalNorm:
      return {"model.norm", "output_norm"};
    case TensorRole::kHead:
      return {"lm_head", "output"};
  }
  return {"", ""};
}

}  // namespace

std::string tensor_name(CheckpointFormat format, TensorRole role, int layer) {
  const NamePair names = names_of(role);
  const bool gguf = format == CheckpointFormat::kGguf;
  if (layer < 0) return gguf ? names.gguf : names.hf;
  return gguf ? fmt::format("blk.{}.{}", layer, names.gguf)
              : fmt::format("model.layers.{}.{}", layer, names.hf);
}

std::string TensorNames::full(const Name& name) const {
  return gguf() ? gguf_prefix_ + name.gguf : hf_prefix_ + name.hf;
}

Shape TensorNames::stored_shape(const std::string& full_name, const Shape& otherwise) const {
  const TensorView* view = source_.checkpoint ? source_.checkpoint->find_tensor(full_name) : nullptr;
  return view != nullptr ? view->shape : otherwise;
}

TensorRef TensorNames::vector(const Name& name, int64_t width) const {
  TensorRef ref;
  ref.name = full(name);
  ref.shape = Shape{width};
  const Shape stored = stored_shape(ref.name, ref.shape);
  if (stored.elements() == width) ref.stored = stored;
  return ref;
}

TensorRef TensorNames::decay(const Name& name, int64_t width) const {
  TensorRef ref = vector(name, width);
  ref.log_decay = !gguf();
  return ref;
}

LinearSpec TensorNames::linear(const Name& name, int out, int in, bool bias) const {
  LinearSpec spec;
  spec.weight.name = full(name) + ".weight";
  spec.weight.shape = Shape{out, in};
  if (!bias) return spec;
  spec.bias = TensorRef{};
  spec.bias->name = full(name) + ".bias";
  spec.bias->shape = Shape{out};
  return spec;
}

LinearSpec TensorNames::rows(const Name& name, int out, int in, int first, int all, bool bias) const {
  LinearSpec spec = linear(name, out, in, bias);
  spec.weight.first_row = first;
  spec.weight.stored = Shape{all, in};
  if (bias) {
    spec.bias->first_row = first;
    spec.bias->stored = Shape{all};
  }
  return spec;
}

NormSpec TensorNames::norm(const Name& name, int width, float eps, bool centred) const {
  NormSpec spec;
  spec.weight = TensorRef{};
  spec.weight->name = full(name) + ".weight";
  spec.weight->shape = Shape{width};
  const Shape stored = stored_shape(spec.weight->name, spec.weight->shape);
  if (stored.elements() == width) spec.weight->stored = stored;
  spec.eps = eps;
  spec.centred = centred;
  return spec;
}

ConvSpec TensorNames::conv(const Name& name, int channels, int taps, bool bias) const {
  ConvSpec spec;
  spec.taps = taps;
  spec.weight.name = full(name) + ".weight";
  spec.weight.shape = Shape{taps, channels};
  spec.weight.stored = gguf() ? Shape{channels, taps} : Shape{channels, 1, taps};
  const Shape stored = stored_shape(spec.weight.name, spec.weight.stored);
  if (stored == Shape{channels, taps, 1} || stored == Shape{channels, taps}) spec.weight.stored = stored;
  spec.weight.transposed = spec.weight.convolution = true;
  if (!bias) return spec;
  spec.bias = TensorRef{};
  spec.bias->name = full(name) + ".bias";
  spec.bias->shape = Shape{channels};
  return spec;
}

std::string find_prefix(const FamilySource& source, std::initializer_list<const char*> prefixes,
                        const std::string& probe) {
  for (const char* prefix : prefixes) {
    if (source.has_tensor(prefix + probe)) return prefix;
  }
  return *prefixes.begin();
}

std::optional<TensorRef> head_or_tied(const FamilySource& source, const std::string& name, const Shape& shape,
                                      bool tied) {
  if (tied || (source.checkpoint != nullptr && !source.has_tensor(name))) return std::nullopt;
  TensorRef ref;
  ref.name = name;
  ref.shape = shape;
  return ref;
}

bool has_mlx_convolution(const FamilySource& source, const std::string& conv) {
  const std::string prefix =
      find_prefix(source, {"model.", "model.language_model.", "language_model.model."}, conv);
  const TensorView* view = source.checkpoint ? source.checkpoint->find_tensor(prefix + conv) : nullptr;
  return view != nullptr && view->shape.rank() == 3 && view->shape[2] == 1 && view->shape[1] != 1;
}

DType raw_kv_dtype(const FamilySource& source, const ModelSpec& spec) {
  for (const TensorRef& ref : {spec.embedding, *spec.final_norm.weight}) {
    const TensorView* view = source.checkpoint ? source.checkpoint->find_tensor(ref.name) : nullptr;
    if (view != nullptr && !dtype_info(view->dtype).quantised)
      return view->dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
  }
  return DType::kF16;
}

}  // namespace butter
