/* The C interface as a C program uses it: what it gives, what it refuses, who frees what.
 *
 *   capi_test MODEL CHAT_MODEL      the tiny Llama without a tokenizer; the same with one and a chat template
 *
 * Leaks and wrong accesses show in the sanitizers' builds. */
#include <butter/c.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, butter_last_error()); \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == BUTTER_OK)
#define EXPECT_REFUSED(call, status, word)             \
  do {                                                 \
    EXPECT((call) == (status));                        \
    EXPECT(strstr(butter_last_error(), word) != NULL); \
  } while (0)

enum { kPrompt = 20, kVocabulary = 256 };

static void fill_ids(int32_t* ids, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    ids[i] = (int32_t)(seed >> 24);
  }
}

static butter_engine* open_engine(const char* model) {
  butter_engine_options options = BUTTER_ENGINE_OPTIONS_INIT;
  options.model = model;
  options.device = "reference";
  options.cache_budget_bytes = (int64_t)64 << 20;
  butter_engine* engine = NULL;
  EXPECT_OK(butter_engine_open(&options, &engine));
  if (engine == NULL) exit(1);
  return engine;
}

static int32_t most_likely(const float* logits) {
  int32_t best = 0;
  for (int32_t id = 1; id < kVocabulary; ++id) {
    if (logits[id] > logits[best]) best = id;
  }
  return best;
}

/* --- Opening */

static void count_calls(void* user, int64_t done, int64_t total) {
  EXPECT(done >= 0 && done <= total);
  ++*(int*)user;
}

static void test_opening(const char* model) {
  butter_engine_options options = BUTTER_ENGINE_OPTIONS_INIT;
  butter_engine* engine = (butter_engine*)&options;
  int calls = 0;
  EXPECT_REFUSED(butter_engine_open(&options, &engine), BUTTER_INVALID_ARGUMENT, "options->model is NULL");
  EXPECT(engine == NULL);
  EXPECT_REFUSED(butter_engine_open(NULL, &engine), BUTTER_INVALID_ARGUMENT, "options is NULL");
  EXPECT_REFUSED(butter_engine_open(&options, NULL), BUTTER_INVALID_ARGUMENT, "engine is NULL");
  options.model = "/nowhere/at/all";
  EXPECT_REFUSED(butter_engine_open(&options, &engine), BUTTER_NOT_FOUND, "/nowhere/at/all");
  options.model = model;
  options.device = "abacus";
  EXPECT_REFUSED(butter_engine_open(&options, &engine), BUTTER_INVALID_ARGUMENT, "abacus");
  options.device = NULL;
  options.prefill_rows = 100;
  EXPECT_REFUSED(butter_engine_open(&options, &engine), BUTTER_INVALID_ARGUMENT, "multiple of 64");
  options.prefill_rows = 64;
  options.on_load = count_calls;
  options.user = &calls;
  EXPECT_OK(butter_engine_open(&options, &engine));
  EXPECT(calls > 0);

  butter_model_info info = BUTTER_MODEL_INFO_INIT;
  EXPECT_OK(butter_engine_info(engine, &info));
  EXPECT(strcmp(info.name, "llama") == 0 && strcmp(info.family, "llama") == 0 &&
         strcmp(info.device, "cpu") == 0);
  EXPECT(info.layers == 4 && info.vocabulary == kVocabulary && info.hidden == 64 &&
         info.max_positions == 512);
  EXPECT(info.weight_bytes > 0 && !info.has_tokenizer && !info.has_chat_template);
  EXPECT_REFUSED(butter_engine_info(NULL, &info), BUTTER_INVALID_ARGUMENT, "engine is NULL");
  EXPECT_REFUSED(butter_engine_info(engine, NULL), BUTTER_INVALID_ARGUMENT, "info is NULL");
  butter_engine_free(engine);
  butter_engine_free(NULL);
  EXPECT(strncmp(butter_version(), "0.", 2) == 0);
  EXPECT(strcmp(butter_status_name(BUTTER_OK), "ok") == 0);
  EXPECT(strcmp(butter_status_name(BUTTER_INVALID_ARGUMENT), "invalid argument") == 0);
  EXPECT(strcmp(butter_status_name(1000), "unknown") == 0);
}

/* Structs of older and newer programs. */
static void test_struct_sizes(butter_engine* engine) {
  struct {
    butter_sequence_options known;
    int64_t later[2];
  } newer = {BUTTER_SEQUENCE_OPTIONS_INIT, {0, 0}};
  butter_plan plan = BUTTER_PLAN_INIT;
  newer.known.size = sizeof newer;
  EXPECT_OK(butter_engine_plan(engine, &newer.known, &plan));
  newer.later[1] = 1;
  EXPECT_REFUSED(butter_engine_plan(engine, &newer.known, &plan), BUTTER_UNSUPPORTED, "not zero");
  butter_sequence_options options = BUTTER_SEQUENCE_OPTIONS_INIT;
  options.size = 0;
  EXPECT_REFUSED(butter_engine_plan(engine, &options, &plan), BUTTER_INVALID_ARGUMENT, "size is 0");
  options.size = SIZE_MAX;
  EXPECT_REFUSED(butter_engine_plan(engine, &options, &plan), BUTTER_INVALID_ARGUMENT, "size is");
  plan.size = sizeof plan - 1;
  EXPECT_REFUSED(butter_engine_plan(engine, NULL, &plan), BUTTER_INVALID_ARGUMENT, "plan->size");
}

static void test_plans(const char* model, butter_engine* engine) {
  butter_plan plan = BUTTER_PLAN_INIT, before = BUTTER_PLAN_INIT;
  butter_sequence_options options = BUTTER_SEQUENCE_OPTIONS_INIT;
  EXPECT_OK(butter_engine_plan(engine, NULL, &plan));
  EXPECT(plan.max_context == 512 && plan.total_bytes == plan.raw_bytes && plan.total_bytes > 0);
  EXPECT(plan.state_bytes == 0);
  options.kv_cache = "affine4";
  options.max_context = 256;
  EXPECT_OK(butter_engine_plan(engine, &options, &plan));
  EXPECT(plan.ratio_sealed > 2 && plan.total_bytes < plan.raw_bytes && plan.max_context == 256);
  options.state_snapshots = -1;
  EXPECT(butter_engine_plan(engine, &options, &plan) == BUTTER_INVALID_ARGUMENT);
  options.state_snapshots = 3;
  options.kv_cache = "nothing9";
  EXPECT_REFUSED(butter_engine_plan(engine, &options, &plan), BUTTER_INVALID_ARGUMENT, "nothing9");
  EXPECT_REFUSED(butter_engine_plan(NULL, NULL, &plan), BUTTER_INVALID_ARGUMENT, "engine is NULL");
  EXPECT_REFUSED(butter_engine_plan(engine, NULL, NULL), BUTTER_INVALID_ARGUMENT, "plan is NULL");
  EXPECT_OK(butter_model_plan(model, NULL, &before));
  EXPECT(before.max_context == 512 && before.total_bytes > 0);
  EXPECT_REFUSED(butter_model_plan(NULL, NULL, &before), BUTTER_INVALID_ARGUMENT, "model is NULL");
  EXPECT_REFUSED(butter_model_plan("/nowhere", NULL, &before), BUTTER_NOT_FOUND, "/nowhere");
}

/* --- Sequences */

static void test_feeding_and_forks(butter_engine* engine) {
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 1);
  butter_sequence *sequence = NULL, *fork = NULL;
  EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
  EXPECT(butter_sequence_position(sequence) == 0);
  const float* logits = NULL;
  EXPECT_OK(butter_sequence_feed(sequence, ids, kPrompt, &logits));
  EXPECT(butter_sequence_position(sequence) == kPrompt && butter_sequence_bytes(sequence) > 0);
  const int32_t expected = most_likely(logits);

  EXPECT_OK(butter_sequence_fork(sequence, &fork));
  EXPECT_OK(butter_sequence_feed(fork, ids, 3, NULL));
  EXPECT(butter_sequence_position(fork) == kPrompt + 3 && butter_sequence_position(sequence) == kPrompt);
  EXPECT(most_likely(logits) == expected); /* the first one's are its own */

  int64_t reached = -1;
  EXPECT_OK(butter_sequence_truncate(fork, kPrompt - 1, &reached));
  EXPECT(reached == kPrompt - 1 && butter_sequence_position(fork) == reached);
  EXPECT_OK(butter_sequence_truncate(fork, kPrompt - 1, NULL));
  EXPECT(butter_sequence_truncate(fork, 500, &reached) == BUTTER_INVALID_ARGUMENT);
  butter_sampler* sampler = NULL;
  EXPECT_OK(butter_sampler_create(NULL, &sampler));
  int32_t next = -1;
  EXPECT_OK(butter_sequence_sample(fork, ids + kPrompt - 1, 1, sampler, &next));
  EXPECT(next == expected);

  const int32_t wrong[] = {5, kVocabulary};
  EXPECT_REFUSED(butter_sequence_feed(fork, wrong, 2, &logits), BUTTER_INVALID_ARGUMENT, "256");
  EXPECT(logits == NULL && butter_sequence_position(fork) == kPrompt);
  EXPECT_REFUSED(butter_sequence_feed(fork, NULL, 2, NULL), BUTTER_INVALID_ARGUMENT, "ids is NULL");
  EXPECT(butter_sequence_feed(fork, ids, 0, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT_REFUSED(butter_sequence_feed(NULL, ids, 1, NULL), BUTTER_INVALID_ARGUMENT, "sequence is NULL");
  EXPECT(butter_sequence_sample(fork, ids, 1, NULL, &next) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_sample(fork, ids, 1, sampler, NULL) == BUTTER_INVALID_ARGUMENT);
  butter_sequence_free(fork);
  EXPECT(butter_sequence_fork(NULL, &fork) == BUTTER_INVALID_ARGUMENT && fork == NULL);
  EXPECT(butter_sequence_fork(sequence, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_truncate(NULL, 0, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_position(NULL) == -1 && butter_sequence_bytes(NULL) == -1);
  butter_sampler_free(sampler);
  butter_sequence_free(sequence);
}

typedef struct {
  int seen;
  int limit;
  int32_t last;
} token_counter;

static bool count_token(void* user, int32_t id) {
  token_counter* counter = user;
  counter->last = id;
  return ++counter->seen < counter->limit;
}

static bool refuse_prefill(void* user, int64_t done, int64_t total) {
  ++*(int*)user;
  return done >= total;
}

static void test_generating(butter_engine* engine) {
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 2);
  butter_sampling_options sampling = BUTTER_SAMPLING_OPTIONS_INIT;
  butter_generate_options options = BUTTER_GENERATE_OPTIONS_INIT;
  butter_sequence* sequence = NULL;
  butter_answer* answer = NULL;
  butter_answer_info info = BUTTER_ANSWER_INFO_INIT;
  token_counter counter = {0, 100, -1};
  size_t count = 0;
  sampling.logprobs = 2;
  options.sampling = &sampling;
  options.max_tokens = 6;

  EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
  EXPECT_OK(butter_sequence_generate(sequence, ids, kPrompt, &options, count_token, &counter, &answer));
  const int32_t* generated = butter_answer_ids(answer, &count);
  EXPECT(count == 6 && counter.seen == 6 && generated[5] == counter.last);
  EXPECT(butter_sequence_position(sequence) == kPrompt + 5); /* the last one has not been fed */
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_LENGTH && info.prompt_tokens == kPrompt && info.kv_bytes > 0);
  EXPECT(info.prefill_seconds > 0 && info.time_to_first_token == info.prefill_seconds);
  EXPECT(strcmp(butter_answer_text(answer, NULL), "") == 0);
  for (size_t i = 0; i < count; ++i) {
    butter_token_logprob chosen = {-1, 0};
    const butter_token_logprob* top = NULL;
    size_t top_count = 0;
    EXPECT_OK(butter_answer_logprobs(answer, i, &chosen, &top, &top_count));
    EXPECT(top_count == 2 && chosen.id == generated[i] && top[0].id == chosen.id);
    EXPECT(chosen.logprob < 0 && top[1].logprob <= top[0].logprob);
  }
  butter_token_logprob chosen;
  EXPECT_OK(butter_answer_logprobs(answer, 0, &chosen, NULL, NULL));
  EXPECT_REFUSED(butter_answer_logprobs(answer, 6, &chosen, NULL, NULL), BUTTER_INVALID_ARGUMENT, "token 6");
  EXPECT(butter_answer_logprobs(answer, 0, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);

  /* Going on with the token that was not fed is the same as going on at once. */
  int32_t kept[6];
  memcpy(kept, generated, sizeof kept);
  butter_answer_free(answer);
  EXPECT_OK(butter_sequence_generate(sequence, kept + 5, 1, &options, NULL, NULL, &answer));
  butter_sequence* whole = NULL;
  butter_answer* long_answer = NULL;
  EXPECT_OK(butter_sequence_create(engine, NULL, &whole));
  options.max_tokens = 12;
  EXPECT_OK(butter_sequence_generate(whole, ids, kPrompt, &options, NULL, NULL, &long_answer));
  EXPECT(memcmp(butter_answer_ids(long_answer, &count) + 6, butter_answer_ids(answer, &count),
                6 * sizeof(int32_t)) == 0);
  butter_answer_free(long_answer);
  butter_answer_free(answer);

  /* Callbacks stop it. */
  counter.seen = 0;
  counter.limit = 3;
  EXPECT_OK(butter_sequence_generate(whole, ids, 1, &options, count_token, &counter, &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_CANCELLED && butter_answer_ids(answer, &count) != NULL && count == 3);
  butter_answer_free(answer);
  int prefill_calls = 0;
  options.on_prefill = refuse_prefill;
  options.user = &prefill_calls;
  const int64_t position = butter_sequence_position(whole);
  EXPECT_OK(butter_sequence_generate(whole, ids, 5, &options, NULL, NULL, &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_CANCELLED && prefill_calls == 1);
  EXPECT(butter_sequence_position(whole) == position);
  butter_answer_free(answer);
  EXPECT_OK(butter_sequence_feed(whole, ids, 5, NULL));
  EXPECT(prefill_calls == 1); /* it was of that call alone */

  options.on_prefill = NULL;
  options.max_tokens = -1;
  EXPECT_OK(butter_sequence_generate(whole, ids, 1, &options, NULL, NULL, NULL));
  EXPECT(butter_sequence_position(whole) == 512); /* the context is full */
  EXPECT(butter_sequence_generate(whole, ids, 1, &options, NULL, NULL, NULL) == BUTTER_LIMIT);

  /* What makes no sense. */
  const char* stops[] = {"x"};
  options.stop = stops;
  options.stop_count = 1;
  EXPECT_REFUSED(butter_sequence_generate(sequence, ids, 1, &options, NULL, NULL, &answer),
                 BUTTER_INVALID_ARGUMENT, "options->stop");
  EXPECT(answer == NULL);
  options.stop_count = 0;
  options.max_tokens = -2;
  EXPECT_REFUSED(butter_sequence_generate(sequence, ids, 1, &options, NULL, NULL, &answer),
                 BUTTER_INVALID_ARGUMENT, "max_tokens is -2");
  options.max_tokens = 1;
  sampling.top_p = 2;
  EXPECT_REFUSED(butter_sequence_generate(sequence, ids, 1, &options, NULL, NULL, &answer),
                 BUTTER_INVALID_ARGUMENT, "--top-p");
  sampling.top_p = 1;
  sampling.logit_bias_count = 1;
  EXPECT_REFUSED(butter_sequence_generate(sequence, ids, 1, &options, NULL, NULL, &answer),
                 BUTTER_INVALID_ARGUMENT, "logit_bias is NULL");
  const butter_logit_bias ban_all_but_one[] = {{77, 100}};
  sampling.logit_bias = ban_all_but_one;
  EXPECT_OK(butter_sequence_generate(sequence, ids, 1, &options, NULL, NULL, &answer));
  EXPECT(butter_answer_ids(answer, &count)[0] == 77);
  butter_answer_free(answer);
  EXPECT(butter_sequence_generate(NULL, ids, 1, &options, NULL, NULL, &answer) == BUTTER_INVALID_ARGUMENT);

  EXPECT(butter_answer_text(NULL, &count) == NULL && count == 0);
  EXPECT(butter_answer_ids(NULL, &count) == NULL && butter_answer_ids(NULL, NULL) == NULL);
  EXPECT(butter_answer_get_info(NULL, &info) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_answer_logprobs(NULL, 0, &chosen, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  butter_answer_free(NULL);
  butter_sequence_free(whole);
  butter_sequence_free(sequence);
  butter_sequence_free(NULL);
}

static void test_sampling(butter_engine* engine) {
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 3);
  butter_sampling_options sampling = BUTTER_SAMPLING_OPTIONS_INIT;
  sampling.temperature = 1.5f;
  int32_t tokens[2][8];
  for (int run = 0; run < 2; ++run) {
    butter_sampler* sampler = NULL;
    butter_sequence* sequence = NULL;
    sampling.seed = 7;
    EXPECT_OK(butter_sampler_create(&sampling, &sampler));
    EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
    EXPECT_OK(butter_sequence_sample(sequence, ids, kPrompt, sampler, &tokens[run][0]));
    for (int i = 1; i < 8; ++i)
      EXPECT_OK(butter_sequence_sample(sequence, &tokens[run][i - 1], 1, sampler, &tokens[run][i]));
    butter_sequence_free(sequence);
    butter_sampler_free(sampler);
  }
  EXPECT(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
  butter_sampler* sampler = (butter_sampler*)&sampling;
  sampling.temperature = NAN;
  EXPECT_REFUSED(butter_sampler_create(&sampling, &sampler), BUTTER_INVALID_ARGUMENT, "--temperature");
  EXPECT(sampler == NULL);
  EXPECT(butter_sampler_create(NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  butter_sampler_free(NULL);
}

static void test_saving(butter_engine* engine, const char* path) {
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 4);
  butter_sequence *sequence = NULL, *loaded = NULL;
  int32_t* tokens = NULL;
  size_t count = 0;
  const float *expected = NULL, *found = NULL;
  EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
  EXPECT_OK(butter_sequence_feed(sequence, ids, kPrompt, NULL));
  EXPECT_OK(butter_sequence_save(sequence, path, ids, kPrompt));
  EXPECT_OK(butter_sequence_load(engine, path, NULL, &loaded, &tokens, &count));
  EXPECT(count == kPrompt && memcmp(tokens, ids, sizeof ids) == 0);
  butter_free(tokens);
  EXPECT_OK(butter_sequence_feed(sequence, ids, 1, &expected));
  EXPECT_OK(butter_sequence_feed(loaded, ids, 1, &found));
  EXPECT(memcmp(expected, found, kVocabulary * sizeof(float)) == 0);
  butter_sequence_free(loaded);
  EXPECT_OK(butter_sequence_load(engine, path, NULL, &loaded, NULL, NULL));
  butter_sequence_free(loaded);
  butter_sequence_options other = BUTTER_SEQUENCE_OPTIONS_INIT;
  other.kv_cache = "affine8";
  EXPECT(butter_sequence_load(engine, path, &other, &loaded, NULL, NULL) != BUTTER_OK && loaded == NULL);
  EXPECT(strstr(butter_last_error(), "affine8") != NULL);
  EXPECT_REFUSED(butter_sequence_load(engine, "/nowhere", NULL, &loaded, NULL, NULL), BUTTER_NOT_FOUND,
                 "/nowhere");
  EXPECT(butter_sequence_load(engine, NULL, NULL, &loaded, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_load(engine, path, NULL, &loaded, &tokens, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_load(engine, path, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_save(sequence, NULL, NULL, 0) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_save(sequence, "/nowhere/at/all", NULL, 0) == BUTTER_IO);
  EXPECT(butter_sequence_save(NULL, path, NULL, 0) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_sequence_create(NULL, NULL, &loaded) == BUTTER_INVALID_ARGUMENT && loaded == NULL);
  EXPECT(butter_sequence_create(engine, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  butter_sequence_free(sequence);
  remove(path);
}

/* --- Tokens */

static void test_tokens(butter_engine* engine, butter_engine* without) {
  const char* text =
      "Gr\xc3\xbc\xc3\x9f"
      "e <|im_end|>";
  int32_t* ids = NULL;
  size_t count = 0, bytes = 0;
  char* back = NULL;
  EXPECT_OK(butter_tokenize(engine, text, BUTTER_NUL_TERMINATED, 0, &ids, &count));
  EXPECT(count == strlen(text)); /* a token a byte, special ones are text */
  EXPECT_OK(butter_detokenize(engine, ids, count, 0, &back, &bytes));
  EXPECT(bytes == strlen(text) && strcmp(back, text) == 0);
  butter_free(ids);
  butter_free(back);
  EXPECT_OK(butter_tokenize(engine, text, BUTTER_NUL_TERMINATED, BUTTER_TOKENIZE_SPECIAL, &ids, &count));
  EXPECT(count == strlen(text) - strlen("<|im_end|>") + 1 && butter_is_end_token(engine, ids[count - 1]));
  EXPECT_OK(butter_detokenize(engine, ids, count, BUTTER_DETOKENIZE_NO_SPECIAL, &back, NULL));
  EXPECT(strcmp(back,
                "Gr\xc3\xbc\xc3\x9f"
                "e ") == 0);
  butter_free(ids);
  butter_free(back);
  EXPECT_OK(butter_tokenize(engine, "a\0b", 3, BUTTER_TOKENIZE_NO_BOS, &ids, &count));
  EXPECT(count == 3);
  butter_free(ids);
  EXPECT_OK(butter_tokenize(engine, "", 0, 0, &ids, &count));
  EXPECT(count == 0 && ids != NULL);
  butter_free(ids);
  EXPECT_OK(butter_detokenize(engine, NULL, 0, 0, &back, &bytes));
  EXPECT(bytes == 0 && strcmp(back, "") == 0);
  butter_free(back);
  const int32_t odd[] = {-1, 250, 100000};
  EXPECT_OK(butter_detokenize(engine, odd, 3, 0, &back, &bytes));
  EXPECT(bytes == 0);
  butter_free(back);
  butter_free(NULL);

  EXPECT_REFUSED(butter_tokenize(engine, NULL, 0, 0, &ids, &count), BUTTER_INVALID_ARGUMENT, "text is NULL");
  EXPECT(ids == NULL);
  EXPECT_REFUSED(butter_tokenize(engine, "a", 1, 64, &ids, &count), BUTTER_INVALID_ARGUMENT, "flags");
  EXPECT(butter_tokenize(engine, "a", 1, 0, NULL, &count) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_tokenize(engine, "a", 1, 0, &ids, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_tokenize(NULL, "a", 1, 0, &ids, &count) == BUTTER_INVALID_ARGUMENT);
  EXPECT_REFUSED(butter_tokenize(without, "a", 1, 0, &ids, &count), BUTTER_UNSUPPORTED, "no tokenizer");
  EXPECT(butter_detokenize(engine, NULL, 1, 0, &back, &bytes) == BUTTER_INVALID_ARGUMENT && back == NULL);
  EXPECT(butter_detokenize(engine, odd, 1, 0, NULL, &bytes) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_detokenize(NULL, odd, 1, 0, &back, &bytes) == BUTTER_INVALID_ARGUMENT);
  EXPECT(!butter_is_end_token(NULL, 2) && !butter_is_end_token(without, 2) && butter_is_end_token(engine, 2));
  EXPECT(!butter_is_end_token(engine, -1));
}

/* --- Sessions */

typedef struct {
  char text[512];
  size_t bytes;
  size_t limit;
} text_buffer;

static bool append_text(void* user, const char* text, size_t bytes) {
  text_buffer* buffer = user;
  EXPECT(buffer->bytes + bytes < sizeof buffer->text);
  memcpy(buffer->text + buffer->bytes, text, bytes);
  buffer->bytes += bytes;
  buffer->text[buffer->bytes] = '\0';
  return buffer->bytes < buffer->limit;
}

static void test_chat(butter_engine* engine, const char* path) {
  butter_session* session = NULL;
  butter_answer* answer = NULL;
  butter_answer_info info = BUTTER_ANSWER_INFO_INIT;
  butter_generate_options options = BUTTER_GENERATE_OPTIONS_INIT;
  text_buffer streamed = {"", 0, 400};
  size_t bytes = 0;
  options.max_tokens = 12;
  options.ignore_eos = true;
  EXPECT_OK(butter_session_create(engine, NULL, &session));
  EXPECT_OK(butter_session_chat(session, "[{\"role\": \"user\", \"content\": \"Hi\"}]", &options, append_text,
                                &streamed, &answer));
  EXPECT(strcmp(butter_answer_text(answer, &bytes), streamed.text) == 0 && bytes == streamed.bytes);
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_LENGTH && info.reused_tokens == 0);
  const int64_t prompt_tokens = info.prompt_tokens;
  butter_answer_free(answer);

  const char* const arguments[] = {"enable_thinking=false"};
  options.template_arguments = arguments;
  options.template_argument_count = 1;
  EXPECT_OK(butter_session_chat(session, "[{\"role\": \"user\", \"content\": \"Hi\"}]", &options, NULL, NULL,
                                &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.prompt_tokens == prompt_tokens + (int64_t)strlen("<think></think>\n"));
  EXPECT(info.reused_tokens == prompt_tokens);
  butter_answer_free(answer);
  options.template_argument_count = 0;
  options.tools = "[{\"name\": \"f\"}]";
  EXPECT_OK(butter_session_chat(session, "[{\"role\": \"user\", \"content\": \"Hi\"}]", &options, NULL, NULL,
                                &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.prompt_tokens > prompt_tokens);
  butter_answer_free(answer);
  options.tools = NULL;

  /* Stopped by a text of the answer, by the reader, while reading. */
  const char* const stops[] = {streamed.text + 4};
  options.stop = stops;
  options.stop_count = 1;
  if (streamed.bytes > 4 && strlen(streamed.text) == streamed.bytes) {
    EXPECT_OK(butter_session_chat(session, "[{\"role\": \"user\", \"content\": \"Hi\"}]", &options, NULL,
                                  NULL, &answer));
    EXPECT_OK(butter_answer_get_info(answer, &info));
    EXPECT(info.finish == BUTTER_FINISH_STOP_STRING);
    butter_answer_free(answer);
  }
  options.stop_count = 0;
  text_buffer first = {"", 0, 1};
  EXPECT_OK(butter_session_complete(session, "Hi", 2, &options, append_text, &first, &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_CANCELLED && first.bytes >= 1);
  butter_answer_free(answer);
  int prefill_calls = 0;
  options.on_prefill = refuse_prefill;
  options.user = &prefill_calls;
  EXPECT_OK(
      butter_session_complete(session, "Another text", BUTTER_NUL_TERMINATED, &options, NULL, NULL, &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.finish == BUTTER_FINISH_CANCELLED && prefill_calls > 0);
  butter_answer_free(answer);
  options.on_prefill = NULL;

  /* The cache and its tokens, kept in a file. */
  const int32_t* tokens = NULL;
  size_t count = 0;
  EXPECT_OK(butter_session_complete(session, "Hi there", BUTTER_NUL_TERMINATED, &options, NULL, NULL, NULL));
  EXPECT_OK(butter_session_tokens(session, &tokens, &count));
  EXPECT(count == strlen("Hi there") + 11);
  EXPECT_OK(butter_session_save(session, path));
  EXPECT_OK(butter_session_reset(session));
  EXPECT_OK(butter_session_tokens(session, &tokens, &count));
  EXPECT(count == 0);
  EXPECT_OK(butter_session_load(session, path));
  EXPECT_OK(butter_session_complete(session, "Hi there", BUTTER_NUL_TERMINATED, NULL, NULL, NULL, &answer));
  EXPECT_OK(butter_answer_get_info(answer, &info));
  EXPECT(info.reused_tokens == 7);
  butter_answer_free(answer);
  remove(path);

  EXPECT_REFUSED(butter_session_chat(session, "[{\"role\": 5}]", NULL, NULL, NULL, &answer), BUTTER_CORRUPT,
                 "message 1: its role is a number");
  EXPECT(answer == NULL);
  EXPECT_REFUSED(butter_session_chat(session, NULL, NULL, NULL, NULL, NULL), BUTTER_INVALID_ARGUMENT,
                 "messages is NULL");
  EXPECT(butter_session_chat(NULL, "[]", NULL, NULL, NULL, &answer) == BUTTER_INVALID_ARGUMENT);
  options.tools = "{}";
  EXPECT_REFUSED(butter_session_chat(session, "[]", &options, NULL, NULL, NULL), BUTTER_INVALID_ARGUMENT,
                 "--tools");
  options.tools = NULL;
  options.template_arguments = NULL;
  options.template_argument_count = 1;
  EXPECT(butter_session_chat(session, "[]", &options, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  const char* const no_text[] = {NULL};
  options.template_arguments = no_text;
  EXPECT(butter_session_chat(session, "[]", &options, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_complete(session, NULL, 0, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_complete(NULL, "a", 1, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_complete_ids(session, NULL, 3, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_complete_ids(session, NULL, 0, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_complete_ids(NULL, NULL, 0, NULL, NULL, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_tokens(NULL, &tokens, &count) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_tokens(session, NULL, &count) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_save(NULL, path) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_save(session, NULL) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_load(session, "/nowhere") == BUTTER_NOT_FOUND);
  EXPECT(butter_session_load(NULL, path) == BUTTER_INVALID_ARGUMENT);
  EXPECT(butter_session_reset(NULL) == BUTTER_INVALID_ARGUMENT);
  butter_session_free(session);
  EXPECT(butter_session_create(NULL, NULL, &session) == BUTTER_INVALID_ARGUMENT && session == NULL);
  EXPECT(butter_session_create(engine, NULL, NULL) == BUTTER_INVALID_ARGUMENT);
  butter_session_free(NULL);
}

static void test_session_without_tokenizer(butter_engine* engine) {
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 5);
  butter_session* session = NULL;
  butter_answer* answer = NULL;
  size_t count = 0;
  butter_generate_options options = BUTTER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 4;
  EXPECT_OK(butter_session_create(engine, NULL, &session));
  EXPECT_OK(butter_session_complete_ids(session, ids, kPrompt, &options, NULL, NULL, &answer));
  EXPECT(butter_answer_ids(answer, &count) != NULL && count == 4);
  butter_answer_free(answer);
  EXPECT_REFUSED(butter_session_chat(session, "[]", NULL, NULL, NULL, NULL), BUTTER_INVALID_ARGUMENT,
                 "no tokenizer");
  butter_session_free(session);
}

/* Handles outlive the engine's own. */
static void test_order_of_freeing(const char* model) {
  butter_engine* engine = open_engine(model);
  butter_sequence *sequence = NULL, *fork = NULL;
  butter_session* session = NULL;
  const int32_t ids[] = {1, 2, 3};
  EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
  EXPECT_OK(butter_sequence_fork(sequence, &fork));
  EXPECT_OK(butter_session_create(engine, NULL, &session));
  butter_engine_free(engine);
  EXPECT_OK(butter_sequence_feed(sequence, ids, 3, NULL));
  butter_sequence_free(sequence);
  EXPECT_OK(butter_sequence_feed(fork, ids, 3, NULL));
  EXPECT_OK(butter_session_reset(session));
  butter_session_free(session);
  butter_sequence_free(fork);
}

/* --- Threads: each has its own errors, and sequences of one engine */

static void* fail_on_thread(void* user) {
  butter_engine* engine = user;
  EXPECT(strcmp(butter_last_error(), "") == 0);
  butter_sequence* sequence = NULL;
  int32_t ids[kPrompt];
  fill_ids(ids, kPrompt, 6);
  EXPECT_OK(butter_sequence_create(engine, NULL, &sequence));
  for (int i = 0; i < 5; ++i) EXPECT_OK(butter_sequence_feed(sequence, ids, kPrompt, NULL));
  butter_sequence_free(sequence);
  EXPECT_REFUSED(butter_sequence_truncate(NULL, 0, NULL), BUTTER_INVALID_ARGUMENT,
                 "butter_sequence_truncate");
  return NULL;
}

static void test_threads(butter_engine* engine) {
  pthread_t threads[3];
  EXPECT_REFUSED(butter_engine_plan(engine, NULL, NULL), BUTTER_INVALID_ARGUMENT,
                 "butter_engine_plan: plan is NULL");
  for (int i = 0; i < 3; ++i) EXPECT(pthread_create(&threads[i], NULL, fail_on_thread, engine) == 0);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  EXPECT(strstr(butter_last_error(), "butter_engine_plan: plan is NULL") != NULL);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  char path[] = "butter-capi-XXXXXX";
  const char* folder = getenv("TMPDIR");
  char file[4096];
  snprintf(file, sizeof file, "%s/%s-%p", folder != NULL ? folder : "/tmp", path, (void*)file);
  EXPECT(strcmp(butter_last_error(), "") == 0);
  test_opening(argv[1]);
  butter_engine *engine = open_engine(argv[1]), *chat_engine = open_engine(argv[2]);
  test_struct_sizes(engine);
  test_plans(argv[1], engine);
  test_feeding_and_forks(engine);
  test_generating(engine);
  test_sampling(engine);
  test_saving(engine, file);
  test_tokens(chat_engine, engine);
  test_chat(chat_engine, file);
  test_session_without_tokenizer(engine);
  test_threads(engine);
  test_order_of_freeing(argv[1]);
  butter_engine_free(engine);
  butter_engine_free(chat_engine);
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures > 0;
}
