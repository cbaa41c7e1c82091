#include "families/spark.h"

#include "families/dense.h"
#include "families/rope.h"

namespace butter {
namespace {

constexpr int kFull = 0, kSliding = 1;  // rope tables
constexpr double kFullTheta = 5e6, kSlidingTheta = 1e4, kFullPartial = 0.25;

Result<std::vector<RopeTable>> read_hf_ropes(const Attributes& config, int head_dim, int64_t max_positions) {
  BUTTER_ASSIGN(const Attributes parameters, config.get_object("rope_parameters"));
  BUTTER_ASSIGN(const Attributes full, parameters.get_object("full_attention"));
  BUTTER_ASSIGN(const Attributes sliding, parameters.get_object("sliding_attention"));
  std::vector<RopeTable> tables(2);
  BUTTER_ASSIGN(tables[kFull],
                read_hf_rope_object(full, head_dim, {kFullTheta, kFullPartial}, max_positions));
  BUTTER_ASSIGN(tables[kSliding], read_hf_rope_object(sliding, head_dim, {kSlidingTheta, 1}, max_positions));
  return tables;
}

// What config.json may ask for and no released model does.
Status check_supported(const Attributes& config) {
  BUTTER_ASSIGN(const bool gate, config.get_bool_or("headwise_attn_output_gate", true));
  if (!gate) return fail(StatusCode::kUnsupported, "headwise_attn_output_gate is false; true is expected");
  BUTTER_ASSIGN(const std::string mode, config.get_string_or("gate_attn_act_mode", "sigmoid"));
  if (mode != "sigmoid") {
    return fail(StatusCode::kUnsupported, "gate_attn_act_mode is {}; sigmoid is expected",
                config.describe("gate_attn_act_mode"));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    BUTTER_ASSIGN(const bool stated, config.get_bool_or(key, false));
    if (stated) return fail(StatusCode::kUnsupported, "{} is true; false is expected", key);
  }
  return {};
}

Status read_hf_traits(const Attributes& config, DenseConfig& dense) {
  BUTTER_TRY(check_supported(config));
  BUTTER_ASSIGN(dense.ropes, read_hf_ropes(config, dense.head_dim, dense.max_positions));
  return {};
}

Status read_gguf_traits(const FamilySource& source, DenseConfig& dense) {
  dense.activation = Activation::kGelu;
  BUTTER_ASSIGN(RopeTable sliding, read_gguf_sliding_rope(source, dense.head_dim, kSlidingTheta));
  dense.ropes.push_back(std::move(sliding));
  return {};
}

}  // namespace

Result<ModelSpec> spark2_5_spec(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.activation = "gelu";
  defaults.tied = true;
  defaults.rope_theta = kFullTheta;
  defaults.partial_rotary = kFullPartial;
  BUTTER_ASSIGN(DenseConfig config, read_dense(source, defaults));
  BUTTER_TRY(source.gguf() ? read_gguf_traits(source, config) : read_hf_traits(source.config, config));
  const std::string prefix = source.gguf() ? source.model_type + ".attention." : "";
  BUTTER_ASSIGN(const int64_t width,
                source.config.require_int(prefix + "sliding_window", 1, int64_t{1} << 31));
  BUTTER_ASSIGN(const auto sliding, source.gguf() ? read_gguf_sliding_layers(source, config.layers)
                                                  : read_sliding_layers(source.config, config.layers));
  if (sliding.empty()) {
    return fail(StatusCode::kCorrupt, "{} is absent; an entry for each of {} layers is expected",
                source.gguf() ? prefix + "sliding_window_pattern" : "layer_types", config.layers);
  }
  for (const bool slides : sliding) {
    config.windows.push_back(slides ? Window{width, 0} : Window{});
    config.layer_ropes.emplace_back(slides ? kSliding : kFull);
  }
  config.fused_qkv = true;
  config.output_gate = config.heads;
  config.hf_names = {{TensorRole::kEmbedding, "model.embedding"},
                     {TensorRole::kQkv, "self_attn.q_k_v_proj"},
                     {TensorRole::kOutputGate, "self_attn.g_proj"},
                     {TensorRole::kO, "self_attn.out_proj"}};
  return dense_spec(source, config);
}

}  // namespace butter
