// Session: one client's conversation: renders messages, keeps the cache between turns, streams the answer.
//
// A turn feeds only what the cache does not hold yet: the tokens in common with the turns before are kept,
// the rest is truncated away. A Session belongs to one caller and must not outlive its engine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "butter/chat.h"
#include "butter/engine.h"
#include "butter/export.h"

namespace butter {

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until the answer ends or the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;  // texts that end the answer; they are not part of it
  bool ignore_eos = false;
  ChatOptions chat = {};  // of Session::chat() alone
  // Stops cleanly at the next token or prefill step when it turns true.
  const std::atomic<bool>* cancel = nullptr;
  // Progress of the prompt: tokens done, tokens in all.
  std::function<void(int64_t done, int64_t total)> on_prefill;
};

struct BUTTER_API GenerateResult {
  std::string text;
  std::vector<int32_t> token_ids;
  // Of each of token_ids, where SamplingOptions::logprobs asks for them.
  std::vector<TokenLogprobs> logprobs;
  // "stop" (an end token), "stop_string", "length" (max_tokens or the context), "cancelled".
  std::string finish_reason;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, found in the cache
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double time_to_first_token = 0;  // seconds
  int64_t kv_bytes = 0;
  int64_t kv_raw_bytes = 0;

  double prefill_tps() const;
  double decode_tps() const;
};

// A piece of the answer as it comes, whole UTF-8 characters only. Return false to stop.
using TextFn = std::function<bool(std::string_view piece)>;

class BUTTER_API Session {
 public:
  static Result<Session> create(Engine& engine, const SequenceOptions& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Continues the conversation: `messages` is all of it, by the model's chat template. Tools are refused
  // where the template has no word of them; other arguments are not, for a template may ignore them.
  Result<GenerateResult> chat(const std::vector<Message>& messages, const GenerateOptions& options,
                              const TextFn& on_text);
  // Plain completion of a text.
  Result<GenerateResult> complete(std::string_view text, const GenerateOptions& options,
                                  const TextFn& on_text);
  // Completion of token ids; works without a tokenizer (then no text comes).
  Result<GenerateResult> complete(const std::vector<int32_t>& ids, const GenerateOptions& options,
                                  const TextFn& on_text);

  // The tokens of a chat prompt: content is text, special tokens in it are not parsed.
  Result<std::vector<int32_t>> chat_tokens(const std::vector<Message>& messages,
                                           const ChatOptions& options = {}) const;
  bool has_chat_template() const;
  // Whether a variable of this name stands in the chat template, or in the model's own for tools.
  bool chat_template_names(std::string_view variable) const;

  // Writes the cache and the tokens that it holds to a file: whole, or not at all.
  Status save_cache(const std::string& path) const;
  // Takes a saved cache in place of its own: the next turn feeds only what it does not hold. If the file
  // cannot be taken (Engine::load_sequence), the session stays as it was.
  Status load_cache(const std::string& path);

  // Forgets the conversation.
  Status reset();
  const Sequence& sequence() const;
  // Tokens that the cache holds.
  const std::vector<int32_t>& tokens() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace butter
