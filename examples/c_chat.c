/* A conversation in C: each argument is a turn, the answers stream, the cache is kept between turns.
 *
 *   example_c_chat smollm2 "What is the capital of France?" "And of Italy?" */
#include <butter/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(void) {
  fprintf(stderr, "%s\n", butter_last_error());
  exit(1);
}

static bool show(void* user, const char* text, size_t bytes) {
  (void)user;
  return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

/* A conversation as JSON, which grows a message at a time. */
typedef struct {
  char* json;
  size_t length;
} conversation;

static void append(conversation* talk, const char* text, size_t length) {
  talk->json = realloc(talk->json, talk->length + length + 1);
  if (talk->json == NULL) abort();
  memcpy(talk->json + talk->length, text, length);
  talk->length += length;
  talk->json[talk->length] = '\0';
}

static void add_message(conversation* talk, const char* role, const char* content) {
  if (talk->length > 0) --talk->length; /* the bracket at the end */
  append(talk, talk->length == 0 ? "[" : ",", 1);
  append(talk, "{\"role\":\"", 9);
  append(talk, role, strlen(role));
  append(talk, "\",\"content\":\"", 13);
  for (const char* c = content; *c != '\0'; ++c) {
    char escaped[8];
    if (*c == '"' || *c == '\\')
      append(talk, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\%c", *c));
    else if ((unsigned char)*c < 0x20)
      append(talk, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*c));
    else
      append(talk, c, 1);
  }
  append(talk, "\"}]", 3);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL TURN...\n", argv[0]);
    return 2;
  }
  butter_engine_options engine_options = BUTTER_ENGINE_OPTIONS_INIT;
  engine_options.model = argv[1];
  butter_engine* engine = NULL;
  if (butter_engine_open(&engine_options, &engine) != BUTTER_OK) stop();
  butter_session* session = NULL;
  if (butter_session_create(engine, NULL, &session) != BUTTER_OK) stop();

  butter_generate_options options = BUTTER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 64;
  conversation talk = {NULL, 0};
  for (int turn = 2; turn < argc; ++turn) {
    add_message(&talk, "user", argv[turn]);
    butter_answer* answer = NULL;
    if (butter_session_chat(session, talk.json, &options, show, NULL, &answer) != BUTTER_OK) stop();
    add_message(&talk, "assistant", butter_answer_text(answer, NULL));
    butter_answer_info info = BUTTER_ANSWER_INFO_INIT;
    if (butter_answer_get_info(answer, &info) != BUTTER_OK) stop();
    printf("\n");
    fprintf(stderr, "%lld of %lld tokens of the prompt were in the cache\n", (long long)info.reused_tokens,
            (long long)info.prompt_tokens);
    butter_answer_free(answer);
  }
  free(talk.json);
  butter_session_free(session);
  butter_engine_free(engine);
  return 0;
}
