#include "butter/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "cache/cache_scheme.h"
#include "checkpoint/mapped_file.h"
#include "core/check.h"
#include "engine/engine_state.h"
#include "engine/known_models.h"
#include "engine/template_source.h"
#include "engine/tokenizer_source.h"
#include "engine/traced_forward.h"
#include "families/family.h"
#include "kernels/row_format.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace butter {
namespace {

constexpr int kBatchRows = 15;  // rows that run as decode rows
constexpr int64_t kMaxContext = int64_t{1} << 31;

// Memory that could be had now: what the kernel says is available, or the cgroup's limit, if that is less.
int64_t available_memory() {
  int64_t available = int64_t{1} << 40;
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kibibytes = 0;
  while (meminfo >> key >> kibibytes) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kibibytes * 1024;
  }
  int64_t limit = 0, used = 0;
  if ((std::ifstream("/sys/fs/cgroup/memory.max") >> limit) &&
      (std::ifstream("/sys/fs/cgroup/memory.current") >> used)) {
    available = std::min(available, std::max<int64_t>(0, limit - used));
  }
  return available;
}

Status check_engine_options(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return fail(StatusCode::kInvalidArgument, "--threads is {}; 1 to 1024 (or 0 for all CPUs) are expected",
                options.threads);
  }
  if (options.prefill_rows < kPageRows || options.prefill_rows % kPageRows != 0 ||
      options.prefill_rows > 65536) {
    return fail(StatusCode::kInvalidArgument,
                "the rows of a prefill step are {}; a multiple of {} up to 65536 is expected",
                options.prefill_rows, kPageRows);
  }
  if (options.logit_rows < 1 || options.logit_rows > options.prefill_rows) {
    return fail(StatusCode::kInvalidArgument, "logits of {} rows a step were asked for; 1 to {} are expected",
                options.logit_rows, options.prefill_rows);
  }
  if (options.max_context < 0 || options.max_context > kMaxContext) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; 1 to {} are expected",
                options.max_context, kMaxContext);
  }
  return {};
}

Result<std::unique_ptr<Device>> make_device(const EngineOptions& options) {
  if (options.device == "cpu") return make_cpu_device(options.threads, options.precise);
  if (options.device == "reference") return make_reference_device();
  return fail(StatusCode::kInvalidArgument, "--device is \"{}\"; cpu or reference is expected",
              options.device);
}

bool any_format_seals() {
  for (const RowFormat* format : row_formats()) {
    if (format->seals) return true;
  }
  return false;
}

CacheModel cache_model_of(const ModelSpec& spec) {
  return CacheModel{static_cast<int>(spec.layers.size()), kv_layers(spec), window_classes(spec),
                    state_layers(spec)};
}

// Weights of experts that a token does not choose.
int64_t unchosen_expert_bytes(const Program& program, const Device& device) {
  int64_t unchosen = 0;
  for (const Op& op : program.ops) {
    const auto* experts = std::get_if<ExpertsOp>(&op);
    if (experts == nullptr) continue;
    int64_t bytes = 0;
    for (const ExpertWeights& expert : experts->experts) {
      for (const WeightId id : {expert.gate, expert.up, expert.down})
        bytes += id == kNone ? 0 : device.weight_bytes(id);
    }
    const auto count = static_cast<int64_t>(experts->experts.size());
    unchosen += bytes / count * (count - experts->chosen);
  }
  return unchosen;
}

}  // namespace

int next_step_rows(int64_t position, int64_t remaining, int step_rows, int64_t span) {
  const int64_t in_span = position % span;
  const int64_t most =
      step_rows < span ? std::min<int64_t>(step_rows, span - in_span) : step_rows / span * span - in_span;
  return static_cast<int>(std::min(remaining, most));
}

Result<CacheOptions> Engine::State::cache_options(const SequenceOptions& sequence) const {
  CacheOptions cache;
  BUTTER_ASSIGN(cache.scheme, parse_scheme(sequence.kv_cache, device->raw_dtype(spec.kv_dtype)));
  if (cache.scheme.seals() && !limits.seals) {
    return fail(
        StatusCode::kInvalidArgument,
        "--kv-cache {}: the engine was loaded before this format was there, and has no room to seal pages",
        sequence.kv_cache);
  }
  if (cache.scheme.span > options.prefill_rows) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-cache {}: a prefill span of {} positions is more than a prefill step of the engine, "
                "which has {}",
                sequence.kv_cache, cache.scheme.span, options.prefill_rows);
  }
  if (sequence.kv_window_size < 0) {
    return fail(StatusCode::kInvalidArgument, "--kv-window-size is {}; 0 (no window) or more is expected",
                sequence.kv_window_size);
  }
  if (sequence.max_context < 0) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; at least 1 is expected",
                sequence.max_context);
  }
  if (sequence.kv_window_size > 0) cache.window = {sequence.kv_window_size, sequence.kv_window_keep};
  cache.max_context = sequence.max_context > 0 ? sequence.max_context : limits.max_positions;
  cache.prefill_rows = options.prefill_rows;
  cache.state_snapshots = sequence.state_snapshots;
  if (cache.max_context > limits.max_positions) {
    return fail(StatusCode::kInvalidArgument, "--max-context is {}; the engine was loaded for {}",
                cache.max_context, limits.max_positions);
  }
  if (cache.window.max_size > limits.max_positions) {
    return fail(StatusCode::kInvalidArgument,
                "--kv-window-size is {}; the engine was loaded for {} positions", cache.window.max_size,
                limits.max_positions);
  }
  return cache;
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options) {
  BUTTER_TRY(check_engine_options(options));
  install_truncation_guard();
  auto state = std::make_unique<State>();
  state->options = options;
  BUTTER_ASSIGN(const std::string path, resolve_model(options.model));
  BUTTER_ASSIGN(state->device, make_device(options));
  BUTTER_ASSIGN(state->checkpoint, Checkpoint::open(path));
  BUTTER_ASSIGN(state->spec, make_model_spec(*state->checkpoint));
  BUTTER_ASSIGN(state->tokenizer, load_tokenizer(*state->checkpoint));
  if (state->tokenizer) {
    BUTTER_TRY(check_vocabulary(*state->tokenizer, state->spec.vocabulary));
    state->absent_ids = ids_without_token(*state->tokenizer, state->spec.vocabulary);
  }
  BUTTER_TRY(state->load_weights());
  BUTTER_TRY(state->prepare());
  state->describe(path);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Status Engine::State::load_weights() {
  const auto total = static_cast<int64_t>(checkpoint->file_bytes());
  WeightLoader::Progress report;
  if (options.progress) report = [&](int64_t done) { options.progress(done, total); };
  WeightLoader loader(*checkpoint, *device, report);
  BUTTER_ASSIGN(program, build_program(spec, loader));
  weight_buffers = loader.take_buffers();
  return checkpoint->check_undamaged();
}

Status Engine::State::prepare() {
  cache_model = cache_model_of(spec);
  limits.rows = options.prefill_rows;
  limits.logit_rows = std::max(options.logit_rows, kBatchRows);
  limits.sequences = kBatchRows;
  limits.max_positions = options.max_context > 0 ? options.max_context : spec.max_positions;
  limits.raw = device->raw_dtype(spec.kv_dtype);
  limits.seals = any_format_seals();
  const int64_t available = available_memory();
  const int64_t workspace = device->workspace_bytes(program, limits);
  if (workspace > available) {
    return fail(StatusCode::kOutOfMemory,
                "the workspace for {} positions takes {} bytes; {} are free on this machine",
                limits.max_positions, workspace, available);
  }
  BUTTER_ASSIGN(prepared, device->prepare(program, limits));
  const int64_t budget = options.cache_budget_bytes > 0 ? options.cache_budget_bytes : available - workspace;
  Device* pages_from = device.get();
  pool = std::make_shared<PagePool>(
      budget, PagePool::Hooks{[pages_from](int64_t bytes) { return pages_from->allocate_pages(bytes); },
                              [pages_from] { return pages_from->completed(); }});
  return {};
}

void Engine::State::describe(const std::string& path) {
  info.name = std::filesystem::path(path).filename().string();
  if (info.name.empty()) info.name = path;
  info.family = spec.family;
  info.device = device->info().name;
  info.isa = device->info().isa;
  info.threads = device->info().threads;
  info.layers = static_cast<int>(spec.layers.size());
  info.vocabulary = spec.vocabulary;
  info.hidden = spec.hidden;
  info.max_positions = spec.max_positions;
  info.file_bytes = static_cast<int64_t>(checkpoint->file_bytes());
  info.weight_bytes = device->weight_bytes();
  info.step_weight_bytes = info.weight_bytes - unchosen_expert_bytes(program, *device);
  info.workspace_bytes = prepared->workspace_bytes();
  info.notes = spec.notes;
}

const ModelInfo& Engine::info() const {
  return state_->info;
}
const Tokenizer* Engine::tokenizer() const {
  return state_->tokenizer.get();
}
std::span<const int32_t> Engine::absent_ids() const {
  return state_->absent_ids;
}
Result<std::optional<std::string>> Engine::chat_template(bool for_tools) const {
  BUTTER_ASSIGN(auto sources, load_chat_templates(*state_->checkpoint));
  return for_tools ? sources.with_tools : sources.usual;
}

int64_t Engine::cache_bytes() const {
  return state_->pool->leased_bytes();
}
int64_t Engine::peak_cache_bytes() const {
  return state_->pool->peak_leased_bytes();
}

Result<CachePlan> Engine::plan_caches(const SequenceOptions& options) const {
  BUTTER_ASSIGN(const CacheOptions cache, state_->cache_options(options));
  return butter::plan_caches(state_->cache_model, cache);
}

Result<Sequence> Engine::make_layer_caches(const SequenceOptions& options) {
  BUTTER_ASSIGN(const CacheOptions cache, state_->cache_options(options));
  BUTTER_ASSIGN(CacheSet caches, butter::make_layer_caches(state_->cache_model, cache, state_->pool));
  auto state = std::make_unique<Sequence::State>();
  state->engine = state_.get();
  state->options = options;
  state->unbounded = true;
  CacheOptions lasting = cache;  // what it comes to, if positions go on beyond the context
  for (const WindowClass& window_class : caches.layout().classes) {
    state->unbounded &= !window_class.window.none();
    const int64_t filled = window_class.window.max_size + cache.prefill_rows + 2 * kPageRows;
    lasting.max_context = std::max(lasting.max_context, filled);
  }
  BUTTER_ASSIGN(const CachePlan plan,
                butter::plan_caches(state_->cache_model, state->unbounded ? lasting : cache));
  if (plan.total_bytes + plan.prefill_bytes > state_->pool->budget_bytes()) {
    return fail(
        StatusCode::kOutOfMemory,
        "a {} cache of {} positions takes {} bytes; {} are there for caches (a smaller --max-context, or "
        "--kv-window-size, takes less)",
        options.kv_cache, cache.max_context, plan.total_bytes + plan.prefill_bytes,
        state_->pool->budget_bytes());
  }
  state->caches.emplace(std::move(caches));
  state->max_context = cache.max_context;
  return Sequence(std::move(state));
}

// --- Steps
// -----------------------------------------------------------------------------------------------------

Status Engine::State::check_tokens(const Sequence::State& sequence, std::span<const int32_t> tokens) const {
  if (tokens.empty())
    return fail(StatusCode::kInvalidArgument, "there are no tokens to feed; at least one is expected");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= spec.vocabulary) {
      return fail(StatusCode::kInvalidArgument,
                  "token id {} (number {} of those fed) is out of range; 0 to {} are expected", tokens[i], i,
                  spec.vocabulary - 1);
    }
  }
  const int64_t end = sequence.caches->position() + static_cast<int64_t>(tokens.size());
  if (!sequence.unbounded && end > sequence.max_context) {
    return fail(StatusCode::kLimit,
                "{} tokens at position {} go beyond the context of {} positions (--max-context)",
                tokens.size(), sequence.caches->position(), sequence.max_context);
  }
  return {};
}

// One step of one or more sequences: every one of them advances, or none does.
Status Engine::State::run_step(std::span<Sequence::State* const> sequences, std::span<const int> rows,
                               std::span<const int32_t> ids, std::span<const int32_t> logit_rows,
                               const TraceFn* trace) {
  std::array<StepSequence, kBatchRows> views;
  size_t begun = 0;
  int first_row = 0;
  Status status;
  for (; begun < sequences.size(); ++begun) {
    CacheSet& caches = *sequences[begun]->caches;
    status = caches.begin_step(rows[begun]);
    if (!status) break;
    views[begun] = caches.step_view(first_row);
    first_row += rows[begun];
  }
  if (status) {
    const StepInputs inputs{ids, std::span(views).first(begun), logit_rows};
    status = device->start_step(*prepared, inputs, trace);
    if (status) status = device->finish_step(*prepared);
    if (status) status = checkpoint->check_undamaged();
  }
  const uint64_t fence = device->submitted();
  for (size_t i = 0; i < begun; ++i) {
    if (status) {
      sequences[i]->caches->commit_step(fence);
    } else {
      sequences[i]->caches->abort_step(fence);
    }
  }
  return status;
}

Status Engine::State::run_step(Sequence::State& sequence, std::span<const int32_t> ids,
                               std::span<const int32_t> logit_rows, const TraceFn* trace) {
  Sequence::State* const sequences[] = {&sequence};
  const int rows[] = {static_cast<int>(ids.size())};
  return run_step(sequences, rows, ids, logit_rows, trace);
}

// Feeds tokens in prefill steps; `each` sees every step's rows and decides which of them give logits.
Status Engine::State::feed(Sequence::State& sequence, std::span<const int32_t> tokens, int step_rows,
                           const StepFn& each) {
  BUTTER_TRY(check_tokens(sequence, tokens));
  const auto& prefill_progress = sequence.prefill_progress;
  const auto total = static_cast<int64_t>(tokens.size());
  CacheSet& caches = *sequence.caches;
  // Where these tokens, or others in the place of the last ones, could be fed again.
  const int64_t resume = (caches.position() + total - 1) / kPageRows * kPageRows;
  const bool snapshots = caches.takes_snapshots() && total > 1;
  if (snapshots) caches.mark_snapshot();
  for (int64_t done = 0; done < total;) {
    if (prefill_progress && total > 1 && !prefill_progress(done, total)) {
      return fail(StatusCode::kCancelled, "stopped after {} of {} tokens of the prompt", done, total);
    }
    const int64_t position = caches.position();
    int rows = next_step_rows(position, total - done, step_rows, caches.layout().options.scheme.span);
    if (snapshots && position < resume && resume < position + rows)
      rows = static_cast<int>(resume - position);
    BUTTER_TRY(each(done, rows, done + rows == total));
    done += rows;
    if (snapshots && caches.position() == resume) caches.mark_snapshot();
  }
  if (prefill_progress && total > 1) prefill_progress(total, total);
  return {};
}

Result<std::span<const float>> Engine::forward(Sequence& sequence, std::span<const int32_t> tokens) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  BUTTER_TRY(state_->feed_last(*sequence.state_, tokens, nullptr));
  return std::span<const float>(state_->prepared->logits(), static_cast<size_t>(state_->spec.vocabulary));
}

Status Engine::forward(Sequence& sequence, std::span<const int32_t> tokens, std::span<float> logits) {
  if (logits.size() != static_cast<size_t>(state_->spec.vocabulary)) {
    return fail(StatusCode::kInvalidArgument, "there is room for {} logits; {} are expected", logits.size(),
                state_->spec.vocabulary);
  }
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  BUTTER_TRY(state_->feed_last(*sequence.state_, tokens, nullptr));
  std::copy_n(state_->prepared->logits(), logits.size(), logits.begin());
  return {};
}

// Logits of the last token only.
Status Engine::State::feed_last(Sequence::State& sequence, std::span<const int32_t> tokens,
                                const TraceFn* trace) {
  const auto step = [&](int64_t done, int rows, bool last) -> Status {
    const int32_t last_row[] = {rows - 1};
    const std::span<const int32_t> logit_rows =
        last ? std::span<const int32_t>(last_row) : std::span<const int32_t>();
    return run_step(sequence, tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)),
                    logit_rows, trace);
  };
  return feed(sequence, tokens, options.prefill_rows, std::cref(step));  // by reference: nothing is allocated
}

Status Engine::forward_all(Sequence& sequence, std::span<const int32_t> tokens,
                           const std::function<void(int64_t, std::span<const float>)>& on_logits) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  return state_->feed_all(*sequence.state_, tokens, on_logits, nullptr);
}

Status TracedForward::run(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens,
                          const TraceFn& trace, const OnLogits& on_logits) {
  std::lock_guard<std::mutex> lock(engine.state_->step_mutex);
  return engine.state_->feed_all(*sequence.state_, tokens, on_logits, &trace);
}

// Logits of every token.
Status Engine::State::feed_all(Sequence::State& sequence, std::span<const int32_t> tokens,
                               const std::function<void(int64_t, std::span<const float>)>& on_logits,
                               const TraceFn* trace) {
  const auto vocabulary = static_cast<size_t>(spec.vocabulary);
  // Whole steps of as many rows as logits fit, page by page where that is possible.
  const int fit = limits.logit_rows;
  const int step_rows = fit >= kPageRows ? fit / kPageRows * kPageRows : fit;
  std::vector<int32_t> rows_of_step;
  return feed(sequence, tokens, std::min(step_rows, options.prefill_rows),
              [&](int64_t done, int rows, bool) -> Status {
                rows_of_step.resize(static_cast<size_t>(rows));
                for (int i = 0; i < rows; ++i) rows_of_step[static_cast<size_t>(i)] = i;
                const auto ids = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows));
                BUTTER_TRY(run_step(sequence, ids, rows_of_step, trace));
                for (int i = 0; i < rows; ++i) {
                  on_logits(done + i, {prepared->logits() + static_cast<size_t>(i) * vocabulary, vocabulary});
                }
                return {};
              });
}

Result<int32_t> Engine::forward_sample(Sequence& sequence, std::span<const int32_t> tokens,
                                       Sampler& sampler) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  BUTTER_TRY(state_->feed_last(*sequence.state_, tokens, nullptr));
  sampler.observe(tokens);
  return sampler.sample({state_->prepared->logits(), static_cast<size_t>(state_->spec.vocabulary)},
                        state_->absent_ids);
}

Result<std::span<const float>> Engine::forward_batch(std::span<const BatchItem> items) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  std::vector<Sequence::State*> sequences;
  std::vector<int> rows;
  std::vector<int32_t> ids, logit_rows;
  for (const BatchItem& item : items) {
    BUTTER_TRY(state_->check_tokens(*item.sequence->state_, item.tokens));
    if (std::find(sequences.begin(), sequences.end(), item.sequence->state_.get()) != sequences.end()) {
      return fail(StatusCode::kInvalidArgument, "a sequence is in the batch twice; once is expected");
    }
    sequences.push_back(item.sequence->state_.get());
    rows.push_back(static_cast<int>(item.tokens.size()));
    ids.insert(ids.end(), item.tokens.begin(), item.tokens.end());
    logit_rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  if (ids.empty() || ids.size() > static_cast<size_t>(kBatchRows)) {
    return fail(StatusCode::kInvalidArgument, "a batch of {} tokens; 1 to {} are expected", ids.size(),
                kBatchRows);
  }
  BUTTER_TRY(state_->run_step(sequences, rows, ids, logit_rows, nullptr));
  return std::span<const float>(state_->prepared->logits(),
                                items.size() * static_cast<size_t>(state_->spec.vocabulary));
}

Status Engine::fill_by_repeating(Sequence& sequence, int64_t position) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  if (position > sequence.max_context() && !sequence.unbounded()) {
    return fail(StatusCode::kLimit, "position {} is beyond the context of {} positions", position,
                sequence.max_context());
  }
  return sequence.state_->caches->repeat_pages_to(position, state_->device->submitted());
}

Result<std::vector<TraceRow>> Engine::trace(Sequence& sequence, std::span<const int32_t> tokens) {
  std::lock_guard<std::mutex> lock(state_->step_mutex);
  std::vector<TraceRow> trace;
  const TraceFn record = [&](const OpLabel& label, const Slot& slot, const float* rows, int64_t row_count) {
    double sum = 0, max_abs = 0;
    const int64_t count = row_count * slot.width;
    for (int64_t i = 0; i < count; ++i) {
      sum += static_cast<double>(rows[i]) * rows[i];
      max_abs = std::max<double>(max_abs, std::fabs(rows[i]));
    }
    trace.push_back({label.layer, label.what,
                     std::sqrt(sum / static_cast<double>(std::max<int64_t>(count, 1))), max_abs});
  };
  BUTTER_TRY(state_->feed_last(*sequence.state_, tokens, &record));
  return trace;
}

// --- Sequence
// --------------------------------------------------------------------------------------------------

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

void Sequence::set_prefill_progress(std::function<bool(int64_t, int64_t)> progress) {
  state_->prefill_progress = std::move(progress);
}

bool Sequence::unbounded() const {
  return state_->unbounded;
}

Result<int64_t> Sequence::raw_bytes() const {
  CacheOptions options = state_->caches->layout().options;
  options.scheme.key = options.scheme.value = &raw_format();
  options.max_context = std::max<int64_t>(1, position());
  BUTTER_ASSIGN(const CachePlan plan, butter::plan_caches(state_->engine->cache_model, options));
  return plan.total_bytes;
}

int64_t Sequence::position() const {
  return state_->caches->position();
}
int64_t Sequence::max_context() const {
  return state_->max_context;
}
int64_t Sequence::held_bytes() const {
  return state_->caches->held_bytes();
}
std::vector<LayerMemory> Sequence::layers() const {
  return state_->caches->layer_caches();
}

Result<int64_t> Sequence::truncate(int64_t n) {
  return state_->caches->truncate(n, state_->engine->device->submitted());
}

Result<Sequence> Sequence::fork() const {
  auto state = std::make_unique<State>();
  state->engine = state_->engine;
  state->options = state_->options;
  state->max_context = state_->max_context;
  state->unbounded = state_->unbounded;
  BUTTER_ASSIGN(CacheSet caches, state_->caches->fork());
  state->caches.emplace(std::move(caches));
  return Sequence(std::move(state));
}

}  // namespace butter
