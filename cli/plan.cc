// butter plan: the bytes of a cache before anything is loaded, for every scheme, and what fits into a budget.
#include "butter/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "butter/inspect.h"
#include "butter/quality_card.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/quality.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

constexpr int64_t kPageRows = 64;  // a context is priced in whole pages

// What a budget holds of one scheme.
struct Fit {
  int64_t sessions = 0;  // of the context asked for
  int64_t context = 0;   // of the number of sessions asked for; 0: not one page
};

class PlanCommand : public Command {
 public:
  const char* name() const override { return "plan"; }
  const char* summary() const override { return "the bytes of the cache, from the file's header alone"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    arguments.integer("--sessions", sessions_, {1, 1 << 20}, "sequences at the same time (default: 1)");
    arguments.bytes("--budget", budget_, "bytes for caches, such as 8GiB: says what fits");
  }

  int run() override {
    model_ = must(inspect_model(common_.model_name()));
    warn_about_length();
    const bool chosen =
        !common_.kv_cache.empty() || !common_.key_format.empty() || !common_.value_format.empty();
    const std::vector<std::string> schemes = chosen ? std::vector{common_.scheme()} : cache_format_names();
    std::vector<CachePlan> plans;
    for (const std::string& scheme : schemes) {
      plans.push_back(must(plan(scheme, common_.max_context)));
      check_sessions(plans.back());
    }
    card_ = find_quality_card(common_.model_name());
    if (common_.json) {
      print_as_json(plans);
    } else {
      print_as_text(plans);
    }
    return kExitOk;
  }

 private:
  Result<CachePlan> plan(const std::string& scheme, int64_t context) const {
    SequenceOptions options = common_.sequence_options();
    options.kv_cache = scheme;
    options.max_context = context;
    return plan_model(common_.model_name(), options, common_.prefill_rows(), common_.device);
  }

  // So that sums of bytes stay within 63 bits.
  void check_sessions(const CachePlan& plan) const {
    constexpr int kMostBits = 61;
    const int64_t bytes = std::max(plan.total_bytes, plan.raw_bytes);
    if (bytes <= (int64_t{1} << kMostBits) / sessions_) return;
    refuse("--sessions is {}, of caches of {} bytes; at most 2^{} bytes are counted", sessions_, bytes,
           kMostBits);
  }

  // What the model's quality card says of the scheme, or null.
  const SchemeQuality* quality_of(const CachePlan& plan) const {
    return card_ ? card_->find(plan.kv_cache) : nullptr;
  }

  void warn_about_length() const {
    if (common_.max_context > model_.max_positions) {
      note(fmt::format("note: {} was made for {} positions; --max-context is {}", model_.name,
                       model_.max_positions, common_.max_context));
    }
  }

  // The longest context whose cache takes at most `bytes`: bytes grow with the context, a page at a time.
  int64_t longest_context(const std::string& scheme, int64_t bytes) const {
    int64_t fits = 0, fails = model_.max_positions / kPageRows + 1;
    while (fails - fits > 1) {
      const int64_t middle = fits + (fails - fits) / 2;
      const auto planned = plan(scheme, middle * kPageRows);
      (planned && planned->total_bytes <= bytes ? fits : fails) = middle;
    }
    return fits * kPageRows;
  }

  Fit fit(const CachePlan& plan) const {
    return {plan.total_bytes > 0 ? budget_ / plan.total_bytes : 0,
            longest_context(plan.kv_cache, budget_ / sessions_)};
  }

  void print_as_json(const std::vector<CachePlan>& plans) const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CachePlan& plan : plans) {
      nlohmann::ordered_json row = {{"kv_cache", plan.kv_cache},
                                    {"sealed_bytes", plan.sealed_bytes * sessions_},
                                    {"open_bytes", plan.open_bytes * sessions_},
                                    {"pinned_bytes", plan.pinned_bytes * sessions_},
                                    {"centre_bytes", plan.centre_bytes * sessions_},
                                    {"recurrent_bytes", plan.recurrent_bytes * sessions_},
                                    {"snapshot_bytes", plan.snapshot_bytes * sessions_},
                                    {"total_bytes", plan.total_bytes * sessions_},
                                    {"raw_bytes", plan.raw_bytes * sessions_},
                                    {"ratio_sealed", plan.ratio_sealed},
                                    {"ratio_at_context", plan.ratio_at_context},
                                    {"bytes_per_token", plan.bytes_per_token},
                                    {"prefill_bytes", plan.prefill_bytes}};
      if (const SchemeQuality* quality = quality_of(plan)) row["kld_mean"] = quality->kld_mean;
      if (budget_ > 0) {
        const Fit found = fit(plan);
        row["fits_sessions"] = found.sessions;
        row["fits_context"] = found.context;
      }
      for (const LayerMemory& layer : plan.layers) {
        row["layers"].push_back({{"layer", layer.layer},
                                 {"kv_heads", layer.kv_heads},
                                 {"key_dim", layer.key_dim},
                                 {"value_dim", layer.value_dim},
                                 {"window_size", layer.window_size},
                                 {"rows", layer.rows},
                                 {"bytes", layer.bytes},
                                 {"state_bytes", layer.state_bytes}});
      }
      rows.push_back(std::move(row));
    }
    print_json({{"model", model_.name},
                {"max_context", plans.front().max_context},
                {"sessions", sessions_},
                {"file_bytes", model_.file_bytes},
                {"schemes", std::move(rows)}});
  }

  void print_as_text(const std::vector<CachePlan>& plans) const {
    std::string text = fmt::format("{} ({}), {} in the file; cache of {} positions, {} session{}\n\n",
                                   model_.name, model_.family, spoken_bytes(model_.file_bytes),
                                   plans.front().max_context, sessions_, sessions_ == 1 ? "" : "s");
    text += layer_table(plans.front());
    text += fmt::format("\n{:<20} {:>14} {:>10} {:>10} {:>10} {:>12} {:>8} {:>8}\n", "scheme", "bytes in all",
                        "", "sealed", "open", "a token", "sealed x", "all x");
    if (card_) text.insert(text.size() - 1, fmt::format(" {:>9}", "KLD"));
    for (const CachePlan& plan : plans) {
      text +=
          fmt::format("{:<20} {:>14} {:>10} {:>10} {:>10} {:>12} {:>8.2f} {:>8.2f}\n", plan.kv_cache,
                      plan.total_bytes * sessions_, spoken_bytes(plan.total_bytes * sessions_),
                      spoken_bytes(plan.sealed_bytes * sessions_), spoken_bytes(plan.open_bytes * sessions_),
                      plan.bytes_per_token, plan.ratio_sealed, plan.ratio_at_context);
      if (!card_) continue;
      const SchemeQuality* quality = quality_of(plan);
      text.insert(text.size() - 1,
                  fmt::format(" {:>9}", quality != nullptr ? spoken_kld(quality->kld_mean) : "-"));
    }
    if (card_) text += fmt::format("KLD against the raw cache, on {} (`butter eval --card`)\n", card_->text);
    if (plans.front().recurrent_bytes > 0) {
      text += fmt::format("of them {} are recurrent state, and {} snapshots of it, whatever the context\n",
                          spoken_bytes(plans.front().recurrent_bytes * sessions_),
                          spoken_bytes(plans.front().snapshot_bytes * sessions_));
    }
    if (plans.front().prefill_bytes > 0) {
      text +=
          fmt::format("and {} a session while a prompt is read\n", spoken_bytes(plans.front().prefill_bytes));
    }
    if (budget_ > 0) text += budget_table(plans);
    write_out(text);
  }

  // Layers that are alike, and follow one another, share a line.
  static std::string layer_table(const CachePlan& plan) {
    std::string text =
        fmt::format("{:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>14} {:>14}\n", "layers", "KV heads", "key dim",
                    "val dim", "window", "rows", "bytes each", "state each");
    for (size_t first = 0, next = 0; first < plan.layers.size(); first = next) {
      const LayerMemory& layer = plan.layers[first];
      const auto alike = [&](const LayerMemory& other) {
        return other.kv_heads == layer.kv_heads && other.key_dim == layer.key_dim &&
               other.value_dim == layer.value_dim && other.window_size == layer.window_size &&
               other.rows == layer.rows && other.bytes == layer.bytes &&
               other.state_bytes == layer.state_bytes && other.layer - layer.layer == &other - &layer;
      };
      while (next < plan.layers.size() && alike(plan.layers[next])) ++next;
      const int last = plan.layers[next - 1].layer;
      const std::string range =
          last == layer.layer ? fmt::format("{}", last) : fmt::format("{}-{}", layer.layer, last);
      const std::string window = layer.window_size > 0 ? fmt::format("{}", layer.window_size) : "-";
      text += fmt::format("{:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>14} {:>14}\n", range, layer.kv_heads,
                          layer.key_dim, layer.value_dim, window, layer.rows, layer.bytes, layer.state_bytes);
    }
    return text;
  }

  std::string budget_table(const std::vector<CachePlan>& plans) const {
    std::string text =
        fmt::format("\n{} for caches hold{}\n", spoken_bytes(budget_), budget_ > 0 ? "" : " nothing");
    for (const CachePlan& plan : plans) {
      const Fit found = fit(plan);
      const std::string context =
          found.context == 0 ? "nothing of " : fmt::format("{} positions for ", found.context);
      text += fmt::format("{:<20} {} session{} of {} positions, or {}{} session{}\n", plan.kv_cache,
                          found.sessions, found.sessions == 1 ? "" : "s", plan.max_context, context,
                          sessions_, sessions_ == 1 ? "" : "s");
    }
    return text;
  }

  CommonOptions common_;
  int64_t sessions_ = 1;
  int64_t budget_ = 0;
  ModelDescription model_;
  std::optional<QualityCard> card_;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
  return std::make_unique<PlanCommand>();
}

}  // namespace butter::cli
