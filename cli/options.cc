#include "cli/options.h"

#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

#include "butter/inspect.h"
#include "butter/pull.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/scheme_list.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

constexpr const char* kDefaultModel = "smollm2";

constexpr std::string_view kSpan = ":span";
constexpr int64_t kSpanUnit = 64;  // positions of a page
constexpr int64_t kMostPrefillRows = 65536;

// llama.cpp's names of formats that are here too: the same bits and the same kind of code.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"f16", "raw"}, {"bf16", "raw"}, {"q8_0", "affine8"}, {"q4_0", "affine4"}, {"q4_1", "affine4"}};

std::string format_name(std::string_view name) {
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) return std::string(ours);
  }
  return std::string(name);
}

// "FORMAT" or "k=FORMAT,v=FORMAT", with what may stand behind it.
std::string scheme_in_our_names(std::string_view scheme) {
  const std::string_view suffixes = scheme.substr(std::min(scheme.find(':'), scheme.size()));
  scheme.remove_suffix(suffixes.size());
  std::string named;
  for (size_t start = 0, comma = 0; comma != std::string_view::npos; start = comma + 1) {
    comma = scheme.find(',', start);
    const std::string_view side =
        scheme.substr(start, comma == std::string_view::npos ? comma : comma - start);
    const size_t name = side.size() > 1 && side[1] == '=' ? 2 : 0;
    if (start > 0) named += ',';
    named += std::string(side.substr(0, name)) + format_name(side.substr(name));
  }
  return named + std::string(suffixes);
}

bool is_raw(std::string_view scheme) {
  return scheme == "raw" || scheme == "k=raw,v=raw";
}

// 0 where there is none, or none that reads as a number: the library says what is wrong.
int64_t span_of(std::string_view scheme) {
  const size_t at = scheme.rfind(kSpan);
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = scheme.substr(at + kSpan.size());
  int64_t span = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), span);
  return std::max<int64_t>(span, 0);
}

void check_span(const std::vector<std::string>& schemes, int64_t span) {
  if (span % kSpanUnit != 0) refuse("--prefill-span is {}; a multiple of {} is expected", span, kSpanUnit);
  if (std::all_of(schemes.begin(), schemes.end(), is_raw)) {
    refuse("--prefill-span is {} and --kv-cache is {}, which seals nothing; a scheme that does is expected",
           span, schemes.front());
  }
  for (const std::string& scheme : schemes) {
    if (scheme.find(kSpan) == std::string::npos) continue;
    refuse("--kv-cache {} names a span and --prefill-span is {}; one of the two is expected", scheme, span);
  }
}

}  // namespace

void CommonOptions::declare(Arguments& arguments) {
  arguments.text("-m,--model", model, "a model file, a folder, or a name that `butter pull` fetched",
                 "MODEL");
  arguments.integer("-t,--threads", threads, {1, 1024},
                    "threads (default: the CPUs that the process may use)");
  arguments.text("--device", device, "cpu, or reference: float32 and scalar, the specification",
                 "cpu|reference");
  arguments.text("--kv-cache", kv_cache,
                 "how the cache is stored: raw, aura, affine8, ..., or k=...,v=... (default: raw)", "SCHEME");
  arguments.text("--cache-type-k", key_format, "keys' part of --kv-cache; -ctk is the same", "SCHEME");
  arguments.text("--cache-type-v", value_format, "values' part of --kv-cache; -ctv is the same", "SCHEME");
  arguments.integer("--prefill-span", prefill_span, {kSpanUnit, kMostPrefillRows},
                    "positions that a prompt reads raw among themselves: a multiple of 64 (default: 64)");
  arguments.integer("--kv-window-size", kv_window_size, {1, kMaxContextLimit},
                    "positions that stay visible: the first and the last ones (default: all)");
  arguments.integer("--kv-window-keep,--keep", kv_window_keep, {0, kMaxContextLimit},
                    "first positions that a window keeps (default: 4)");
  arguments.integer("--state-snapshots", state_snapshots, {0, kMostStateSnapshots},
                    "copies of recurrent state that are kept, to go back to (default: 3)");
  arguments.integer("-c,--max-context", max_context, {1, kMaxContextLimit},
                    "positions that the cache holds (default: what the model advertises)");
  arguments.seed("--seed", seed, "of the random choices (default: 0)");
  arguments.flag("--json", json, "print one JSON object in place of text");
  arguments.flag("--verbose", verbose, "say on stderr what is done");
}

std::string CommonOptions::model_name() const {
  if (!model.empty()) return model;
  if (find_fetched_model(kDefaultModel)) return kDefaultModel;
  refuse("no model is named: give one with -m, or run `butter pull {}` for the small default", kDefaultModel);
}

std::string CommonOptions::scheme() const {
  const bool by_side = !key_format.empty() || !value_format.empty();
  if (by_side && !kv_cache.empty())
    refuse("--kv-cache and --cache-type-k or --cache-type-v are both given; one is expected");
  const std::string given = by_side ? fmt::format("k={},v={}", key_format.empty() ? "raw" : key_format,
                                                  value_format.empty() ? "raw" : value_format)
                                    : kv_cache;
  std::vector<std::string> schemes = split_schemes(given.empty() ? "raw" : given);
  for (std::string& scheme : schemes) scheme = scheme_in_our_names(scheme);
  if (prefill_span > 0) {
    check_span(schemes, prefill_span);
    for (std::string& scheme : schemes) {
      if (!is_raw(scheme)) scheme += fmt::format("{}{}", kSpan, prefill_span);
    }
  }
  return fmt::format("{}", fmt::join(schemes, ","));
}

int CommonOptions::prefill_rows() const {
  int64_t rows = EngineOptions().prefill_rows;
  for (const std::string& scheme : split_schemes(scheme()))
    rows = std::max(rows, std::min(span_of(scheme) / kSpanUnit * kSpanUnit, kMostPrefillRows));
  return static_cast<int>(rows);
}

SequenceOptions CommonOptions::sequence_options() const {
  SequenceOptions sequence;
  sequence.kv_cache = scheme();
  sequence.kv_window_size = kv_window_size;
  sequence.kv_window_keep = kv_window_keep;
  sequence.max_context = max_context;
  sequence.state_snapshots = static_cast<int>(state_snapshots);
  if (kv_window_size > 0 && kv_window_size <= kv_window_keep) {
    refuse(
        "--kv-window-size is {} and --kv-window-keep is {}; a window larger than what it keeps is expected",
        kv_window_size, kv_window_keep);
  }
  return sequence;
}

EngineOptions CommonOptions::engine_options() const {
  EngineOptions engine;
  engine.model = model_name();
  engine.device = device;
  engine.threads = static_cast<int>(threads);
  engine.max_context = max_context;
  engine.prefill_rows = prefill_rows();
  return engine;
}

namespace {

// "ID=BIAS"
LogitBias read_logit_bias(const std::string& text) {
  const size_t equals = text.find('=');
  const char* const end = text.data() + text.size();
  const char* const id_end = text.data() + std::min(equals, text.size());
  LogitBias bias;
  const auto id = std::from_chars(text.data(), id_end, bias.id);
  const bool has_id = equals != std::string::npos && id.ec == std::errc() && id.ptr == id_end;
  const auto value = has_id ? std::from_chars(id_end + 1, end, bias.bias) : id;
  if (has_id && value.ec == std::errc() && value.ptr == end) return bias;
  refuse_usage("--logit-bias is \"{}\"; ID=BIAS, a token id and a number or -inf, is expected", text);
}

}  // namespace

void SamplingArguments::declare(Arguments& arguments) {
  arguments.integer("-n,--max-tokens,--n-predict", max_tokens, {-1, INT64_MAX},
                    "tokens to generate at most (default: until the answer ends or the context is full)");
  arguments.number("--temperature,--temp", sampling.temperature,
                   "0: always the most likely token (default: 0)");
  arguments.integer("--top-k", top_k, {0, INT32_MAX}, "choose among the k most likely; 0: all (default: 0)");
  arguments.number("--top-p", sampling.top_p, "choose among the likeliest that make up p (default: 1)");
  arguments.number("--min-p", sampling.min_p, "drop what is less likely than p times the best (default: 0)");
  arguments.number("--repetition-penalty,--repeat-penalty", sampling.repetition_penalty,
                   "divides the odds of tokens that came before (default: 1)");
  arguments.number("--presence-penalty", sampling.presence_penalty,
                   "taken off the logit of each token that was generated: -2 to 2 (default: 0)");
  arguments.number("--frequency-penalty", sampling.frequency_penalty,
                   "the same for each time that it was generated: -2 to 2 (default: 0)");
  arguments.texts("--logit-bias", logit_biases,
                  "added to the logit of a token: -100 to 100, or -inf to ban it; may be repeated",
                  "ID=BIAS");
  arguments.optional_integer("--logprobs", logprobs, 0, {0, 1000},
                             "show the log-probability of each token, and of the N likeliest in its place");
  arguments.texts("--stop", stop, "a text that ends the answer; may be repeated");
  arguments.flag("--ignore-eos", ignore_eos, "go on when the model ends its turn");
}

void SamplingArguments::check() {
  sampling.logit_bias.clear();
  for (const std::string& text : logit_biases) sampling.logit_bias.push_back(read_logit_bias(text));
  if (logprobs) sampling.logprobs = static_cast<int>(*logprobs);
  must(Sampler::check(sampling));
  for (const std::string& text : stop) {
    if (text.empty()) refuse("--stop is empty; a text is expected");
  }
}

GenerateOptions SamplingArguments::generate_options(uint64_t seed) const {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling = sampling;
  options.sampling.top_k = static_cast<int>(top_k);
  options.sampling.seed = seed;
  options.stop = stop;
  options.ignore_eos = ignore_eos;
  options.cancel = &interrupted();
  return options;
}

void check_context(const CommonOptions& options) {
  if (options.max_context == 0) return;
  const ModelDescription model = must(inspect_model(options.model_name()));
  if (model.max_positions > 0 && options.max_context > model.max_positions) {
    refuse("--max-context is {}; {} was made for at most {} positions", options.max_context, model.name,
           model.max_positions);
  }
}

namespace {

// Refuses a scheme that the model's heads cannot be stored in: before weights are read, not after.
void check_widths(const CommonOptions& options) {
  SequenceOptions sequence;
  for (const std::string& scheme : split_schemes(options.scheme())) {
    if (is_raw(scheme)) continue;  // which takes all
    sequence.kv_cache = scheme;
    const auto plan = plan_model(options.model_name(), sequence, options.prefill_rows(), options.device);
    if (!plan && plan.error().code() == StatusCode::kUnsupported) must(plan);
  }
}

}  // namespace

std::unique_ptr<Engine> load_engine(const CommonOptions& options, EngineOptions engine_options) {
  check_widths(options);
  if (options.verbose) {
    spdlog::set_default_logger(spdlog::stderr_logger_st("butter"));
    spdlog::set_pattern("%H:%M:%S.%e %v");
  } else {
    spdlog::set_level(spdlog::level::off);
  }
  spdlog::info("loading {}", engine_options.model);
  ProgressBar bar("loading", ProgressBar::Unit::kBytes);
  engine_options.progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
  std::unique_ptr<Engine> engine = must(Engine::load(engine_options));
  bar.erase();
  const ModelInfo& info = engine->info();
  for (const std::string& line : info.notes) note(fmt::format("note: {}", line));
  spdlog::info("{}: {} of {} layers on {} ({}, {} threads), {} of weights, {} of workspace", info.name,
               info.family, info.layers, info.device, info.isa, info.threads, spoken_bytes(info.weight_bytes),
               spoken_bytes(info.workspace_bytes));
  handle_interrupts();
  return engine;
}

}  // namespace butter::cli
