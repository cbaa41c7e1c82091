// butter bench: speed at depth, beside the read bandwidth measured in the same run.
//
// For each depth every scheme gets a sequence filled to it. A measurement forks that sequence (full pages are
// shared), so that each starts from the same rows, and repeats go round the schemes in turn: what slows the
// machine for a while slows all of them. Medians are reported.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "butter/engine.h"
#include "butter/inspect.h"
#include "cli/bandwidth.h"
#include "cli/build_commit.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/scheme_list.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kPageRows = 64;
constexpr int64_t kSeedRows = 512;      // real rows that --fill repeat repeats
constexpr double kMostShare = 1.05;     // of the bandwidth; more is an error of the measurement
constexpr uint64_t kPromptSeed = 2026;  // of the pseudo-random prompt

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Ids that depend on the position alone (splitmix64), so that every run reads the same prompt.
std::vector<int32_t> pseudo_text(int64_t from, int64_t count, int vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = kPromptSeed + static_cast<uint64_t>(from + i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    ids.push_back(static_cast<int32_t>((z ^ (z >> 31)) % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

// One scheme at one depth.
struct Case {
  std::string kv_cache;
  Sequence filled;
  int64_t bytes_per_token = 0;
  int64_t state_bytes = 0;  // that a step reads and writes
  std::vector<double> prefill_seconds = {};
  std::vector<double> decode_seconds = {};
  int64_t kv_bytes = 0;
  uint64_t token_hash = 0;
};

struct Row {
  std::string kv_cache;
  int64_t depth = 0;
  double prefill_tps = 0;
  double decode_tps = 0;
  double decode_ms = 0;
  int64_t kv_bytes = 0;
  int64_t weight_bytes = 0;
  double bandwidth_share = 0;
  double bandwidth = 0;  // bytes a second
  uint64_t token_hash = 0;
};

class BenchCommand : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* summary() const override { return "speed of prefill and decode at depth, for cache schemes"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    arguments.integers("--depth", depths_, {0, kMaxContextLimit},
                       "positions in the cache before a measurement (default: 0)");
    arguments.integer("-p,--prompt-tokens", prompt_tokens_, {0, 1 << 20},
                      "tokens of the measured prefill; 0: none (default: 512)");
    arguments.integer("-n,--max-tokens", decode_tokens_, {1, 1 << 20},
                      "tokens of the measured decode (default: 64)");
    arguments.integer("--repeat", repeats_, {1, 1000},
                      "measurements, of which the median counts (default: 3)");
    arguments.text("--fill", fill_, "how the cache is filled: prefill (real rows) or repeat (quick; default)",
                   "prefill|repeat");
  }

  int run() override {
    if (fill_ != "prefill" && fill_ != "repeat")
      refuse("--fill is \"{}\"; prefill or repeat is expected", fill_);
    if (common_.max_context > 0 && common_.max_context < longest()) {
      refuse("--max-context is {}; at least the {} positions that are measured are expected",
             common_.max_context, longest());
    }
    schemes_ = split_schemes(common_.scheme());
    describe_weights();
    EngineOptions options = common_.engine_options();
    options.max_context = std::max(common_.max_context, longest());
    engine_ = load_engine(common_, options);
    std::vector<Row> rows;
    for (const int64_t depth : depths_) {
      for (Row& row : measure(depth)) rows.push_back(std::move(row));
      if (interrupted()) return interrupt_exit_status();
    }
    print(rows);
    return check_shares(rows);
  }

 private:
  // Repeated pages are whole ones.
  int64_t filled_depth(int64_t depth) const {
    return fill_ == "repeat" ? (depth + kPageRows - 1) / kPageRows * kPageRows : depth;
  }

  int64_t longest() const {
    int64_t depth = 0;
    for (const int64_t one : depths_) depth = std::max(depth, filled_depth(one));
    return depth + std::max(prompt_tokens_, decode_tokens_ + 1);
  }

  // A step reads all weights, but of an embedding that is not the head too it reads one row.
  void describe_weights() {
    const ModelDescription model = must(inspect_model(common_.model_name()));
    if (longest() > model.max_positions) {
      note(fmt::format("note: {} positions are measured; {} was made for {}", longest(), model.name,
                       model.max_positions));
    }
    for (const TensorDescription& tensor : model.tensors) {
      const bool is_embedding = tensor.name.find("token_embd") != std::string::npos ||
                                tensor.name.find("embed_tokens") != std::string::npos;
      if (is_embedding && !model.tied_head) embedding_bytes_ += tensor.bytes;
    }
  }

  int64_t weight_bytes() const { return engine_->info().step_weight_bytes - embedding_bytes_; }

  SequenceOptions sequence_options(const std::string& scheme) const {
    SequenceOptions options = common_.sequence_options();
    options.kv_cache = scheme;
    options.max_context = 0;  // what the engine was loaded for
    return options;
  }

  Case fill(const std::string& scheme, int64_t depth) const {
    const SequenceOptions options = sequence_options(scheme);
    const CachePlan plan = must(engine_->plan_caches(options));
    Case filled{scheme, must(engine_->make_layer_caches(options)), plan.bytes_per_token,
                plan.recurrent_bytes};
    stop_when_interrupted(filled.filled);
    const int64_t real = fill_ == "repeat" ? std::min(depth, kSeedRows) : depth;
    if (real > 0) {
      note_progress("filling {} positions of {}", real, scheme);
      must(engine_->forward(filled.filled, pseudo_text(0, real, engine_->info().vocabulary)));
    }
    if (real < depth) must(engine_->fill_by_repeating(filled.filled, depth));
    return filled;
  }

  template <typename... Args>
  void note_progress(fmt::format_string<Args...> format, Args&&... args) const {
    if (common_.verbose) note(fmt::format(format, std::forward<Args>(args)...));
  }

  std::vector<Row> measure(int64_t asked_depth) {
    const int64_t depth = filled_depth(asked_depth);
    std::vector<Case> cases;
    for (const std::string& scheme : schemes_) cases.push_back(fill(scheme, depth));
    for (int64_t repeat = 0; repeat < repeats_; ++repeat) {
      for (Case& one : cases) {
        if (interrupted()) return {};
        if (prompt_tokens_ > 0) one.prefill_seconds.push_back(time_prefill(one, depth));
        one.decode_seconds.push_back(time_decode(one, depth, repeat));
      }
    }
    std::vector<Row> rows;
    for (const Case& one : cases) rows.push_back(row_of(one, depth));
    return rows;
  }

  static void stop_when_interrupted(Sequence& sequence) {
    sequence.set_prefill_progress([](int64_t, int64_t) { return !interrupted(); });
  }

  double time_prefill(const Case& one, int64_t depth) const {
    Sequence sequence = must(one.filled.fork());
    stop_when_interrupted(sequence);
    const std::vector<int32_t> prompt = pseudo_text(depth, prompt_tokens_, engine_->info().vocabulary);
    const Clock::time_point start = Clock::now();
    must(engine_->forward(sequence, prompt));
    return seconds_since(start);
  }

  // One step is taken before the clock starts: it brings the weights in and gives the first token.
  double time_decode(Case& one, int64_t depth, int64_t repeat) const {
    Sequence sequence = must(one.filled.fork());
    Sampler sampler({});
    std::vector<int32_t> tokens = pseudo_text(depth, 1, engine_->info().vocabulary);
    tokens.push_back(must(engine_->forward_sample(sequence, tokens, sampler)));
    const Clock::time_point start = Clock::now();
    for (int64_t step = 0; step < decode_tokens_; ++step) {
      tokens.push_back(must(engine_->forward_sample(sequence, std::span(tokens).last(1), sampler)));
    }
    const double seconds = seconds_since(start);
    one.kv_bytes = sequence.held_bytes();
    const uint64_t hash = XXH64(tokens.data(), tokens.size() * sizeof(int32_t), 0);
    if (repeat > 0 && hash != one.token_hash) {
      refuse("{} at depth {} gave other tokens the second time: the hashes are {:016x} and {:016x}",
             one.kv_cache, depth, one.token_hash, hash);
    }
    one.token_hash = hash;
    return seconds;
  }

  Row row_of(const Case& one, int64_t depth) const {
    Row row;
    row.kv_cache = one.kv_cache;
    row.depth = depth;
    row.kv_bytes = one.kv_bytes;
    row.weight_bytes = weight_bytes();
    row.token_hash = one.token_hash;
    const double step_seconds = median(one.decode_seconds) / static_cast<double>(decode_tokens_);
    row.decode_tps = 1 / step_seconds;
    row.decode_ms = step_seconds * 1000;
    if (!one.prefill_seconds.empty())
      row.prefill_tps = static_cast<double>(prompt_tokens_) / median(one.prefill_seconds);
    // Rows that a step reads: those before it, at most what the cache holds (a window holds fewer).
    const int64_t rows_read = depth + 1 + decode_tokens_ / 2;
    const int64_t step_bytes =
        row.weight_bytes + one.state_bytes + std::min(one.kv_bytes, rows_read * one.bytes_per_token);
    ReadBandwidth bandwidth(row.weight_bytes + row.kv_bytes, engine_->info().threads);
    row.bandwidth = bandwidth.measure();
    row.bandwidth_share = static_cast<double>(step_bytes) / step_seconds / row.bandwidth;
    return row;
  }

  static int check_shares(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      if (row.bandwidth_share > kMostShare) {
        refuse(
            "the measurement is wrong: {} at depth {} shows {:.2f} of the read bandwidth; at most {} can be",
            row.kv_cache, row.depth, row.bandwidth_share, kMostShare);
      }
    }
    return kExitOk;
  }

  std::string command_line() const {
    return fmt::format(
        "butter bench -m {} --kv-cache {} --depth {} -p {} -n {} --repeat {} --fill {} --threads {}",
        common_.model_name(), fmt::join(schemes_, ","), fmt::join(depths_, ","), prompt_tokens_,
        decode_tokens_, repeats_, fill_, engine_->info().threads);
  }

  void print(const std::vector<Row>& rows) const {
    const ModelInfo& info = engine_->info();
    const std::string machine = must(build_info()).cpu;
    if (!common_.json) {
      print_table(rows, machine);
      return;
    }
    Json json = {{"machine", machine},
                 {"commit", build_commit()},
                 {"command", command_line()},
                 {"rows", Json::array()}};
    for (const Row& row : rows) {
      json["rows"].push_back({{"kv_cache", row.kv_cache},
                              {"depth", row.depth},
                              {"prefill_tps", row.prefill_tps},
                              {"decode_tps", row.decode_tps},
                              {"decode_ms", row.decode_ms},
                              {"kv_bytes", row.kv_bytes},
                              {"weight_bytes", row.weight_bytes},
                              {"bandwidth_share", row.bandwidth_share},
                              {"token_hash", fmt::format("{:016x}", row.token_hash)},
                              {"threads", info.threads},
                              {"isa", info.isa},
                              {"device", info.device}});
    }
    print_json(json);
  }

  void print_table(const std::vector<Row>& rows, const std::string& machine) const {
    const ModelInfo& info = engine_->info();
    std::string text = fmt::format("{}, {} threads, {} ({})\n{}\ncommit {}: {}\n\n", info.name, info.threads,
                                   info.isa, info.device, machine, build_commit(), command_line());
    text += fmt::format("{:<16} {:>7} {:>14} {:>13} {:>8} {:>10} {:>10} {:>10} {:>6}  {}\n", "cache", "depth",
                        "prefill tok/s", "decode tok/s", "ms", "cache", "weights", "read GB/s", "share",
                        "tokens");
    for (const Row& row : rows) {
      text += fmt::format(
          "{:<16} {:>7} {:>14.1f} {:>13.1f} {:>8.2f} {:>10} {:>10} {:>10.1f} {:>6.2f}  {:016x}\n",
          row.kv_cache, row.depth, row.prefill_tps, row.decode_tps, row.decode_ms, spoken_bytes(row.kv_bytes),
          spoken_bytes(row.weight_bytes), row.bandwidth / 1e9, row.bandwidth_share, row.token_hash);
    }
    write_out(text);
  }

  CommonOptions common_;
  std::vector<std::string> schemes_;
  std::vector<int64_t> depths_ = {0};
  int64_t prompt_tokens_ = 512;
  int64_t decode_tokens_ = 64;
  int64_t repeats_ = 3;
  std::string fill_ = "repeat";
  int64_t embedding_bytes_ = 0;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace butter::cli
