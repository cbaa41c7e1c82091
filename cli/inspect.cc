// butter inspect: what a model file holds; with --layer-trace, what each layer does with a prompt.
#include "butter/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/quality.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Tensors whose names differ only in the layer's number, and whose type and shape are the same.
struct TensorGroup {
  std::string name;  // "blk.*.attn_q.weight"
  TensorDescription example;
  int64_t count = 0;
  int64_t bytes = 0;
};

// The name with its first number replaced by a star.
std::string pattern_of(const std::string& name) {
  for (size_t at = 0; at < name.size(); ++at) {
    const size_t end = std::min(name.find('.', at), name.size());
    if (end > at && name.find_first_not_of("0123456789", at) >= end)
      return name.substr(0, at) + "*" + name.substr(end);
    at = end;
  }
  return name;
}

std::vector<TensorGroup> group(const std::vector<TensorDescription>& tensors) {
  std::vector<TensorGroup> groups;
  std::map<std::string, size_t> index;
  for (const TensorDescription& tensor : tensors) {
    const std::string name = pattern_of(tensor.name);
    const auto [at, is_new] = index.try_emplace(name + tensor.type + shape_text(tensor.shape), groups.size());
    if (is_new) groups.push_back({name, tensor, 0, 0});
    groups[at->second].count += 1;
    groups[at->second].bytes += tensor.bytes;
  }
  for (TensorGroup& one : groups) {
    if (one.count == 1) one.name = one.example.name;
  }
  return groups;
}

// A layer's row of --layer-trace: what its last op left, and all its ops.
struct LayerTrace {
  double rms = 0;
  double max_abs = 0;
  std::vector<TraceRow> ops;
};

class InspectCommand : public Command {
 public:
  const char* name() const override { return "inspect"; }
  const char* summary() const override { return "architecture, tensors, tokenizer and memory of a model"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    prompt_.declare(arguments);
    arguments.flag("--tensors", tensors_, "list every tensor");
    arguments.flag("--layer-trace", layer_trace_, "run the prompt and show a row per layer");
  }

  int run() override {
    model_ = must(inspect_model(common_.model_name()));
    if (layer_trace_) {
      prompt_.check_one_source();
      check_context(common_);
      trace();
    }
    SequenceOptions options = common_.sequence_options();
    plan_ = must(plan_model(common_.model_name(), options, common_.prefill_rows(), common_.device));
    card_ = find_quality_card(common_.model_name());
    if (common_.json) {
      print_json(as_json());
    } else {
      write_out(as_text());
    }
    return kExitOk;
  }

 private:
  void trace() {
    const auto engine = load_engine(common_, common_.engine_options());
    Sequence sequence = must(engine->make_layer_caches(common_.sequence_options()));
    const std::vector<TraceRow> rows = must(engine->trace(sequence, prompt_.read_tokens(*engine)));
    traces_.resize(model_.layers.size());
    for (const TraceRow& row : rows) {
      if (row.layer < 0 || static_cast<size_t>(row.layer) >= traces_.size()) continue;
      LayerTrace& layer = traces_[static_cast<size_t>(row.layer)];
      layer.ops.push_back(row);
      layer.rms = row.rms;
      layer.max_abs = row.max_abs;
    }
    held_ = sequence.layers();
    position_ = sequence.position();
  }

  const LayerMemory* memory_of(int layer) const {
    const auto& layers = layer_trace_ ? held_ : plan_.layers;
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const LayerMemory& memory) { return memory.layer == layer; });
    return found == layers.end() ? nullptr : &*found;
  }

  // The smaller of the model's window and the user's holds.
  int64_t window_of(const LayerDescription& layer) const {
    const LayerMemory* memory = memory_of(layer.layer);
    return memory != nullptr ? memory->window_size : layer.window_size;
  }

  Json layer_json(const LayerDescription& layer) const {
    const LayerMemory* memory = memory_of(layer.layer);
    Json json = {{"layer", layer.layer},
                 {"mixer", layer.mixer},
                 {"heads", layer.heads},
                 {"kv_heads", layer.kv_heads},
                 {"head_dim", layer.head_dim},
                 {"window", window_of(layer)},
                 {"ffn", layer.ffn},
                 {"ffn_width", layer.ffn_width},
                 {"format", plan_.kv_cache},
                 {"rows", memory ? memory->rows : 0},
                 {"bytes", memory ? memory->bytes : 0}};
    if (!layer_trace_) return json;
    const LayerTrace& trace = traces_[static_cast<size_t>(layer.layer)];
    json["rms"] = trace.rms;
    json["max_abs"] = trace.max_abs;
    json["norms"] = Json::array();
    for (const TraceRow& row : trace.ops) {
      json["norms"].push_back({{"what", row.what}, {"rms", row.rms}, {"max_abs", row.max_abs}});
    }
    return json;
  }

  Json as_json() const {
    const TokenizerDescription& tokenizer = model_.tokenizer;
    Json json = {{"model", model_.name},
                 {"path", model_.path},
                 {"format", model_.format},
                 {"family", model_.family},
                 {"vocabulary", model_.vocabulary},
                 {"hidden", model_.hidden},
                 {"max_positions", model_.max_positions},
                 {"parameters", model_.parameters},
                 {"tied_head", model_.tied_head},
                 {"notes", model_.notes},
                 {"layers", Json::array()},
                 {"tensors", Json::array()},
                 {"tokenizer",
                  {{"present", tokenizer.present},
                   {"vocabulary", tokenizer.vocabulary},
                   {"pre_tokenizer", tokenizer.pre_tokenizer},
                   {"adds_bos", tokenizer.adds_bos},
                   {"bos_id", tokenizer.bos_id},
                   {"end_ids", tokenizer.end_ids},
                   {"has_chat_template", tokenizer.has_chat_template}}},
                 {"file_bytes", model_.file_bytes},
                 {"kv_cache", plan_.kv_cache},
                 {"max_context", plan_.max_context},
                 {"cache_bytes", plan_.total_bytes},
                 {"total_bytes", model_.file_bytes + plan_.total_bytes}};
    if (layer_trace_) json["position"] = position_;
    if (card_) json["quality"] = quality_json();
    for (const LayerDescription& layer : model_.layers) json["layers"].push_back(layer_json(layer));
    for (const TensorDescription& tensor : model_.tensors) {
      json["tensors"].push_back(
          {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
    }
    return json;
  }

  std::string as_text() const {
    std::string text = fmt::format(
        "{}: {} ({}), {} parameters, {} layers, hidden {}, vocabulary {}{}, {} positions\n", model_.name,
        model_.family, model_.format, model_.parameters, model_.layers.size(), model_.hidden,
        model_.vocabulary, model_.tied_head ? " (head tied)" : "", model_.max_positions);
    for (const std::string& note : model_.notes) text += "note: " + note + "\n";
    text += tokenizer_text() + "\n" + (layer_trace_ ? trace_text() : layers_text()) + "\n";
    if (!layer_trace_) text += tensors_text() + "\n";
    text += fmt::format("file {} ({}), {} cache of {} positions {} ({})\n", model_.file_bytes,
                        spoken_bytes(model_.file_bytes), plan_.kv_cache, plan_.max_context, plan_.total_bytes,
                        spoken_bytes(plan_.total_bytes));
    if (card_) text += quality_text();
    return text;
  }

  Json quality_json() const {
    Json json = {{"text", card_->text}, {"command", card_->command}, {"rows", Json::array()}};
    for (const SchemeQuality& row : card_->rows) {
      json["rows"].push_back({{"kv_cache", row.kv_cache}, {"kld_mean", row.kld_mean}, {"top1", row.top1}});
    }
    return json;
  }

  std::string quality_text() const {
    std::string text =
        fmt::format("\nquality against the raw cache, on {} (`butter eval --card`)\n{:<20} {:>9} {:>8}\n",
                    card_->text, "cache", "KLD", "top-1 %");
    for (const SchemeQuality& row : card_->rows) {
      text += fmt::format("{:<20} {:>9} {:>8.2f}\n", row.kv_cache, spoken_kld(row.kld_mean), 100 * row.top1);
    }
    return text;
  }

  std::string tokenizer_text() const {
    const TokenizerDescription& tokenizer = model_.tokenizer;
    if (!tokenizer.present) return "tokenizer: none; prompts are token ids\n";
    return fmt::format(
        "tokenizer: {} tokens, pre-tokenizer {}, {}, a turn ends with {}, {} chat template\n",
        tokenizer.vocabulary, tokenizer.pre_tokenizer,
        tokenizer.adds_bos ? fmt::format("BOS {} first", tokenizer.bos_id) : "no BOS",
        tokenizer.end_ids.empty() ? "nothing" : fmt::format("{}", fmt::join(tokenizer.end_ids, ", ")),
        tokenizer.has_chat_template ? "has a" : "no");
  }

  std::string layers_text() const {
    std::string text = fmt::format("{:>5}  {:<16} {:>5} {:>8} {:>8} {:>8}  {:<12} {:>9}\n", "layer", "mixer",
                                   "heads", "KV heads", "head dim", "window", "ffn", "ffn width");
    for (const LayerDescription& layer : model_.layers) {
      text += fmt::format("{:>5}  {:<16} {:>5} {:>8} {:>8} {:>8}  {:<12} {:>9}\n", layer.layer, layer.mixer,
                          layer.heads, layer.kv_heads, layer.head_dim, window_text(layer), layer.ffn,
                          layer.ffn_width);
    }
    return text;
  }

  std::string window_text(const LayerDescription& layer) const {
    const int64_t window = window_of(layer);
    return window > 0 ? fmt::format("{}", window) : "-";
  }

  std::string trace_text() const {
    std::string text =
        fmt::format("after {} tokens\n{:>5}  {:<10} {:>8} {:<10} {:>8} {:>12} {:>12} {:>12}\n", position_,
                    "layer", "mixer", "window", "format", "rows", "bytes", "rms", "max");
    for (const LayerDescription& layer : model_.layers) {
      const LayerMemory* memory = memory_of(layer.layer);
      const LayerTrace& trace = traces_[static_cast<size_t>(layer.layer)];
      text += fmt::format("{:>5}  {:<10} {:>8} {:<10} {:>8} {:>12} {:>12.5g} {:>12.5g}\n", layer.layer,
                          layer.mixer, window_text(layer), plan_.kv_cache, memory ? memory->rows : 0,
                          memory ? memory->bytes + memory->state_bytes : 0, trace.rms, trace.max_abs);
    }
    return text;
  }

  std::string tensors_text() const {
    std::string text;
    if (tensors_) {
      for (const TensorDescription& tensor : model_.tensors) {
        text += fmt::format("{:<44} {:<17} {:<18} {:>12}\n", tensor.name, tensor.type,
                            shape_text(tensor.shape), tensor.bytes);
      }
      return text;
    }
    text = fmt::format("{:<44} {:>5} {:<17} {:<18} {:>12}\n", "tensors", "count", "type", "shape (out, in)",
                       "bytes");
    for (const TensorGroup& one : group(model_.tensors)) {
      text += fmt::format("{:<44} {:>5} {:<17} {:<18} {:>12}\n", one.name, one.count, one.example.type,
                          shape_text(one.example.shape), one.bytes);
    }
    return text;
  }

  CommonOptions common_;
  PromptArguments prompt_;
  bool tensors_ = false;
  bool layer_trace_ = false;
  ModelDescription model_;
  CachePlan plan_;
  std::vector<LayerTrace> traces_;
  std::vector<LayerMemory> held_;
  int64_t position_ = 0;
  std::optional<QualityCard> card_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace butter::cli
