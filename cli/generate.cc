// butter generate: streams a completion.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "butter/session.h"
#include "cli/chat_arguments.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/logits_file.h"
#include "cli/logprobs.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/statistics.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

constexpr int kDumpedRows = 64;  // of logits at once

class GenerateCommand : public Command {
 public:
  const char* name() const override { return "generate"; }
  const char* summary() const override { return "stream a completion of a prompt"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    prompt_.declare(arguments);
    sampling_.declare(arguments);
    arguments.flag("--raw", raw_, "continue the text as it is, without the chat template");
    arguments.text("--messages", messages_path_, "a JSON array of messages to answer, in place of a text",
                   "FILE");
    chat_.declare(arguments);
    arguments.text("--dump-logits", dump_path_,
                   "write the logits of every position fed to a safetensors file", "FILE");
    arguments.flag("--stats", stats_, "say on stderr how fast it was and what the cache took");
  }

  int run() override {
    check_one_source();
    sampling_.check();
    const SequenceOptions sequence = common_.sequence_options();
    const std::string text = prompt_.has_ids() || messages_path_ ? "" : prompt_.read_text();
    read_chat(text);
    check_context(common_);
    EngineOptions engine_options = common_.engine_options();
    if (dump_path_) engine_options.logit_rows = kDumpedRows;
    const std::unique_ptr<Engine> engine = load_engine(common_, engine_options);
    std::optional<LogitsFile> dump;
    if (dump_path_) dump.emplace(*dump_path_);

    Session session = must(Session::create(*engine, sequence));
    const GenerateResult result = generate(*engine, session, text);
    if (dump && result.finish_reason != "cancelled") {
      write_logits(*engine, sequence, session.tokens(), result.prompt_tokens, *dump);
    }
    report(result, engine->tokenizer());
    if (output_failed()) return kExitOk;  // the reader went away; check_output() tells other reasons
    return interrupted() ? interrupt_exit_status() : kExitOk;
  }

 private:
  void check_one_source() const {
    if (!messages_path_) return prompt_.check_one_source();
    if (prompt_.given())
      refuse_usage("--messages and one of --prompt, --file and --token-ids are given; one is expected");
  }

  // The messages of the conversation, and what else its template is given.
  void read_chat(const std::string& text) {
    chat_options_ = chat_.read();
    if (messages_path_) {
      messages_ = read_messages_file(*messages_path_);
      if (messages_.empty()) refuse("{} has no messages; at least one is expected", *messages_path_);
    } else {
      messages_ = {{"user", text}};
    }
    if (!chat_.system) return;
    if (messages_[0].role == "system")
      refuse("--system is given, and {} begins with a system message; one is expected", *messages_path_);
    messages_.insert(messages_.begin(), {"system", *chat_.system});
  }

  GenerateResult generate(Engine& engine, Session& session, const std::string& text) {
    GenerateOptions options = sampling_.generate_options(common_.seed);
    options.chat = chat_options_;
    ProgressBar bar("reading", ProgressBar::Unit::kTokens);
    options.on_prefill = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    bool ends_line = true;
    const TextFn on_text = [&](std::string_view piece) {
      bar.erase();
      if (common_.json) return true;
      ends_line = piece.back() == '\n';
      return write_out(piece);
    };
    const auto result = complete(engine, session, text, options, on_text);
    bar.erase();
    if (!common_.json && !ends_line) write_out("\n");
    return must(result);
  }

  Result<GenerateResult> complete(Engine& engine, Session& session, const std::string& text,
                                  const GenerateOptions& options, const TextFn& on_text) {
    const bool chats = !raw_ && !prompt_.has_ids() && session.has_chat_template();
    const char* for_chats = messages_path_ ? "--messages" : chat_.first_given();
    if (for_chats != nullptr && !chats) {
      const std::string why = raw_                ? "--raw is given too"
                              : prompt_.has_ids() ? "--token-ids is given too"
                                                  : engine.info().name + " has none";
      refuse("{} is given, and no chat template is used: {}", for_chats, why);
    }
    if (prompt_.has_ids()) return session.complete(prompt_.read_ids(engine.info()), options, on_text);
    require_tokenizer(engine);
    if (!chats) return session.complete(text, options, on_text);
    note_unused_arguments(session, chat_options_);
    return session.chat(messages_, options, on_text);
  }

  // Feeds the same tokens again in the same steps, which give the same logits.
  void write_logits(Engine& engine, const SequenceOptions& options, const std::vector<int32_t>& fed,
                    int64_t prompt_tokens, LogitsFile& dump) {
    Sequence sequence = must(engine.make_layer_caches(options));
    const auto append = [&dump](int64_t, std::span<const float> logits) { dump.append(logits); };
    const std::span<const int32_t> tokens(fed);
    const auto prompt = static_cast<size_t>(prompt_tokens);
    must(engine.forward_all(sequence, tokens.first(prompt), append));
    for (size_t at = prompt; at < tokens.size(); ++at) {
      if (interrupted()) return;
      must(engine.forward_all(sequence, tokens.subspan(at, 1), append));
    }
    dump.finish();
  }

  void report(const GenerateResult& result, const Tokenizer* tokenizer) const {
    if (common_.json) {
      nlohmann::ordered_json json = {{"text", result.text},
                                     {"token_ids", result.token_ids},
                                     {"finish_reason", result.finish_reason},
                                     {"prompt_tokens", result.prompt_tokens},
                                     {"generated_tokens", result.token_ids.size()},
                                     {"prefill_tps", result.prefill_tps()},
                                     {"decode_tps", result.decode_tps()},
                                     {"ttft_ms", result.time_to_first_token * 1000},
                                     {"kv_bytes", result.kv_bytes},
                                     {"kv_raw_bytes", result.kv_raw_bytes}};
      if (sampling_.logprobs) json["logprobs"] = logprobs_json(result, tokenizer);
      print_json(json);
    } else if (prompt_.has_ids() && result.text.empty()) {
      write_out(fmt::format("{}\n", fmt::join(result.token_ids, ",")));
    }
    if (!common_.json) write_out(logprobs_lines(result, tokenizer));
    if (stats_) note(statistics_of(result));
    spdlog::info("ended by {}", result.finish_reason);
  }

  CommonOptions common_;
  PromptArguments prompt_;
  SamplingArguments sampling_;
  ChatArguments chat_;
  ChatOptions chat_options_;
  std::vector<Message> messages_;
  bool raw_ = false;
  bool stats_ = false;
  std::optional<std::string> messages_path_;
  std::optional<std::string> dump_path_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace butter::cli
