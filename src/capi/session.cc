// Sessions.
#include "capi/handles.h"
#include "capi/options.h"

using namespace butter;
using namespace butter::capi;

namespace {

struct Reader {
  butter_text_fn on_text;
  void* user;
};

// What all ways to continue a session share. `continue_with` is given the options and the stream.
template <typename ContinueWith>
Status generate(butter_session* session, const butter_generate_options* options, Reader reader,
                butter_answer** answer, ContinueWith continue_with) {
  if (answer != nullptr) *answer = nullptr;
  BUTTER_TRY(require(session, "session"));
  BUTTER_ASSIGN(const butter_generate_options known, known_generate_options(options));
  BUTTER_ASSIGN(GenerateOptions generate, generate_options(known));
  std::atomic<bool> cancel = false;
  generate.cancel = &cancel;
  if (known.on_prefill != nullptr) {
    generate.on_prefill = [&](int64_t done, int64_t total) {
      if (!known.on_prefill(known.user, done, total)) cancel = true;
    };
  }
  TextFn on_text;
  if (reader.on_text != nullptr) {
    on_text = [&](std::string_view piece) { return reader.on_text(reader.user, piece.data(), piece.size()); };
  }
  BUTTER_ASSIGN(GenerateResult result, continue_with(session->session, generate, on_text));
  if (answer != nullptr) *answer = make_answer(std::move(result)).release();
  return {};
}

}  // namespace

butter_status butter_session_create(butter_engine* engine, const butter_sequence_options* options,
                                    butter_session** session) {
  return guarded("butter_session_create", [&]() -> Status {
    BUTTER_TRY(require(session, "session"));
    *session = nullptr;
    BUTTER_TRY(require(engine, "engine"));
    BUTTER_ASSIGN(const SequenceOptions made, sequence_options(options));
    BUTTER_ASSIGN(Session created, Session::create(*engine->engine, made));
    *session = new butter_session{engine->engine, std::move(created)};
    return {};
  });
}

void butter_session_free(butter_session* session) {
  delete session;
}

butter_status butter_session_chat(butter_session* session, const char* messages,
                                  const butter_generate_options* options, butter_text_fn on_text, void* user,
                                  butter_answer** answer) {
  return guarded("butter_session_chat", [&] {
    return generate(session, options, {on_text, user}, answer,
                    [&](Session& continued, const GenerateOptions& generate,
                        const TextFn& stream) -> Result<GenerateResult> {
                      BUTTER_TRY(require(messages, "messages"));
                      BUTTER_ASSIGN(const auto read, read_messages(messages));
                      return continued.chat(read, generate, stream);
                    });
  });
}

butter_status butter_session_complete(butter_session* session, const char* text, size_t bytes,
                                      const butter_generate_options* options, butter_text_fn on_text,
                                      void* user, butter_answer** answer) {
  return guarded("butter_session_complete", [&] {
    return generate(session, options, {on_text, user}, answer,
                    [&](Session& continued, const GenerateOptions& generate,
                        const TextFn& stream) -> Result<GenerateResult> {
                      BUTTER_ASSIGN(const std::string_view prompt, text_of(text, bytes));
                      return continued.complete(prompt, generate, stream);
                    });
  });
}

butter_status butter_session_complete_ids(butter_session* session, const int32_t* ids, size_t count,
                                          const butter_generate_options* options, butter_text_fn on_text,
                                          void* user, butter_answer** answer) {
  return guarded("butter_session_complete_ids", [&] {
    return generate(session, options, {on_text, user}, answer,
                    [&](Session& continued, const GenerateOptions& generate,
                        const TextFn& stream) -> Result<GenerateResult> {
                      BUTTER_ASSIGN(const auto tokens, ids_of(ids, count));
                      return continued.complete(std::vector<int32_t>(tokens.begin(), tokens.end()), generate,
                                                stream);
                    });
  });
}

butter_status butter_session_tokens(const butter_session* session, const int32_t** ids, size_t* count) {
  return guarded("butter_session_tokens", [&]() -> Status {
    BUTTER_TRY(require(ids, "ids"));
    BUTTER_TRY(require(count, "count"));
    *ids = nullptr;
    *count = 0;
    BUTTER_TRY(require(session, "session"));
    *ids = session->session.tokens().data();
    *count = session->session.tokens().size();
    return {};
  });
}

butter_status butter_session_save(const butter_session* session, const char* path) {
  return guarded("butter_session_save", [&]() -> Status {
    BUTTER_TRY(require(session, "session"));
    BUTTER_TRY(require(path, "path"));
    return session->session.save_cache(path);
  });
}

butter_status butter_session_load(butter_session* session, const char* path) {
  return guarded("butter_session_load", [&]() -> Status {
    BUTTER_TRY(require(session, "session"));
    BUTTER_TRY(require(path, "path"));
    return session->session.load_cache(path);
  });
}

butter_status butter_session_reset(butter_session* session) {
  return guarded("butter_session_reset", [&]() -> Status {
    BUTTER_TRY(require(session, "session"));
    return session->session.reset();
  });
}
