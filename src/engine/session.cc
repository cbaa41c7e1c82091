#include "butter/session.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>

#include "butter/tokenizer.h"
#include "checkpoint/printable.h"
#include "engine/engine_state.h"
#include "engine/stop_filter.h"
#include "text/chat_messages.h"
#include "text/chat_template.h"

namespace butter {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status check_options(const GenerateOptions& options, const ModelInfo& model) {
  BUTTER_TRY(Sampler::check(options.sampling));
  for (const LogitBias& each : options.sampling.logit_bias) {
    if (each.id < model.vocabulary) continue;
    return fail(StatusCode::kInvalidArgument, "--logit-bias names the token {}; {} has the ids 0 to {}",
                each.id, model.name, model.vocabulary - 1);
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return fail(StatusCode::kInvalidArgument, "--stop is empty; a text is expected");
  }
  if (options.max_tokens < -1) {
    return fail(StatusCode::kInvalidArgument, "--max-tokens is {}; 0 or more is expected",
                options.max_tokens);
  }
  return {};
}

// Whether a name stands in a text, not as part of a longer one.
bool has_word(std::string_view text, std::string_view word) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

bool cancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load();
}

}  // namespace

double GenerateResult::prefill_tps() const {
  const auto fed = static_cast<double>(prompt_tokens - reused_tokens);
  return prefill_seconds > 0 ? fed / prefill_seconds : 0;
}

// The first token comes out of the prefill step; decode steps give the others.
double GenerateResult::decode_tps() const {
  return decode_seconds > 0 && token_ids.size() > 1
             ? static_cast<double>(token_ids.size() - 1) / decode_seconds
             : 0;
}

// A template that does not parse stands in the way of chats, and of nothing else.
struct SessionTemplate {
  std::string source;
  Result<ChatTemplate> parsed;

  explicit SessionTemplate(const std::string& text) : source(text), parsed(ChatTemplate::parse(text)) {}
};

struct Session::State {
  Engine* engine = nullptr;
  SequenceOptions sequence_options;
  std::optional<Sequence> sequence;
  std::optional<SessionTemplate> chat_template;
  std::optional<SessionTemplate> tool_template;  // for requests with tools, where the model has another
  std::vector<int32_t> tokens;                   // fed so far: one for each position

  Status restart();
  Result<int64_t> reuse(const std::vector<int32_t>& ids);
  Result<const Tokenizer*> require_tokenizer() const;
  Result<const ChatTemplate*> choose_template(const ChatOptions& options) const;
  Result<std::vector<int32_t>> chat_tokens(const std::vector<Message>& messages,
                                           const ChatOptions& options) const;
  Result<GenerateResult> generate(const std::vector<int32_t>& ids, const GenerateOptions& options,
                                  const TextFn& on_text);
};

Status Session::State::restart() {
  sequence.reset();
  tokens.clear();
  BUTTER_ASSIGN(sequence, engine->make_layer_caches(sequence_options));
  return {};
}

// Keeps the positions that the prompt has in common with the cache; at least its last token is fed again.
Result<int64_t> Session::State::reuse(const std::vector<int32_t>& ids) {
  const size_t limit = std::min(tokens.size(), ids.size() - 1);
  const auto differs =
      std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(limit), ids.begin());
  BUTTER_ASSIGN(const int64_t reached, sequence->truncate(differs.first - tokens.begin()));
  tokens.resize(static_cast<size_t>(reached));
  return reached;
}

// Turns tokens into text that may be shown, piece by piece.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer* tokenizer, const GenerateOptions& options, const TextFn& on_text,
               GenerateResult& result)
      : on_text_(on_text), result_(result), stops_(options.stop) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
  }

  // False when the answer is over: a stop string, or the reader's wish.
  bool push(int32_t id) { return !detokenizer_ || show(stops_.push(detokenizer_->push(id))); }
  void finish() {
    if (!detokenizer_ || stops_.stopped()) return;
    std::string rest = stops_.push(detokenizer_->finish());
    if (!stops_.stopped()) rest += stops_.finish();
    show(rest);
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  bool show(const std::string& text) {
    result_.text += text;
    const bool wanted = text.empty() || !on_text_ || on_text_(text);
    return wanted && !stops_.stopped();
  }

  const TextFn& on_text_;
  GenerateResult& result_;
  StopFilter stops_;
  std::optional<StreamDetokenizer> detokenizer_;
};

Result<GenerateResult> Session::State::generate(const std::vector<int32_t>& ids,
                                                const GenerateOptions& options, const TextFn& on_text) {
  BUTTER_TRY(check_options(options, engine->info()));
  if (ids.empty())
    return fail(StatusCode::kInvalidArgument, "the prompt is empty; at least one token is expected");
  const auto prompt = static_cast<int64_t>(ids.size());
  if (!sequence->unbounded() && prompt > sequence->max_context()) {
    return fail(StatusCode::kLimit, "the prompt has {} tokens; the context holds {} (--max-context)", prompt,
                sequence->max_context());
  }
  const Tokenizer* tokenizer = engine->tokenizer();
  GenerateResult result;
  result.prompt_tokens = prompt;
  const Clock::time_point start = Clock::now();
  BUTTER_ASSIGN(result.reused_tokens, reuse(ids));
  Sampler sampler(options.sampling);
  sampler.observe(ids);
  AnswerStream answer(tokenizer, options, on_text, result);

  sequence->set_prefill_progress([&](int64_t done, int64_t total) {
    if (options.on_prefill) options.on_prefill(done, total);
    return !cancelled(options);
  });
  std::vector<int32_t> feed(ids.begin() + result.reused_tokens, ids.end());
  result.finish_reason = "length";
  while (options.max_tokens < 0 || static_cast<int64_t>(result.token_ids.size()) < options.max_tokens ||
         result.token_ids.empty()) {
    if (cancelled(options)) {
      result.finish_reason = "cancelled";
      break;
    }
    const int64_t end = sequence->position() + static_cast<int64_t>(feed.size());
    if (!sequence->unbounded() && end > sequence->max_context()) break;
    const auto next = engine->forward_sample(*sequence, feed, sampler);
    const auto fed = sequence->position() - static_cast<int64_t>(tokens.size());
    tokens.insert(tokens.end(), feed.begin(), feed.begin() + fed);
    if (!next && next.error().code() == StatusCode::kCancelled) {
      result.finish_reason = "cancelled";
      break;
    }
    if (!next) {
      sequence->set_prefill_progress(nullptr);
      return fail(next.error());
    }
    if (result.token_ids.empty()) {
      result.prefill_seconds = result.time_to_first_token = seconds_since(start);
    }
    if (options.max_tokens == 0) break;
    if (!options.ignore_eos && tokenizer != nullptr && tokenizer->is_end(*next)) {
      result.finish_reason = "stop";
      break;
    }
    result.token_ids.push_back(*next);
    if (options.sampling.logprobs >= 0) result.logprobs.push_back(sampler.logprobs());
    feed.assign(1, *next);
    if (!answer.push(*next)) {
      result.finish_reason = answer.stopped() ? "stop_string" : "cancelled";
      break;
    }
  }
  sequence->set_prefill_progress(nullptr);
  answer.finish();
  if (result.prefill_seconds > 0) result.decode_seconds = seconds_since(start) - result.prefill_seconds;
  result.kv_bytes = sequence->held_bytes();
  BUTTER_ASSIGN(result.kv_raw_bytes, sequence->raw_bytes());
  return result;
}

Result<const Tokenizer*> Session::State::require_tokenizer() const {
  if (engine->tokenizer() == nullptr) {
    return fail(StatusCode::kInvalidArgument, "{} has no tokenizer; token ids (--token-ids) are expected",
                engine->info().name);
  }
  return engine->tokenizer();
}

Result<const ChatTemplate*> Session::State::choose_template(const ChatOptions& options) const {
  const bool asks_for_tools = !options.tools.empty();
  const auto& chosen = asks_for_tools && tool_template ? tool_template : chat_template;
  if (!chosen) {
    return fail(StatusCode::kInvalidArgument,
                "{} has no chat template; a plain completion (--raw) is expected", engine->info().name);
  }
  if (asks_for_tools && !has_word(chosen->source, "tools")) {
    return fail(
        StatusCode::kUnsupported,
        "--tools is given, and the chat template of {} has no tools; a model whose template has them is "
        "expected",
        engine->info().name);
  }
  if (!chosen->parsed) return fail(chosen->parsed.error().within(engine->info().name));
  return &*chosen->parsed;
}

// The template's words may be special tokens, what people wrote may not.
Result<std::vector<int32_t>> Session::State::chat_tokens(const std::vector<Message>& messages,
                                                         const ChatOptions& options) const {
  BUTTER_ASSIGN(const Tokenizer* tokenizer, require_tokenizer());
  BUTTER_ASSIGN(const ChatTemplate* chosen, choose_template(options));
  ChatTemplateOptions render;
  BUTTER_ASSIGN(render.arguments, template_variables(options));
  if (tokenizer->bos_id()) render.bos_token = tokenizer->piece(*tokenizer->bos_id());
  if (tokenizer->eos_id()) render.eos_token = tokenizer->piece(*tokenizer->eos_id());
  BUTTER_ASSIGN(const RenderedChat chat, chosen->render(messages, render));
  std::vector<TextSpan> content;
  for (const jinja::Span& span : chat.content) content.push_back({span.begin, span.end});
  EncodeOptions encode;
  encode.add_eos = false;
  encode.parse_special = true;
  encode.content = content;
  return tokenizer->encode(chat.text, encode);
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(Engine& engine, const SequenceOptions& options) {
  auto state = std::make_unique<State>();
  state->engine = &engine;
  state->sequence_options = options;
  BUTTER_TRY(state->restart());
  BUTTER_ASSIGN(const auto usual, engine.chat_template());
  BUTTER_ASSIGN(const auto with_tools, engine.chat_template(true));
  if (usual) state->chat_template.emplace(*usual);
  if (with_tools) state->tool_template.emplace(*with_tools);
  return Session(std::move(state));
}

Result<GenerateResult> Session::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                                     const TextFn& on_text) {
  BUTTER_ASSIGN(const std::vector<int32_t> ids, state_->chat_tokens(messages, options.chat));
  return state_->generate(ids, options, on_text);
}

Result<GenerateResult> Session::complete(std::string_view text, const GenerateOptions& options,
                                         const TextFn& on_text) {
  BUTTER_ASSIGN(const Tokenizer* tokenizer, state_->require_tokenizer());
  EncodeOptions encode;
  encode.add_eos = false;  // the text goes on
  BUTTER_ASSIGN(const std::vector<int32_t> ids, tokenizer->encode(text, encode));
  return state_->generate(ids, options, on_text);
}

Result<GenerateResult> Session::complete(const std::vector<int32_t>& ids, const GenerateOptions& options,
                                         const TextFn& on_text) {
  return state_->generate(ids, options, on_text);
}

Result<std::vector<int32_t>> Session::chat_tokens(const std::vector<Message>& messages,
                                                  const ChatOptions& options) const {
  return state_->chat_tokens(messages, options);
}

Status Session::save_cache(const std::string& path) const {
  return state_->sequence->save(path, state_->tokens);
}

Status Session::load_cache(const std::string& path) {
  std::vector<int32_t> tokens;
  BUTTER_ASSIGN(Sequence sequence, state_->engine->load_sequence(path, state_->sequence_options, &tokens));
  if (static_cast<int64_t>(tokens.size()) != sequence.position()) {
    return fail(StatusCode::kInvalidArgument,
                "{}: it was saved without its tokens; {} are expected, to tell what it is the cache of",
                printable(path, 500), sequence.position());
  }
  state_->sequence.emplace(std::move(sequence));
  state_->tokens = std::move(tokens);
  return {};
}

bool Session::has_chat_template() const {
  return state_->chat_template.has_value();
}
bool Session::chat_template_names(std::string_view variable) const {
  const auto names = [&](const auto& chosen) { return chosen && has_word(chosen->source, variable); };
  return names(state_->chat_template) || names(state_->tool_template);
}
Status Session::reset() {
  return state_->restart();
}
const Sequence& Session::sequence() const {
  return *state_->sequence;
}
const std::vector<int32_t>& Session::tokens() const {
  return state_->tokens;
}

}  // namespace butter
