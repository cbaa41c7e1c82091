// Samplers and sequences.
#include <chrono>

#include "capi/handles.h"
#include "capi/options.h"

using namespace butter;
using namespace butter::capi;

namespace {

std::unique_ptr<butter_sequence> make_handle(const std::shared_ptr<Engine>& engine, Sequence sequence) {
  return std::unique_ptr<butter_sequence>(new butter_sequence{engine, std::move(sequence), {}});
}

using TokenFn = bool (*)(void* user, int32_t id);

// A sequence's own generation, token by token. Its progress is the sequence's while this lives.
class Generation {
 public:
  Generation(Engine& engine, Sequence& sequence, const butter_generate_options& options,
             GenerateOptions generate)
      : engine_(engine), sequence_(sequence), generate_(std::move(generate)), sampler_(generate_.sampling) {
    if (options.on_prefill == nullptr) return;
    sequence_.set_prefill_progress(
        [on_prefill = options.on_prefill, user = options.user](int64_t done, int64_t total) {
          return on_prefill(user, done, total);
        });
  }
  ~Generation() { sequence_.set_prefill_progress(nullptr); }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  Result<GenerateResult> run(std::span<const int32_t> ids, TokenFn on_token, void* user) {
    result_.prompt_tokens = static_cast<int64_t>(ids.size());
    const auto reason = feed_on(ids, on_token, user);
    if (!reason && reason.error().code() != StatusCode::kCancelled) return fail(reason.error());
    result_.finish_reason = reason.value_or("cancelled");
    if (const Tokenizer* tokenizer = engine_.tokenizer()) {
      StreamDetokenizer text(*tokenizer);
      for (const int32_t id : result_.token_ids) result_.text += text.push(id);
      result_.text += text.finish();
    }
    if (result_.prefill_seconds > 0) result_.decode_seconds = clock_.seconds() - result_.prefill_seconds;
    result_.kv_bytes = sequence_.held_bytes();
    BUTTER_ASSIGN(result_.kv_raw_bytes, sequence_.raw_bytes());
    return std::move(result_);
  }

 private:
  struct Watch {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double seconds() const {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  };

  bool wants_more() const {
    return generate_.max_tokens < 0 || static_cast<int64_t>(result_.token_ids.size()) < generate_.max_tokens;
  }
  bool is_full() const { return !sequence_.unbounded() && sequence_.position() >= sequence_.max_context(); }
  bool ends(int32_t id) const {
    const Tokenizer* tokenizer = engine_.tokenizer();
    return !generate_.ignore_eos && tokenizer != nullptr && tokenizer->is_end(id);
  }

  // Why it ended.
  Result<std::string> feed_on(std::span<const int32_t> ids, TokenFn on_token, void* user) {
    BUTTER_ASSIGN(int32_t next, engine_.forward_sample(sequence_, ids, sampler_));
    result_.prefill_seconds = result_.time_to_first_token = clock_.seconds();
    while (wants_more()) {
      if (ends(next)) return "stop";
      result_.token_ids.push_back(next);
      if (generate_.sampling.logprobs >= 0) result_.logprobs.push_back(sampler_.logprobs());
      if (on_token != nullptr && !on_token(user, next)) return "cancelled";
      if (!wants_more() || is_full()) break;
      const std::vector<int32_t> feed = {next};
      BUTTER_ASSIGN(next, engine_.forward_sample(sequence_, feed, sampler_));
    }
    return "length";
  }

  Engine& engine_;
  Sequence& sequence_;
  GenerateOptions generate_;
  Sampler sampler_;
  GenerateResult result_;
  Watch clock_;
};

}  // namespace

butter_status butter_sampler_create(const butter_sampling_options* options, butter_sampler** sampler) {
  return guarded("butter_sampler_create", [&]() -> Status {
    BUTTER_TRY(require(sampler, "sampler"));
    *sampler = nullptr;
    BUTTER_ASSIGN(const SamplingOptions sampling, sampling_options(options));
    *sampler = new butter_sampler{Sampler(sampling)};
    return {};
  });
}

void butter_sampler_free(butter_sampler* sampler) {
  delete sampler;
}

butter_status butter_sequence_create(butter_engine* engine, const butter_sequence_options* options,
                                     butter_sequence** sequence) {
  return guarded("butter_sequence_create", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    *sequence = nullptr;
    BUTTER_TRY(require(engine, "engine"));
    BUTTER_ASSIGN(const SequenceOptions made, sequence_options(options));
    BUTTER_ASSIGN(Sequence caches, engine->engine->make_layer_caches(made));
    *sequence = make_handle(engine->engine, std::move(caches)).release();
    return {};
  });
}

void butter_sequence_free(butter_sequence* sequence) {
  delete sequence;
}

int64_t butter_sequence_position(const butter_sequence* sequence) {
  int64_t position = -1;
  guarded("butter_sequence_position", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    position = sequence->sequence.position();
    return {};
  });
  return position;
}

int64_t butter_sequence_bytes(const butter_sequence* sequence) {
  int64_t bytes = -1;
  guarded("butter_sequence_bytes", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    bytes = sequence->sequence.held_bytes();
    return {};
  });
  return bytes;
}

butter_status butter_sequence_feed(butter_sequence* sequence, const int32_t* ids, size_t count,
                                   const float** logits) {
  return guarded("butter_sequence_feed", [&]() -> Status {
    if (logits != nullptr) *logits = nullptr;
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
    sequence->logits.resize(static_cast<size_t>(sequence->engine->info().vocabulary));
    BUTTER_TRY(sequence->engine->forward(sequence->sequence, tokens, sequence->logits));
    if (logits != nullptr) *logits = sequence->logits.data();
    return {};
  });
}

butter_status butter_sequence_sample(butter_sequence* sequence, const int32_t* ids, size_t count,
                                     butter_sampler* sampler, int32_t* next) {
  return guarded("butter_sequence_sample", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_TRY(require(sampler, "sampler"));
    BUTTER_TRY(require(next, "next"));
    BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
    BUTTER_ASSIGN(*next, sequence->engine->forward_sample(sequence->sequence, tokens, sampler->sampler));
    return {};
  });
}

butter_status butter_sequence_generate(butter_sequence* sequence, const int32_t* ids, size_t count,
                                       const butter_generate_options* options,
                                       bool (*on_token)(void* user, int32_t id), void* user,
                                       butter_answer** answer) {
  return guarded("butter_sequence_generate", [&]() -> Status {
    if (answer != nullptr) *answer = nullptr;
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
    BUTTER_ASSIGN(const butter_generate_options known, known_generate_options(options));
    BUTTER_ASSIGN(GenerateOptions generate, generate_options(known));
    BUTTER_TRY(refuse_session_options(known));
    Generation generation(*sequence->engine, sequence->sequence, known, std::move(generate));
    BUTTER_ASSIGN(GenerateResult result, generation.run(tokens, on_token, user));
    if (answer != nullptr) *answer = make_answer(std::move(result)).release();
    return {};
  });
}

butter_status butter_sequence_fork(const butter_sequence* sequence, butter_sequence** fork) {
  return guarded("butter_sequence_fork", [&]() -> Status {
    BUTTER_TRY(require(fork, "fork"));
    *fork = nullptr;
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_ASSIGN(Sequence second, sequence->sequence.fork());
    *fork = make_handle(sequence->engine, std::move(second)).release();
    return {};
  });
}

butter_status butter_sequence_truncate(butter_sequence* sequence, int64_t position, int64_t* reached) {
  return guarded("butter_sequence_truncate", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_ASSIGN(const int64_t now, sequence->sequence.truncate(position));
    if (reached != nullptr) *reached = now;
    return {};
  });
}

butter_status butter_sequence_save(const butter_sequence* sequence, const char* path, const int32_t* ids,
                                   size_t count) {
  return guarded("butter_sequence_save", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    BUTTER_TRY(require(path, "path"));
    BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
    return sequence->sequence.save(path, tokens);
  });
}

butter_status butter_sequence_load(butter_engine* engine, const char* path,
                                   const butter_sequence_options* options, butter_sequence** sequence,
                                   int32_t** ids, size_t* count) {
  return guarded("butter_sequence_load", [&]() -> Status {
    BUTTER_TRY(require(sequence, "sequence"));
    *sequence = nullptr;
    if (ids != nullptr) *ids = nullptr;
    if (count != nullptr) *count = 0;
    BUTTER_TRY(require(engine, "engine"));
    BUTTER_TRY(require(path, "path"));
    if (ids != nullptr) BUTTER_TRY(require(count, "count"));
    BUTTER_ASSIGN(const SequenceOptions made, sequence_options(options));
    std::vector<int32_t> tokens;
    BUTTER_ASSIGN(Sequence caches, engine->engine->load_sequence(path, made, &tokens));
    auto handle = make_handle(engine->engine, std::move(caches));
    if (ids != nullptr) give_ids(tokens, ids, count);
    *sequence = handle.release();
    return {};
  });
}
