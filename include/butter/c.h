// The C interface of Butter: engines, sequences, samplers, sessions, tokens. C11 and C++.
//
//   butter_engine_options options = BUTTER_ENGINE_OPTIONS_INIT;
//   options.model = "smollm2";
//   butter_engine *engine = NULL;
//   if (butter_engine_open(&options, &engine) != BUTTER_OK) puts(butter_last_error());
//
// Errors. What can go wrong returns a butter_status, and leaves a sentence in butter_last_error(). Getters
// that return something else return what their comment says. A NULL where none is allowed is
// BUTTER_INVALID_ARGUMENT and does no harm, except that a free function takes NULL and does nothing. No C++
// exception leaves a function; callbacks must not throw, and must not longjmp.
//
// Memory. A handle that a function gives (butter_engine **, ...) is the caller's, who ends it with its free
// function; on an error it is set to NULL. Handles may be freed in any order: a sequence or session keeps its
// engine alive. Arrays and texts given by `T **` are the caller's, to be released with butter_free(); those
// given by `const T **`, or returned as const, belong to the handle that was asked. What is passed in is
// copied where it is needed after the call, and stays the caller's.
//
// Structs. `size` is sizeof of the struct, as the program was compiled; the INIT macros set it and every
// default. A later library takes the structs of this one, and may have more fields at the end.
//
// Threads. An engine may be used by several threads at once: its steps run one at a time. Any other handle
// belongs to one thread at a time. Callbacks come on the thread that called.
//
// Texts are UTF-8. `bytes` is a text's length without its end, or BUTTER_NUL_TERMINATED.
#ifndef BUTTER_C_H
#define BUTTER_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "butter/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BUTTER_NUL_TERMINATED ((size_t)-1)

typedef struct butter_engine butter_engine;      // a loaded model
typedef struct butter_sequence butter_sequence;  // the cache of one stream of tokens, with its position
typedef struct butter_sampler butter_sampler;    // chooses the next token
typedef struct butter_session butter_session;    // one conversation: a cache that is kept between turns
typedef struct butter_answer butter_answer;      // what was generated

// --- Errors

typedef enum butter_status {
  BUTTER_OK = 0,
  BUTTER_INVALID_ARGUMENT = 1,  // an option or a request is wrong
  BUTTER_NOT_FOUND = 2,         // a file, a model, a tensor is missing
  BUTTER_CORRUPT = 3,           // a file or a JSON text contradicts itself or its format
  BUTTER_UNSUPPORTED = 4,       // well formed, and Butter does not do it
  BUTTER_OUT_OF_MEMORY = 5,     // more bytes than the budget or the machine has
  BUTTER_LIMIT = 6,             // a bound that was asked for is reached
  BUTTER_CANCELLED = 7,         // a callback asked to stop
  BUTTER_NUMERIC = 8,           // NaN or infinity where a step cannot go on
  BUTTER_IO = 9,                // the operating system refused a read, a write or a map
  BUTTER_STALE = 10,            // a handle whose object is gone
  BUTTER_INTERNAL = 11          // a defect of the library
} butter_status;

// "invalid argument"; for any other number "unknown".
BUTTER_API const char* butter_status_name(int status);
// The sentence of the last call on this thread that failed, or "". Valid until the next one that fails.
BUTTER_API const char* butter_last_error(void);
// "0.1.0"
BUTTER_API const char* butter_version(void);
// Releases an array or a text that is the caller's.
BUTTER_API void butter_free(void* memory);

// --- Engines

typedef struct butter_engine_options {
  size_t size;
  const char* model;           // a file, a folder, or the name of a model that was fetched
  const char* device;          // NULL: "cpu"
  int64_t max_context;         // positions of the longest sequence; 0: what the model advertises
  int64_t cache_budget_bytes;  // of all sequences together; 0: what is free on the machine
  int32_t threads;             // 0: as many as the process may use
  int32_t prefill_rows;        // tokens of one prefill step: a multiple of 64
  // Progress of loading, or NULL.
  void (*on_load)(void* user, int64_t done_bytes, int64_t total_bytes);
  void* user;
} butter_engine_options;
#define BUTTER_ENGINE_OPTIONS_INIT \
  { sizeof(butter_engine_options), NULL, NULL, 0, 0, 0, 512, NULL, NULL }

BUTTER_API butter_status butter_engine_open(const butter_engine_options* options, butter_engine** engine);
BUTTER_API void butter_engine_free(butter_engine* engine);

typedef struct butter_model_info {
  size_t size;
  const char* name;    // of the file or folder; texts belong to the engine
  const char* family;  // "llama"
  const char* device;
  const char* isa;
  int32_t threads;
  int32_t layers;
  int32_t vocabulary;  // logits of a position
  int32_t hidden;
  int64_t max_positions;
  int64_t file_bytes;
  int64_t weight_bytes;
  int64_t workspace_bytes;
  bool has_tokenizer;
  bool has_chat_template;
} butter_model_info;
#define BUTTER_MODEL_INFO_INIT \
  { sizeof(butter_model_info), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, false, false }

BUTTER_API butter_status butter_engine_info(const butter_engine* engine, butter_model_info* info);

// --- Plans

typedef struct butter_sequence_options {
  size_t size;
  const char* kv_cache;     // scheme: "raw", "aura", "affine4", "k=...,v=..."; NULL: "raw"
  int64_t kv_window_size;   // positions that stay visible; 0: all
  int64_t kv_window_keep;   // of them, the first positions, which never leave
  int64_t max_context;      // 0: what the engine was opened for
  int32_t state_snapshots;  // of recurrent layers: copies of their state that truncating can go back to
} butter_sequence_options;
#define BUTTER_SEQUENCE_OPTIONS_INIT \
  { sizeof(butter_sequence_options), NULL, 0, 4, 0, 3 }

// Bytes of a sequence's cache at its max_context.
typedef struct butter_plan {
  size_t size;
  int64_t max_context;
  int64_t total_bytes;    // what it holds
  int64_t prefill_bytes;  // more, while a prefill step is under way
  int64_t raw_bytes;      // total_bytes of the raw cache with the same window and context
  int64_t state_bytes;    // of total_bytes: recurrent state, with its snapshots
  int64_t bytes_per_token;
  double ratio_sealed;      // raw bytes / bytes of a sealed page
  double ratio_at_context;  // raw_bytes / total_bytes
} butter_plan;
#define BUTTER_PLAN_INIT \
  { sizeof(butter_plan), 0, 0, 0, 0, 0, 0, 0, 0 }

// `options` may be NULL: the defaults.
BUTTER_API butter_status butter_engine_plan(const butter_engine* engine,
                                            const butter_sequence_options* options, butter_plan* plan);
// The same from the model's header alone: nothing is loaded.
BUTTER_API butter_status butter_model_plan(const char* model, const butter_sequence_options* options,
                                           butter_plan* plan);

// --- Tokens. BUTTER_UNSUPPORTED where the model has no tokenizer.

enum {
  BUTTER_TOKENIZE_NO_BOS = 1,       // leave out the BOS that the model may ask for
  BUTTER_TOKENIZE_SPECIAL = 2,      // special tokens in the text are those tokens, not text
  BUTTER_DETOKENIZE_NO_SPECIAL = 1  // special tokens give no text
};

// `ids` is released with butter_free(), also where it is of no length.
BUTTER_API butter_status butter_tokenize(const butter_engine* engine, const char* text, size_t bytes,
                                         uint32_t flags, int32_t** ids, size_t* count);
// `text` ends with a zero byte that is not counted, is released with butter_free(), and may be malformed
// UTF-8 where the ids are. `bytes` may be NULL.
BUTTER_API butter_status butter_detokenize(const butter_engine* engine, const int32_t* ids, size_t count,
                                           uint32_t flags, char** text, size_t* bytes);
// Whether a token ends a turn. False for a NULL engine, and where there is no tokenizer.
BUTTER_API bool butter_is_end_token(const butter_engine* engine, int32_t id);

// --- Sampling

typedef struct butter_logit_bias {
  int32_t id;
  float bias;  // -100 to 100, or -INFINITY, which bans the token
} butter_logit_bias;

typedef struct butter_sampling_options {
  size_t size;
  float temperature;         // 0: the most likely token
  float top_p;               // 1: no limit
  float min_p;               // 0: no limit
  float repetition_penalty;  // 1: none
  float presence_penalty;    // -2 to 2, over generated tokens, as OpenAI's API defines it
  float frequency_penalty;   // likewise
  int32_t top_k;             // 0: no limit
  int32_t logprobs;          // likeliest tokens to list beside each chosen one; -1: nothing is kept
  uint64_t seed;
  const butter_logit_bias* logit_bias;
  size_t logit_bias_count;
} butter_sampling_options;
#define BUTTER_SAMPLING_OPTIONS_INIT \
  { sizeof(butter_sampling_options), 0.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0, -1, 0, NULL, 0 }

// `options` may be NULL: greedy.
BUTTER_API butter_status butter_sampler_create(const butter_sampling_options* options,
                                               butter_sampler** sampler);
BUTTER_API void butter_sampler_free(butter_sampler* sampler);

typedef struct butter_generate_options {
  size_t size;
  int64_t max_tokens;                       // -1: until the answer ends or the context is full
  const butter_sampling_options* sampling;  // NULL: greedy
  bool ignore_eos;
  // Of sessions alone:
  const char* const* stop;  // texts that end the answer and are not part of it
  size_t stop_count;
  const char* tools;                      // a JSON array for the chat template, or NULL
  const char* const* template_arguments;  // "NAME=VALUE" for the chat template; VALUE is JSON, else a text
  size_t template_argument_count;
  // Progress of the prompt, or NULL. Return false to stop.
  bool (*on_prefill)(void* user, int64_t done, int64_t total);
  void* user;  // of on_prefill
} butter_generate_options;
#define BUTTER_GENERATE_OPTIONS_INIT \
  { sizeof(butter_generate_options), -1, NULL, false, NULL, 0, NULL, NULL, 0, NULL, NULL }

// --- Sequences

BUTTER_API butter_status butter_sequence_create(butter_engine* engine, const butter_sequence_options* options,
                                                butter_sequence** sequence);
BUTTER_API void butter_sequence_free(butter_sequence* sequence);
// Tokens fed so far; -1 for NULL.
BUTTER_API int64_t butter_sequence_position(const butter_sequence* sequence);
// Bytes that its cache holds now; -1 for NULL.
BUTTER_API int64_t butter_sequence_bytes(const butter_sequence* sequence);

// Feeds tokens. `logits`, unless NULL, gets the [vocabulary] logits after the last one; they belong to the
// sequence until it is fed again or freed.
BUTTER_API butter_status butter_sequence_feed(butter_sequence* sequence, const int32_t* ids, size_t count,
                                              const float** logits);
// Feeds tokens and chooses the next one.
BUTTER_API butter_status butter_sequence_sample(butter_sequence* sequence, const int32_t* ids, size_t count,
                                                butter_sampler* sampler, int32_t* next);
// Feeds tokens and goes on until max_tokens, a token that ends a turn, or the end of the context. `on_token`,
// unless NULL, sees each token, and returns false to stop. The last token of the answer has not been fed:
// what goes on begins with it. `options` may be NULL; `answer` too.
BUTTER_API butter_status butter_sequence_generate(butter_sequence* sequence, const int32_t* ids, size_t count,
                                                  const butter_generate_options* options,
                                                  bool (*on_token)(void* user, int32_t id), void* user,
                                                  butter_answer** answer);

// A second sequence with the same past. Full pages are shared, not copied.
BUTTER_API butter_status butter_sequence_fork(const butter_sequence* sequence, butter_sequence** fork);
// Goes back to a position, or the nearest below it that can be reached: `reached`, unless NULL.
BUTTER_API butter_status butter_sequence_truncate(butter_sequence* sequence, int64_t position,
                                                  int64_t* reached);
// Writes the cache to a file: whole, or not at all. `ids`: what was fed, one for each position; or NULL and
// 0.
BUTTER_API butter_status butter_sequence_save(const butter_sequence* sequence, const char* path,
                                              const int32_t* ids, size_t count);
// A sequence that goes on where a saved one ended. `options` must name its scheme and window. `ids` and
// `count`, unless NULL, get what was saved with it; released with butter_free().
BUTTER_API butter_status butter_sequence_load(butter_engine* engine, const char* path,
                                              const butter_sequence_options* options,
                                              butter_sequence** sequence, int32_t** ids, size_t* count);

// --- Sessions

// A piece of the answer as it comes: whole characters, `bytes` of them, no zero byte at the end. Return false
// to stop.
typedef bool (*butter_text_fn)(void* user, const char* text, size_t bytes);

BUTTER_API butter_status butter_session_create(butter_engine* engine, const butter_sequence_options* options,
                                               butter_session** session);
BUTTER_API void butter_session_free(butter_session* session);

// Continues a conversation by the model's chat template. `messages` is all of it: a JSON array in the form of
// OpenAI's API. What the cache holds of it already is not read again. `options`, `on_text` and `answer` may
// be NULL. A callback that stops the answer is no error: the answer's finish says so.
BUTTER_API butter_status butter_session_chat(butter_session* session, const char* messages,
                                             const butter_generate_options* options, butter_text_fn on_text,
                                             void* user, butter_answer** answer);
// Plain completion of a text.
BUTTER_API butter_status butter_session_complete(butter_session* session, const char* text, size_t bytes,
                                                 const butter_generate_options* options,
                                                 butter_text_fn on_text, void* user, butter_answer** answer);
// Completion of token ids; works without a tokenizer, and then no text comes.
BUTTER_API butter_status butter_session_complete_ids(butter_session* session, const int32_t* ids,
                                                     size_t count, const butter_generate_options* options,
                                                     butter_text_fn on_text, void* user,
                                                     butter_answer** answer);
// The tokens that the cache holds; they belong to the session until its next call.
BUTTER_API butter_status butter_session_tokens(const butter_session* session, const int32_t** ids,
                                               size_t* count);
// The cache and its tokens in a file, and back: the next turn reads only what it does not hold.
BUTTER_API butter_status butter_session_save(const butter_session* session, const char* path);
BUTTER_API butter_status butter_session_load(butter_session* session, const char* path);
// Forgets the conversation.
BUTTER_API butter_status butter_session_reset(butter_session* session);

// --- Answers

typedef enum butter_finish {
  BUTTER_FINISH_STOP = 0,         // a token that ends a turn
  BUTTER_FINISH_STOP_STRING = 1,  // one of `stop`
  BUTTER_FINISH_LENGTH = 2,       // max_tokens, or the context is full
  BUTTER_FINISH_CANCELLED = 3     // a callback returned false
} butter_finish;

typedef struct butter_answer_info {
  size_t size;
  butter_finish finish;
  int64_t prompt_tokens;
  int64_t reused_tokens;  // of the prompt, found in the cache
  double prefill_seconds;
  double decode_seconds;
  double time_to_first_token;  // seconds
  int64_t kv_bytes;
  int64_t kv_raw_bytes;
} butter_answer_info;
#define BUTTER_ANSWER_INFO_INIT \
  { sizeof(butter_answer_info), BUTTER_FINISH_STOP, 0, 0, 0, 0, 0, 0, 0 }

typedef struct butter_token_logprob {
  int32_t id;
  float logprob;  // natural logarithm, of the model's own distribution
} butter_token_logprob;

BUTTER_API void butter_answer_free(butter_answer* answer);
// The text, with a zero byte at the end; `bytes` may be NULL. NULL for NULL.
BUTTER_API const char* butter_answer_text(const butter_answer* answer, size_t* bytes);
// The generated tokens. NULL for NULL; may be NULL where there are none.
BUTTER_API const int32_t* butter_answer_ids(const butter_answer* answer, size_t* count);
BUTTER_API butter_status butter_answer_get_info(const butter_answer* answer, butter_answer_info* info);
// Of token number `index` of the answer, where the sampling asked for logprobs: its own, and the likeliest in
// its place, likeliest first. `top` and `count` may be NULL.
BUTTER_API butter_status butter_answer_logprobs(const butter_answer* answer, size_t index,
                                                butter_token_logprob* chosen,
                                                const butter_token_logprob** top, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
