#include "families/gpt_oss.h"

#include "families/dense.h"
#include "families/experts.h"

namespace butter {
namespace {

struct GptOssConfig {
  DenseConfig dense;
  ExpertsConfig experts;
};

// Even layers slide, unless layer_types says otherwise.
Result<std::vector<bool>> read_sliding(const FamilySource& source, int layers) {
  if (!source.gguf()) {
    BUTTER_ASSIGN(const auto stated, read_sliding_layers(source.config, layers));
    if (!stated.empty()) return stated;
  }
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) sliding.push_back(i % 2 == 0);
  return sliding;
}

Result<GptOssConfig> read_config(const FamilySource& source) {
  DenseDefaults defaults;
  defaults.kv_heads = 8;
  defaults.head_dim = 64;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 150000;
  defaults.truncate_yarn = false;
  defaults.experts_only = true;
  GptOssConfig config;
  BUTTER_ASSIGN(config.dense, read_dense(source, defaults));
  const Attributes& attributes = source.config;
  const std::string window =
      source.gguf() ? source.model_type + ".attention.sliding_window" : "sliding_window";
  BUTTER_ASSIGN(const int64_t width, attributes.require_int_or(window, 128, 1, int64_t{1} << 31));
  BUTTER_ASSIGN(const auto sliding, read_sliding(source, config.dense.layers));
  for (const bool slides : sliding) config.dense.windows.push_back(slides ? Window{width, 0} : Window{});
  BUTTER_ASSIGN(config.dense.qkv_bias, attributes.get_bool_or("attention_bias", true));
  config.dense.o_bias = config.dense.qkv_bias;
  config.dense.gguf_names = {{TensorRole::kFfnNorm, "post_attention_norm"}};

  ExpertKeys keys;
  keys.experts = "num_local_experts";
  keys.other_experts = "num_experts";
  if (attributes.kind(keys.chosen) == AttributeKind::kAbsent) keys.chosen = "experts_per_token";
  keys.width = "intermediate_size";
  BUTTER_ASSIGN(config.experts, read_experts(source, {config.dense.hidden, config.dense.layers}, keys,
                                             {32, 4, config.dense.ffn, 0}));
  if (config.experts.routing.experts == 0) {
    return fail(StatusCode::kCorrupt, "{}: {} is 0; at least one expert is expected", attributes.source(),
                keys.experts);
  }
  BUTTER_TRY(check_gating(source, config.experts, {Gating::kSoftmaxOfChosen}));
  config.experts.routing.score = RouterScore::kSoftmaxOfBest;
  BUTTER_ASSIGN(const double limit, attributes.require_float_or("swiglu_limit", 7, 0, 1e9));
  BUTTER_ASSIGN(const double alpha, attributes.require_float_or("swiglu_alpha", 1.702, -1e9, 1e9));
  config.experts.function = Activation::kClampedSilu;
  config.experts.function.limit = static_cast<float>(limit);
  config.experts.function.alpha = static_cast<float>(alpha);
  return config;
}

// A bias of one expert, of [experts][values]; `step` 2: every other value from `first` on.
TensorRef expert_bias(const std::string& name, const ExpertsConfig& config, int expert, int width, int first,
                      int step) {
  TensorRef ref;
  ref.name = name;
  ref.shape = Shape{width};
  ref.stored = Shape{config.routing.experts, width * step};
  ref.matrix = expert;
  ref.first_row = first;
  if (step > 1) {
    ref.group_rows = step;
    ref.group_take = 1;
  }
  return ref;
}

// Whether the file's experts are FP4 blocks: those run along what an expert reads, so that rows are outputs.
bool has_blocks(const TensorNames& names) {
  const Checkpoint* checkpoint = names.source().checkpoint;
  const TensorView* view =
      checkpoint ? checkpoint->find_tensor(names.full({"mlp.experts.gate_up_proj"})) : nullptr;
  return view != nullptr && view->dtype == DType::kMLX;
}

// One expert as the original files have it: gate and up by turns, and the matrices of bf16 files the other
// way round.
ExpertSpec original_expert(const TensorNames& names, const ExpertsConfig& config, int e) {
  const int width = config.width, hidden = config.hidden, experts = config.routing.experts;
  const TensorNames own = names.within("mlp.experts.");
  const bool turned = !has_blocks(names);
  const auto stored = [&](int out, int in) {
    return turned ? Shape{experts, in, out} : Shape{experts, out, in};
  };
  const auto half = [&](int first) {
    LinearSpec spec = stacked_rows(own.full({"gate_up_proj"}), config, e, width, hidden, first, width);
    spec.weight.stored = stored(2 * width, hidden);
    spec.weight.transposed = turned;
    spec.weight.group_rows = 2;
    spec.weight.group_take = 1;
    spec.bias = expert_bias(own.full({"gate_up_proj_bias"}), config, e, width, first, 2);
    return spec;
  };
  ExpertSpec expert;
  expert.gate = half(0);
  expert.up = half(1);
  expert.down = stacked_rows(own.full({"down_proj"}), config, e, hidden, width, 0, hidden);
  expert.down.weight.stored = stored(hidden, width);
  expert.down.weight.transposed = turned;
  expert.down.bias = expert_bias(own.full({"down_proj_bias"}), config, e, hidden, 0, 1);
  return expert;
}

// Stacked and in order, with biases beside them: MLX and GGUF files.
std::vector<ExpertSpec> ordered_experts(const TensorNames& names, const ExpertsConfig& config) {
  ExpertNames stacked;
  stacked.each = "mlp.experts.each.";
  stacked.stacked = "mlp.experts.";
  std::vector<ExpertSpec> experts = expert_matrices(names, stacked, config);
  for (int e = 0; e < config.routing.experts; ++e) {
    ExpertSpec& expert = experts[static_cast<size_t>(e)];
    expert.gate->bias = expert_bias(names.full({"mlp.experts.gate_proj.bias", "ffn_gate_exps.bias"}), config,
                                    e, config.width, 0, 1);
    expert.up.bias = expert_bias(names.full({"mlp.experts.up_proj.bias", "ffn_up_exps.bias"}), config, e,
                                 config.width, 0, 1);
    expert.down.bias = expert_bias(names.full({"mlp.experts.down_proj.bias", "ffn_down_exps.bias"}), config,
                                   e, config.hidden, 0, 1);
  }
  return experts;
}

ExpertsSpec experts_of(const TensorNames& names, const ExpertsConfig& config) {
  ExpertsSpec spec;
  spec.routing = config.routing;
  spec.width = config.width;
  spec.function = config.function;
  spec.router = names.linear({"mlp.router", "ffn_gate_inp"}, config.routing.experts, config.hidden, true);
  if (names.gguf() || names.has({"mlp.experts.gate_proj.weight"})) {
    spec.experts = ordered_experts(names, config);
    return spec;
  }
  for (int e = 0; e < config.routing.experts; ++e) spec.experts.push_back(original_expert(names, config, e));
  return spec;
}

}  // namespace

Result<ModelSpec> gpt_oss_spec(const FamilySource& source) {
  BUTTER_ASSIGN(const GptOssConfig config, read_config(source));
  return dense_spec(source, config.dense, [&](const TensorNames& names, int, LayerSpec& spec) -> Status {
    auto& attention = std::get<AttentionSpec>(spec.mixers[0].kind);
    attention.sinks = names.vector({"self_attn.sinks", "attn_sinks.weight"}, config.dense.heads);
    spec.ffn = experts_of(names, config.experts);
    return {};
  });
}

}  // namespace butter
