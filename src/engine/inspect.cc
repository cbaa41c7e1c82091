#include "butter/inspect.h"

#include <filesystem>

#include "butter/version.h"
#include "cache/cache_plan.h"
#include "cache/cache_scheme.h"
#include "checkpoint/checkpoint.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "engine/known_models.h"
#include "engine/template_source.h"
#include "engine/tokenizer_source.h"
#include "families/family.h"
#include "kernels/row_format.h"

namespace butter {
namespace {

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu (tanh)";
    case Activation::kSigmoid:
      return "sigmoid";
    case Activation::kRelu:
      return "squared relu";
    case Activation::kClampedSilu:
      return "clamped silu";
  }
  return "";
}

void describe_mixer(const AttentionSpec& attention, LayerDescription& description) {
  description.heads = attention.heads;
  description.kv_heads = attention.kv_heads;
  description.head_dim = attention.head_dim;
  description.window_size = attention.window.max_size;
}
template <typename Recurrent>
void describe_mixer(const Recurrent&, LayerDescription&) {}

const char* mixer_name(const AttentionSpec&) {
  return "attention";
}
const char* mixer_name(const Mamba1Spec&) {
  return "mamba1";
}
const char* mixer_name(const Mamba2Spec&) {
  return "mamba2";
}
const char* mixer_name(const DeltaNetSpec&) {
  return "gated delta rule";
}

void describe_ffn(const GatedFfnSpec& ffn, LayerDescription& description) {
  description.ffn = std::string("gated ") + activation_name(ffn.function.activation);
  description.ffn_width = ffn.width;
}
void describe_ffn(const PlainFfnSpec& ffn, LayerDescription& description) {
  description.ffn = activation_name(Activation::kRelu);
  description.ffn_width = ffn.width;
}
void describe_ffn(const ExpertsSpec& ffn, LayerDescription& description) {
  const bool shared = !std::holds_alternative<std::monostate>(ffn.shared);
  description.ffn = fmt::format("{} of {} experts{}, {}{}", ffn.routing.chosen, ffn.routing.experts,
                                shared ? " and a shared one" : "", ffn.experts.front().gate ? "gated " : "",
                                activation_name(ffn.function.activation));
  description.ffn_width = ffn.width;
}

LayerDescription describe_layer(const LayerSpec& layer, int index) {
  LayerDescription description;
  description.layer = index;
  for (const MixerSpec& mixer : layer.mixers) {
    if (!description.mixer.empty()) description.mixer += " beside ";
    description.mixer += std::visit([](const auto& kind) { return mixer_name(kind); }, mixer.kind);
    std::visit([&](const auto& kind) { describe_mixer(kind, description); }, mixer.kind);
  }
  if (layer.ffn) std::visit([&](const auto& ffn) { describe_ffn(ffn, description); }, *layer.ffn);
  return description;
}

TensorDescription describe_tensor(const TensorEntry& entry) {
  TensorDescription description;
  description.name = entry.name;
  description.type = entry.view.empty() ? "unreadable" : entry.view.type_name();
  for (int i = 0; i < entry.view.shape.rank(); ++i) description.shape.push_back(entry.view.shape[i]);
  description.bytes = static_cast<int64_t>(entry.bytes);
  return description;
}

Result<TokenizerDescription> describe_tokenizer(const Checkpoint& checkpoint) {
  TokenizerDescription description;
  BUTTER_ASSIGN(const auto templates, load_chat_templates(checkpoint));
  description.has_chat_template = templates.usual.has_value();
  BUTTER_ASSIGN(const auto tokenizer, load_tokenizer(checkpoint));
  if (!tokenizer) return description;
  description.present = true;
  description.vocabulary = static_cast<int>(tokenizer->vocab_size());
  description.pre_tokenizer = tokenizer->pre_tokenizer();
  description.adds_bos = tokenizer->adds_bos();
  description.bos_id = tokenizer->bos_id().value_or(-1);
  description.end_ids = tokenizer->end_ids();
  return description;
}

}  // namespace

Result<ModelDescription> inspect_model(const std::string& model) {
  BUTTER_ASSIGN(const std::string path, resolve_model(model));
  BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
  BUTTER_ASSIGN(const ModelSpec spec, make_model_spec(checkpoint));
  ModelDescription description;
  description.path = checkpoint.weights_path();
  description.name = std::filesystem::path(path).filename().string();
  description.format = checkpoint_format_name(checkpoint.format());
  description.family = spec.family;
  description.vocabulary = spec.vocabulary;
  description.hidden = spec.hidden;
  description.max_positions = spec.max_positions;
  description.file_bytes = static_cast<int64_t>(checkpoint.file_bytes());
  description.tied_head = !spec.head.has_value();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    description.layers.push_back(describe_layer(spec.layers[i], static_cast<int>(i)));
  }
  for (const TensorEntry& entry : checkpoint.tensors()) {
    description.tensors.push_back(describe_tensor(entry));
    description.parameters += entry.view.shape.elements();
  }
  BUTTER_ASSIGN(description.tokenizer, describe_tokenizer(checkpoint));
  description.notes = spec.notes;
  return description;
}

Result<std::unique_ptr<const Tokenizer>> load_model_tokenizer(const std::string& model) {
  BUTTER_ASSIGN(const std::string path, resolve_model(model));
  BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
  return load_tokenizer(checkpoint);
}

Result<CachePlan> plan_model(const std::string& model, const SequenceOptions& options, int prefill_rows,
                             const std::string& device) {
  BUTTER_ASSIGN(const std::string path, resolve_model(model));
  BUTTER_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
  BUTTER_ASSIGN(const ModelSpec spec, make_model_spec(checkpoint));
  CacheOptions cache;
  BUTTER_ASSIGN(cache.scheme,
                parse_scheme(options.kv_cache, device == "reference" ? DType::kF32 : spec.kv_dtype));
  if (options.kv_window_size != 0) cache.window = {options.kv_window_size, options.kv_window_keep};
  cache.max_context = options.max_context != 0 ? options.max_context : spec.max_positions;
  cache.prefill_rows = prefill_rows;
  cache.state_snapshots = options.state_snapshots;
  return butter::plan_caches(
      {static_cast<int>(spec.layers.size()), kv_layers(spec), window_classes(spec), state_layers(spec)},
      cache);
}

std::vector<std::string> cache_format_names() {
  return scheme_choices();
}

Result<BuildInfo> build_info() {
  BuildInfo info;
  info.version = kVersion;
#if defined(__clang__)
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "g++ " __VERSION__;
#endif
  BUTTER_ASSIGN(const Isa isa, choose_isa());
  info.isa = isa_name(isa);
  for (Isa available : available_isas()) info.isas.emplace_back(isa_name(available));
  info.cpu = cpu_description();
  info.usable_cpus = usable_cpus();
  info.devices = {"cpu", "reference"};
  return info;
}

}  // namespace butter
