// butter eval: what cache schemes cost on the user's model and text, against the raw cache.
#include "butter/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "butter/inspect.h"
#include "butter/quality_card.h"
#include "cli/build_commit.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/quality.h"
#include "cli/sample_text.h"
#include "cli/scheme_list.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultNeedles = 200;
constexpr int64_t kDefaultContext = 2048;  // of needles
constexpr int64_t kAttentionWindows = 3;   // of --attention-error: one of each sample text

std::string joined_names(const std::vector<NamedText>& texts) {
  std::string names;
  for (const NamedText& text : texts) names += (names.empty() ? "" : ", ") + text.name;
  return names;
}

// A figure of a table, or a dash where it was not measured.
std::string figure(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

std::string needle_text(const NeedleScore& score) {
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * score.share(), 100 * score.low(), 100 * score.high());
}

Json needle_json(const NeedleScore& score) {
  Json json = {{"asked", score.asked},   {"right", score.right}, {"share", score.share()},
               {"low", score.low()},     {"high", score.high()}, {"context_tokens", score.context_tokens},
               {"depths", Json::array()}};
  for (const auto& depth : score.depths)
    json["depths"].push_back({{"asked", depth.asked}, {"right", depth.right}});
  return json;
}

class EvalCommand : public Command {
 public:
  const char* name() const override { return "eval"; }
  const char* summary() const override { return "what cache schemes cost in quality, against the raw cache"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    arguments.text("--text", source_, "a UTF-8 file, or sample: the texts that come with Butter (default)",
                   "FILE");
    arguments.integer("--windows", windows_, {1, 1 << 20}, "windows of the text that are read (default: 6)");
    arguments.integer("--window-tokens", window_tokens_, {2, kMaxContextLimit},
                      "tokens of a window (default: 2048, or what the model advertises)");
    arguments.integer("--step-tokens", options_.step_tokens, {0, 1 << 20},
                      "tokens of a step; 1 reads as decode does (default: 0, as many as fit)");
    arguments.optional_integer("--needle", needles_, kDefaultNeedles, {1, 1 << 20},
                               "also ask for N facts hidden in a long prompt (default N: 200)");
    arguments.integer("--needle-context", needle_context_, {256, kMaxContextLimit},
                      "tokens of that prompt (default: 2048, or what the model advertises)");
    arguments.flag("--attention-error", attention_,
                   "also the error of each layer's attention, inputs being exact");
    arguments.flag("--card", card_, "keep the table beside the model, for inspect and plan");
  }

  int run() override {
    options_.sequence = common_.sequence_options();
    options_.sequence.max_context = 0;  // what the engine is loaded for
    read_schemes();
    texts_ = read_eval_texts(source_);
    fit_to_model();
    if (card_) must(quality_card_path(common_.model_name()));  // before the work
    make_windows();
    warn_about_length();
    load();
    measure();
    if (complete_ && needles_) probe();
    if (complete_ && attention_) compare_attention();
    common_.json ? print_as_json() : print_as_text();
    if (complete_ && card_) write_card();
    if (output_failed()) return kExitOk;
    return interrupted() ? interrupt_exit_status() : kExitOk;
  }

 private:
  // Without --kv-cache, every format there is. The raw cache stands first, to be compared with.
  void read_schemes() {
    const bool chosen =
        !common_.kv_cache.empty() || !common_.key_format.empty() || !common_.value_format.empty();
    std::vector<std::string> schemes = chosen ? split_schemes(common_.scheme()) : cache_format_names();
    const auto raw = std::find(schemes.begin(), schemes.end(), "raw");
    if (raw != schemes.end()) schemes.erase(raw);
    schemes.insert(schemes.begin(), "raw");
    for (const std::string& scheme : schemes) {
      SequenceOptions sequence = options_.sequence;
      sequence.kv_cache = scheme;
      must(plan_model(common_.model_name(), sequence, 512, common_.device));
    }
    options_.kv_caches = std::move(schemes);
  }

  // What was not given is as long as the model takes.
  void fit_to_model() {
    const ModelDescription model = must(inspect_model(common_.model_name()));
    if (!model.tokenizer.present) {
      refuse("{} has no tokenizer, which a text needs to be read", model.name);
    }
    const int64_t most = model.max_positions > 0 ? model.max_positions : kDefaultContext;
    if (window_tokens_ == 0) window_tokens_ = std::min(kDefaultContext, most);
    if (needle_context_ == 0) needle_context_ = std::min(kDefaultContext, most);
    longest_made_for_ = most;
  }

  void warn_about_length() const {
    for (const int64_t asked : {window_tokens_, needles_ ? needle_context_ : 0}) {
      if (asked > longest_made_for_ && common_.kv_window_size == 0) {
        note(fmt::format("note: the model was made for {} positions; {} are measured", longest_made_for_,
                         asked));
      }
    }
  }

  void make_windows() {
    const auto tokenizer = must(load_model_tokenizer(common_.model_name()));
    windows_of_text_ = must(cut_windows(*tokenizer, texts_, windows_, window_tokens_));
  }

  void load() {
    EngineOptions options = common_.engine_options();
    options.precise = true;
    options.max_context = std::max(
        {common_.max_context, window_tokens_, needles_ ? needle_context_ : 0, common_.kv_window_size});
    options.logit_rows = eval_chunk_rows(must(inspect_model(common_.model_name())).vocabulary);
    engine_ = load_engine(common_, options);
    options_.control.cancel = &interrupted();
  }

  // The raw cache is every comparison's other side: it is measured against itself where it is all that was
  // asked for, and else said to be what it is.
  void measure() {
    ProgressBar bar("reading", ProgressBar::Unit::kTokens);
    options_.control.progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    QualityReport report = must(measure_quality(*engine_, windows_of_text_, without_raw()));
    complete_ = report.complete;
    rows_ = std::move(report.rows);
    if (options_.kv_caches.size() > 1) rows_.insert(rows_.begin(), raw_row());
  }

  EvalOptions without_raw() const {
    EvalOptions others = options_;
    if (others.kv_caches.size() > 1) others.kv_caches.erase(others.kv_caches.begin());
    return others;
  }

  SchemeQuality raw_row() const {
    const SchemeQuality& other = rows_.front();
    SequenceOptions sequence = options_.sequence;
    sequence.kv_cache = "raw";
    const double bits = other.bits_per_value * other.ratio_sealed;
    const double exact = other.positions > 0 ? 0 : NAN;  // a distance to itself
    return {"raw", other.positions, bits, 1, exact, exact, exact + 1, other.ppl_raw, other.ppl_raw, {}};
  }

  void probe() {
    ProgressBar bar("asking", ProgressBar::Unit::kQuestions);
    options_.control.progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    const NeedleOptions needles{*needles_, needle_context_, common_.seed};
    const NeedleReport report = must(probe_needles(*engine_, texts_, needles, options_));
    complete_ = report.complete;
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].needle = report.scores[i];
  }

  void compare_attention() {
    ProgressBar bar("comparing layers", ProgressBar::Unit::kTokens);
    options_.control.progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    const auto count = std::min<size_t>(windows_of_text_.size(), kAttentionWindows);
    const AttentionReport report =
        must(measure_attention_error(*engine_, std::span(windows_of_text_).first(count), without_raw()));
    complete_ = report.complete;
    attention_rows_ = report.rows;
  }

  void write_card() const {
    QualityCard card;
    card.text = joined_names(texts_);
    card.text_hash = text_fingerprint(texts_);
    card.version = must(build_info()).version;
    card.command = command_line();
    card.rows = rows_;
    const std::string path = must(write_quality_card(common_.model_name(), card));
    if (!common_.json) note(fmt::format("the table is kept in {}", path));
  }

  std::string command_line() const {
    std::string line = fmt::format(
        "butter eval -m {} --kv-cache {} --text {} --windows {} --window-tokens {}", common_.model_name(),
        fmt::join(options_.kv_caches, ","), source_, windows_, window_tokens_);
    if (options_.step_tokens > 0) line += fmt::format(" --step-tokens {}", options_.step_tokens);
    if (common_.kv_window_size > 0) {
      line += fmt::format(" --kv-window-size {} --kv-window-keep {}", common_.kv_window_size,
                          common_.kv_window_keep);
    }
    if (needles_) {
      line +=
          fmt::format(" --needle {} --needle-context {} --seed {}", *needles_, needle_context_, common_.seed);
    }
    return line;
  }

  void print_as_json() const {
    Json json = {{"model", engine_->info().name}, {"machine", must(build_info()).cpu},
                 {"commit", build_commit()},      {"command", command_line()},
                 {"text", joined_names(texts_)},  {"complete", complete_},
                 {"rows", Json::array()}};
    for (const SchemeQuality& row : rows_) {
      json["rows"].push_back({{"kv_cache", row.kv_cache},
                              {"positions", row.positions},
                              {"bits_per_value", row.bits_per_value},
                              {"ratio_sealed", row.ratio_sealed},
                              {"kld_mean", row.kld_mean},
                              {"kld_p99", row.kld_p99},
                              {"top1", row.top1},
                              {"ppl", row.ppl},
                              {"ppl_raw", row.ppl_raw},
                              {"needle", row.needle ? needle_json(*row.needle) : Json()}});
    }
    if (attention_) {
      json["attention_error"] = Json::array();
      for (const AttentionErrors& row : attention_rows_) {
        json["attention_error"].push_back({{"kv_cache", row.kv_cache}, {"layers", row.layers}});
      }
    }
    print_json(json);
  }

  void print_as_text() const {
    const ModelInfo& info = engine_->info();
    std::string text =
        fmt::format("{}, {} threads, {} ({})\n{}\ncommit {}: {}\n\n", info.name, info.threads, info.isa,
                    info.device, joined_names(texts_), build_commit(), command_line());
    text += fmt::format("{:<20} {:>9} {:>6} {:>7} {:>9} {:>9} {:>8} {:>9} {:>8}{}\n", "cache", "positions",
                        "bits", "ratio", "KLD", "KLD p99", "top-1 %", "ppl", "ppl/raw",
                        needles_ ? "  needle" : "");
    for (const SchemeQuality& row : rows_) {
      text +=
          fmt::format("{:<20} {:>9} {:>6.2f} {:>7.2f} {:>9} {:>9} {:>8} {:>9} {:>8}{}\n", row.kv_cache,
                      row.positions, row.bits_per_value, row.ratio_sealed, spoken_kld(row.kld_mean),
                      spoken_kld(row.kld_p99), figure(100 * row.top1, 2), figure(row.ppl, 4),
                      figure(row.ppl / row.ppl_raw, 4), row.needle ? "  " + needle_text(*row.needle) : "");
    }
    if (needles_ && complete_) text += depth_table();
    if (!attention_rows_.empty()) text += attention_table();
    if (!complete_) text += "incomplete: stopped before the end\n";
    write_out(text);
  }

  // Shares of right answers by where the fact stood.
  std::string depth_table() const {
    std::string text = fmt::format("\n{} facts in {} tokens: % right by where they stood\n{:<20}", *needles_,
                                   needle_context_, "cache");
    const size_t depths = rows_.front().needle->depths.size();
    for (size_t d = 0; d < depths; ++d) {
      text += fmt::format(" {:>9}", fmt::format("{}-{} %", 100 * d / depths, 100 * (d + 1) / depths));
    }
    text += "\n";
    for (const SchemeQuality& row : rows_) {
      text += fmt::format("{:<20}", row.kv_cache);
      for (const auto& depth : row.needle->depths) {
        const double share = static_cast<double>(depth.right) / static_cast<double>(depth.asked);
        text += fmt::format(" {:>9}", depth.asked > 0 ? figure(100 * share, 1) : "-");
      }
      text += "\n";
    }
    return text;
  }

  // A line per layer, the worst of each scheme marked.
  std::string attention_table() const {
    std::string text =
        "\nattention: rms error / rms, exact inputs to each layer; * the scheme's worst layer\nlayer";
    for (const AttentionErrors& row : attention_rows_) text += fmt::format(" {:>16}", row.kv_cache);
    text += "\n";
    for (size_t layer = 0; layer < attention_rows_.front().layers.size(); ++layer) {
      text += fmt::format("{:>5}", layer);
      for (const AttentionErrors& row : attention_rows_) {
        const double error = row.layers[layer];
        const bool worst = error > 0 && error == *std::max_element(row.layers.begin(), row.layers.end());
        text += fmt::format(" {:>15}{}", error < 0 ? "-" : figure(error, 5), worst ? "*" : " ");
      }
      while (text.back() == ' ') text.pop_back();
      text += "\n";
    }
    return text;
  }

  CommonOptions common_;
  std::string source_ = "sample";
  int64_t windows_ = 6;
  int64_t window_tokens_ = 0;
  std::optional<int64_t> needles_;
  int64_t needle_context_ = 0;
  int64_t longest_made_for_ = 0;  // positions
  bool attention_ = false;
  bool card_ = false;

  EvalOptions options_;
  std::vector<NamedText> texts_;
  std::vector<std::vector<int32_t>> windows_of_text_;
  std::unique_ptr<Engine> engine_;
  std::vector<SchemeQuality> rows_;
  std::vector<AttentionErrors> attention_rows_;
  bool complete_ = true;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
  return std::make_unique<EvalCommand>();
}

}  // namespace butter::cli
