#include "families/qwen.h"

#include "families/dense.h"

namespace butter {

Result<ModelSpec> qwen2_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 32;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  config.qkv_bias = true;
  BUTTER_ASSIGN(config.windows, read_optional_windows(source, config.layers));
  return dense_spec(source, config);
}

Result<ModelSpec> qwen3_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.head_dim = 128;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_ASSIGN(config.qkv_bias, source.config.get_bool_or("attention_bias", false));
  config.o_bias = config.qkv_bias;
  config.qk_norm = true;
  BUTTER_ASSIGN(config.windows, read_optional_windows(source, config.layers));
  return dense_spec(source, config);
}

}  // namespace butter
