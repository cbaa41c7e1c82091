#include "families/experts.h"

#include <fmt/format.h>

#include <array>

namespace butter {
namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxOfAllLayers = 1 << 16;  // each is named in the spec
constexpr int64_t kMaxWidth = 1 << 20;

std::string describe_gating(int64_t number) {
  constexpr std::array kNames = {"softmax", "sigmoid", "softmax of the chosen"};  // Gating's, from 1 on
  if (number < 1 || number > static_cast<int64_t>(kNames.size())) return std::to_string(number);
  return fmt::format("{} ({})", number, kNames[static_cast<size_t>(number - 1)]);
}

Result<ExpertsConfig> read_counts(const Attributes& config, const ExpertKeys& keys,
                                  const ExpertDefaults& defaults) {
  ExpertsConfig experts;
  const char* key = config.kind(keys.experts) != AttributeKind::kAbsent ? keys.experts : keys.other_experts;
  BUTTER_ASSIGN(const int64_t count, config.require_int_or(key, defaults.experts, 0, kMaxExperts));
  experts.routing.experts = static_cast<int>(count);
  if (count == 0) return experts;
  BUTTER_ASSIGN(const int64_t chosen, config.require_int_or(keys.chosen, defaults.chosen, 1, kMaxExperts));
  BUTTER_ASSIGN(const int64_t width, config.require_int_or(keys.width, defaults.width, 1, kMaxWidth));
  BUTTER_ASSIGN(const int64_t shared,
                config.require_int_or(keys.shared_width, defaults.shared_width, 0, kMaxWidth));
  if (chosen < 1 || chosen > count) {
    return fail(StatusCode::kCorrupt, "{}: {} is {} of {} experts; 1 to all of them are expected",
                config.source(), keys.chosen, chosen, count);
  }
  if (width < 1) {
    return fail(StatusCode::kCorrupt, "{}: {} is absent; the width of {} experts is expected",
                config.source(), keys.width, count);
  }
  experts.routing.chosen = static_cast<int>(chosen);
  experts.width = static_cast<int>(width);
  experts.shared_width = static_cast<int>(shared);
  return experts;
}

}  // namespace

Result<ExpertsConfig> read_experts(const FamilySource& source, const ExpertModel& model,
                                   const ExpertKeys& keys, const ExpertDefaults& defaults) {
  const std::string prefix = source.model_type + ".";
  const std::string count = prefix + "expert_count", chosen = prefix + "expert_used_count",
                    width = prefix + "expert_feed_forward_length",
                    shared = prefix + "expert_shared_feed_forward_length";
  const ExpertKeys gguf{count.c_str(), count.c_str(), chosen.c_str(), width.c_str(), shared.c_str()};
  BUTTER_ASSIGN(ExpertsConfig experts, read_counts(source.config, source.gguf() ? gguf : keys, defaults));
  experts.hidden = model.hidden;
  const int64_t in_all = int64_t{experts.routing.experts} * model.layers;
  if (in_all > kMaxOfAllLayers) {
    return fail(StatusCode::kCorrupt, "{}: {} experts in {} layers; at most {} in all are expected",
                source.config.source(), experts.routing.experts, model.layers, kMaxOfAllLayers);
  }
  return experts;
}

Status check_gating(const FamilySource& source, const ExpertsConfig& experts,
                    std::initializer_list<Gating> known) {
  const std::string key = source.model_type + ".expert_gating_func";
  if (!source.gguf() || experts.routing.experts == 0) return {};
  if (source.config.kind(key) == AttributeKind::kAbsent) return {};
  BUTTER_ASSIGN(const int64_t stated, source.config.get_int(key));
  std::string expected;
  for (const Gating gating : known) {
    if (stated == static_cast<int64_t>(gating)) return {};
    expected += (expected.empty() ? "" : " or ") + describe_gating(static_cast<int64_t>(gating));
  }
  return fail(StatusCode::kUnsupported, "{} is {}; {} is expected", key, describe_gating(stated), expected);
}

LinearSpec stacked_rows(const std::string& name, const ExpertsConfig& config, int expert, int out, int in,
                        int first, int rows) {
  LinearSpec spec;
  spec.weight.name = name;
  spec.weight.shape = Shape{out, in};
  spec.weight.stored = Shape{config.routing.experts, rows, in};
  spec.weight.matrix = expert;
  spec.weight.first_row = first;
  return spec;
}

std::vector<ExpertSpec> expert_matrices(const TensorNames& layer, const ExpertNames& names,
                                        const ExpertsConfig& config) {
  const int width = config.width, hidden = config.hidden;
  const std::string each = names.each, stacked = names.stacked;
  const auto full = [&](const std::string& hf, const char* gguf = "") {
    return layer.full({hf.c_str(), gguf});
  };
  const auto whole = [&](const std::string& name, int expert, int out, int in) {
    return stacked_rows(name, config, expert, out, in, 0, out);
  };
  // gate_up_proj, with or without ".weight".
  std::string fused = full(each + "gate_up_proj"), fused_down = full(each + names.down);
  if (layer.source().has_tensor(fused + ".weight")) fused += ".weight", fused_down += ".weight";
  const bool is_fused = layer.source().has_tensor(fused);
  const bool is_stacked = layer.source().has_tensor(full(stacked + names.stacked_up + ".weight"));
  std::vector<ExpertSpec> experts;
  for (int e = 0; e < config.routing.experts; ++e) {
    ExpertSpec expert;
    if (layer.gguf()) {
      if (config.gated) expert.gate = whole(full("", "ffn_gate_exps.weight"), e, width, hidden);
      expert.up = whole(full("", "ffn_up_exps.weight"), e, width, hidden);
      expert.down = whole(full("", "ffn_down_exps.weight"), e, hidden, width);
    } else if (is_fused) {
      expert.gate = stacked_rows(fused, config, e, width, hidden, 0, 2 * width);
      expert.up = stacked_rows(fused, config, e, width, hidden, width, 2 * width);
      expert.down = whole(fused_down, e, hidden, width);
    } else if (is_stacked) {
      if (config.gated) expert.gate = whole(full(stacked + "gate_proj.weight"), e, width, hidden);
      expert.up = whole(full(stacked + names.stacked_up + ".weight"), e, width, hidden);
      expert.down = whole(full(stacked + names.stacked_down + ".weight"), e, hidden, width);
    } else {
      const TensorNames own = layer.within(fmt::format("{}{}.", each, e));
      if (config.gated) expert.gate = own.linear({"gate_proj"}, width, hidden);
      expert.up = own.linear({names.up}, width, hidden);
      expert.down = own.linear({names.down}, hidden, width);
    }
    experts.push_back(std::move(expert));
  }
  return experts;
}

ExpertsSpec experts_spec(const TensorNames& layer, const char* router, const ExpertNames& names,
                         const ExpertsConfig& config) {
  ExpertsSpec spec;
  spec.routing = config.routing;
  spec.width = config.width;
  spec.function = config.function;
  spec.router = layer.linear({router, "ffn_gate_inp"}, config.routing.experts, config.hidden);
  spec.experts = expert_matrices(layer, names, config);
  return spec;
}

GatedFfnSpec shared_expert(const TensorNames& layer, const std::string& hf, const ExpertsConfig& config) {
  GatedFfnSpec spec;
  spec.width = config.shared_width;
  spec.function = config.function;
  const std::string gate = hf + "gate_proj", up = hf + "up_proj", down = hf + "down_proj";
  spec.gate = layer.linear({gate.c_str(), "ffn_gate_shexp"}, spec.width, config.hidden);
  spec.up = layer.linear({up.c_str(), "ffn_up_shexp"}, spec.width, config.hidden);
  spec.down = layer.linear({down.c_str(), "ffn_down_shexp"}, config.hidden, spec.width);
  return spec;
}

}  // namespace butter
