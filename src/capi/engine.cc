// Engines, plans, tokens.
#include <cstdlib>

#include "butter/inspect.h"
#include "capi/handles.h"
#include "capi/options.h"

using namespace butter;
using namespace butter::capi;

namespace {

constexpr size_t kModelInfoBytes = sizeof(butter_model_info);
constexpr size_t kPlanBytes = sizeof(butter_plan);

Result<const Tokenizer*> tokenizer_of(const butter_engine* engine) {
  BUTTER_TRY(require(engine, "engine"));
  const Tokenizer* tokenizer = engine->engine->tokenizer();
  if (tokenizer == nullptr)
    return fail(StatusCode::kUnsupported, "{} has no tokenizer; token ids are all it takes",
                engine->engine->info().name);
  return tokenizer;
}

Status check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return fail(StatusCode::kInvalidArgument, "flags are {:#x}; none but {:#x} are expected", flags, known);
}

Status give_plan(const CachePlan& from, butter_plan* plan) {
  butter_plan filled = BUTTER_PLAN_INIT;
  filled.max_context = from.max_context;
  filled.total_bytes = from.total_bytes;
  filled.prefill_bytes = from.prefill_bytes;
  filled.raw_bytes = from.raw_bytes;
  filled.state_bytes = from.recurrent_bytes + from.snapshot_bytes;
  filled.bytes_per_token = from.bytes_per_token;
  filled.ratio_sealed = from.ratio_sealed;
  filled.ratio_at_context = from.ratio_at_context;
  return give_part(plan, kPlanBytes, filled, "plan");
}

}  // namespace

butter_status butter_engine_open(const butter_engine_options* options, butter_engine** engine) {
  return guarded("butter_engine_open", [&]() -> Status {
    BUTTER_TRY(require(engine, "engine"));
    *engine = nullptr;
    BUTTER_ASSIGN(const EngineOptions opened, engine_options(options));
    auto handle = std::make_unique<butter_engine>();
    BUTTER_ASSIGN(handle->engine, Engine::load(opened));
    BUTTER_ASSIGN(const auto chat_template, handle->engine->chat_template());
    handle->has_chat_template = chat_template.has_value();
    *engine = handle.release();
    return {};
  });
}

void butter_engine_free(butter_engine* engine) {
  delete engine;
}

butter_status butter_engine_info(const butter_engine* engine, butter_model_info* info) {
  return guarded("butter_engine_info", [&]() -> Status {
    BUTTER_TRY(require(engine, "engine"));
    const ModelInfo& from = engine->engine->info();
    butter_model_info filled = BUTTER_MODEL_INFO_INIT;
    filled.name = from.name.c_str();
    filled.family = from.family.c_str();
    filled.device = from.device.c_str();
    filled.isa = from.isa.c_str();
    filled.threads = from.threads;
    filled.layers = from.layers;
    filled.vocabulary = from.vocabulary;
    filled.hidden = from.hidden;
    filled.max_positions = from.max_positions;
    filled.file_bytes = from.file_bytes;
    filled.weight_bytes = from.weight_bytes;
    filled.workspace_bytes = from.workspace_bytes;
    filled.has_tokenizer = engine->engine->tokenizer() != nullptr;
    filled.has_chat_template = engine->has_chat_template;
    return give_part(info, kModelInfoBytes, filled, "info");
  });
}

butter_status butter_engine_plan(const butter_engine* engine, const butter_sequence_options* options,
                                 butter_plan* plan) {
  return guarded("butter_engine_plan", [&]() -> Status {
    BUTTER_TRY(require(engine, "engine"));
    BUTTER_ASSIGN(const SequenceOptions sequence, sequence_options(options));
    BUTTER_ASSIGN(const CachePlan planned, engine->engine->plan_caches(sequence));
    return give_plan(planned, plan);
  });
}

butter_status butter_model_plan(const char* model, const butter_sequence_options* options,
                                butter_plan* plan) {
  return guarded("butter_model_plan", [&]() -> Status {
    BUTTER_TRY(require(model, "model"));
    BUTTER_ASSIGN(const SequenceOptions sequence, sequence_options(options));
    BUTTER_ASSIGN(const CachePlan planned, plan_model(model, sequence));
    return give_plan(planned, plan);
  });
}

butter_status butter_tokenize(const butter_engine* engine, const char* text, size_t bytes, uint32_t flags,
                              int32_t** ids, size_t* count) {
  return guarded("butter_tokenize", [&]() -> Status {
    BUTTER_TRY(require(ids, "ids"));
    BUTTER_TRY(require(count, "count"));
    *ids = nullptr;
    *count = 0;
    BUTTER_ASSIGN(const Tokenizer* tokenizer, tokenizer_of(engine));
    BUTTER_ASSIGN(const std::string_view from, text_of(text, bytes));
    BUTTER_TRY(check_flags(flags, BUTTER_TOKENIZE_NO_BOS | BUTTER_TOKENIZE_SPECIAL));
    EncodeOptions options;
    options.add_bos = (flags & BUTTER_TOKENIZE_NO_BOS) == 0;
    options.add_eos = false;
    options.parse_special = (flags & BUTTER_TOKENIZE_SPECIAL) != 0;
    BUTTER_ASSIGN(const std::vector<int32_t> tokens, tokenizer->encode(from, options));
    give_ids(tokens, ids, count);
    return {};
  });
}

butter_status butter_detokenize(const butter_engine* engine, const int32_t* ids, size_t count, uint32_t flags,
                                char** text, size_t* bytes) {
  return guarded("butter_detokenize", [&]() -> Status {
    BUTTER_TRY(require(text, "text"));
    *text = nullptr;
    if (bytes != nullptr) *bytes = 0;
    BUTTER_ASSIGN(const Tokenizer* tokenizer, tokenizer_of(engine));
    BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
    BUTTER_TRY(check_flags(flags, BUTTER_DETOKENIZE_NO_SPECIAL));
    DecodeOptions options;
    options.skip_special = (flags & BUTTER_DETOKENIZE_NO_SPECIAL) != 0;
    const std::string decoded = tokenizer->decode(tokens, options);
    auto* copy = static_cast<char*>(std::malloc(decoded.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, decoded.c_str(), decoded.size() + 1);
    *text = copy;
    if (bytes != nullptr) *bytes = decoded.size();
    return {};
  });
}

bool butter_is_end_token(const butter_engine* engine, int32_t id) {
  if (engine == nullptr || engine->engine->tokenizer() == nullptr) return false;
  return engine->engine->tokenizer()->is_end(id);
}
