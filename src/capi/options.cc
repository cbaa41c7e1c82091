#include "capi/options.h"

#include <cstdlib>

namespace butter::capi {
namespace {

// Sizes of the structs in the first version that had them: nothing shorter can be meant.
constexpr size_t kEngineOptionsBytes = sizeof(butter_engine_options);
constexpr size_t kSequenceOptionsBytes = sizeof(butter_sequence_options);
constexpr size_t kSamplingOptionsBytes = sizeof(butter_sampling_options);
constexpr size_t kGenerateOptionsBytes = sizeof(butter_generate_options);

Result<std::vector<std::string>> texts_of(const char* const* texts, size_t count, const char* name) {
  std::vector<std::string> result;
  if (count > 0) BUTTER_TRY(require(texts, name));
  for (size_t i = 0; i < count; ++i) {
    BUTTER_TRY(require(texts[i], name));
    result.emplace_back(texts[i]);
  }
  return result;
}

}  // namespace

Result<EngineOptions> engine_options(const butter_engine_options* options) {
  BUTTER_TRY(require(options, "options"));
  BUTTER_ASSIGN(const auto known,
                known_part(options, kEngineOptionsBytes, BUTTER_ENGINE_OPTIONS_INIT, "options"));
  BUTTER_TRY(require(known.model, "options->model"));
  EngineOptions engine;
  engine.model = known.model;
  if (known.device != nullptr) engine.device = known.device;
  engine.threads = known.threads;
  engine.max_context = known.max_context;
  engine.cache_budget_bytes = known.cache_budget_bytes;
  engine.prefill_rows = known.prefill_rows;
  if (known.on_load != nullptr) {
    engine.progress = [on_load = known.on_load, user = known.user](int64_t done, int64_t total) {
      on_load(user, done, total);
    };
  }
  return engine;
}

Result<SequenceOptions> sequence_options(const butter_sequence_options* options) {
  BUTTER_ASSIGN(const auto known,
                known_part(options, kSequenceOptionsBytes, BUTTER_SEQUENCE_OPTIONS_INIT, "options"));
  SequenceOptions sequence;
  if (known.kv_cache != nullptr) sequence.kv_cache = known.kv_cache;
  sequence.kv_window_size = known.kv_window_size;
  sequence.kv_window_keep = known.kv_window_keep;
  sequence.max_context = known.max_context;
  sequence.state_snapshots = known.state_snapshots;
  return sequence;
}

Result<SamplingOptions> sampling_options(const butter_sampling_options* options) {
  BUTTER_ASSIGN(const auto known,
                known_part(options, kSamplingOptionsBytes, BUTTER_SAMPLING_OPTIONS_INIT, "sampling"));
  SamplingOptions sampling;
  sampling.temperature = known.temperature;
  sampling.top_k = known.top_k;
  sampling.top_p = known.top_p;
  sampling.min_p = known.min_p;
  sampling.repetition_penalty = known.repetition_penalty;
  sampling.seed = known.seed;
  sampling.presence_penalty = known.presence_penalty;
  sampling.frequency_penalty = known.frequency_penalty;
  sampling.logprobs = known.logprobs;
  if (known.logit_bias_count > 0) BUTTER_TRY(require(known.logit_bias, "sampling->logit_bias"));
  for (size_t i = 0; i < known.logit_bias_count; ++i)
    sampling.logit_bias.push_back({known.logit_bias[i].id, known.logit_bias[i].bias});
  BUTTER_TRY(Sampler::check(sampling));
  return sampling;
}

Result<butter_generate_options> known_generate_options(const butter_generate_options* options) {
  return known_part(options, kGenerateOptionsBytes, BUTTER_GENERATE_OPTIONS_INIT, "options");
}

Result<GenerateOptions> generate_options(const butter_generate_options& options) {
  GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  if (options.max_tokens < -1) {
    return fail(StatusCode::kInvalidArgument, "options->max_tokens is {}; -1 (no limit) or more is expected",
                options.max_tokens);
  }
  BUTTER_ASSIGN(generate.sampling, sampling_options(options.sampling));
  generate.ignore_eos = options.ignore_eos;
  BUTTER_ASSIGN(generate.stop, texts_of(options.stop, options.stop_count, "options->stop"));
  if (options.tools != nullptr) generate.chat.tools = options.tools;
  BUTTER_ASSIGN(const auto arguments, texts_of(options.template_arguments, options.template_argument_count,
                                               "options->template_arguments"));
  for (const std::string& text : arguments) {
    BUTTER_ASSIGN(TemplateArgument argument, read_template_argument(text));
    generate.chat.arguments.push_back(std::move(argument));
  }
  return generate;
}

Status refuse_session_options(const butter_generate_options& options) {
  const char* given = options.stop_count > 0                ? "options->stop"
                      : options.tools != nullptr            ? "options->tools"
                      : options.template_argument_count > 0 ? "options->template_arguments"
                                                            : nullptr;
  if (given == nullptr) return {};
  return fail(StatusCode::kInvalidArgument,
              "{} is given, which a sequence has no use for; a session is expected", given);
}

Result<std::span<const int32_t>> ids_of(const int32_t* ids, size_t count) {
  if (count > 0) BUTTER_TRY(require(ids, "ids"));
  return std::span<const int32_t>(ids, count);
}

Result<std::string_view> text_of(const char* text, size_t bytes) {
  BUTTER_TRY(require(text, "text"));
  return std::string_view(text, bytes == BUTTER_NUL_TERMINATED ? std::strlen(text) : bytes);
}

void give_ids(std::span<const int32_t> from, int32_t** ids, size_t* count) {
  auto* copy = static_cast<int32_t*>(std::malloc(std::max<size_t>(from.size_bytes(), 1)));
  if (copy == nullptr) throw std::bad_alloc();
  if (!from.empty()) std::memcpy(copy, from.data(), from.size_bytes());
  *ids = copy;
  *count = from.size();
}

}  // namespace butter::capi

void butter_free(void* memory) {
  std::free(memory);
}
