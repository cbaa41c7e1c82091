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

}  // namespace butter
