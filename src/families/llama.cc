#include "families/llama.h"

#include "families/dense.h"

namespace butter {
namespace {

Status read_biases(const FamilySource& source, DenseConfig& config) {
  if (source.gguf()) {  // the file says it by having the tensors
    config.qkv_bias = source.has_tensor("blk.0.attn_q.bias");
    config.o_bias = source.has_tensor("blk.0.attn_output.bias");
    config.mlp_bias = source.has_tensor("blk.0.ffn_gate.bias");
    return {};
  }
  BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
  config.o_bias = config.qkv_bias;
  BUTTER_ASSIGN(config.mlp_bias, source.config.get_bool_or("mlp_bias", false));
  return {};
}

}  // namespace

Result<ModelSpec> llama_spec(const FamilySource& source) {
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, DenseDefaults{}));
  BUTTER_TRY(read_biases(source, config));
  config.permuted_qk = source.gguf();
  return dense_spec(source, config);
}

Result<ModelSpec> mistral_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 8;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_TRY(read_biases(source, config));
  config.permuted_qk = source.gguf();
  if (!source.gguf() && !source.config.is_null("sliding_window")) {  // absent is not null here
    BUTTER_ASSIGN(const int64_t window,
                  source.config.require_int_or("sliding_window", 4096, 1, int64_t{1} << 31));
    config.windows.assign(static_cast<size_t>(config.layers), Window{window, 0});
  }
  return dense_spec(source, config);
}

}  // namespace butter
