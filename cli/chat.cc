// butter chat: a conversation in the terminal, or over pipes: a line of stdin is a message.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "butter/session.h"
#include "cli/chat_arguments.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/logprobs.h"
#include "cli/options.h"
#include "cli/statistics.h"
#include "cli/terminal.h"
#include "cli/text_file.h"

namespace butter::cli {
namespace {

constexpr const char* kHelp =
    "/reset        forget the conversation\n"
    "/save FILE    write the conversation as JSON, and its cache to FILE.cache\n"
    "/load FILE    go on with a conversation that was saved; it is read again where its cache does not fit\n"
    "/stats        speed and cache of the last answer\n"
    "/quit         end (so does the end of input)";

class ChatCommand : public Command {
 public:
  const char* name() const override { return "chat"; }
  const char* summary() const override { return "talk with a model; the cache is kept between turns"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    sampling_.declare(arguments);
    chat_.declare(arguments);
  }

  int run() override {
    sampling_.check();
    const SequenceOptions sequence = common_.sequence_options();
    chat_options_ = chat_.read();
    check_context(common_);
    engine_ = load_engine(common_, common_.engine_options());
    session_.emplace(must(Session::create(*engine_, sequence)));
    if (!session_->has_chat_template()) {
      refuse("{} has no chat template; `butter generate --raw` continues plain text", engine_->info().name);
    }
    restart();
    if (chat_.first_given() != nullptr) try_template();
    if (stdin_is_terminal())
      note(fmt::format("{}: type a message, /help for commands", engine_->info().name));
    std::string line;
    while (read_line(line) && !output_failed()) {
      if (line.empty()) continue;
      if (line == "/quit" || line == "/exit") break;
      if (line[0] == '/') {
        run_command(line);
      } else {
        answer(line);
        if (interrupted() && must_end()) return interrupt_exit_status();
      }
    }
    return kExitOk;
  }

 private:
  // Waiting for a line, Ctrl-C ends the program; during an answer it ends the answer.
  static bool read_line(std::string& line) {
    if (stdin_is_terminal() && stderr_is_terminal()) std::fputs("> ", stderr);
    exit_on_interrupt();
    const bool got = static_cast<bool>(std::getline(std::cin, line));
    handle_interrupts();
    if (got && !line.empty() && line.back() == '\r') line.pop_back();
    return got;
  }

  // Ctrl-C gives a person the next prompt; SIGTERM, and Ctrl-C where nobody types, end the program.
  static bool must_end() { return interrupt_exit_status() != kExitSignal + SIGINT || !stdin_is_terminal(); }

  void restart() {
    messages_.clear();
    if (chat_.system) messages_.push_back({"system", *chat_.system});
    session_->reset();
  }

  // What the template does not take is refused before anything is typed.
  void try_template() const {
    note_unused_arguments(*session_, chat_options_);
    std::vector<Message> messages = messages_;
    messages.push_back({"user", "?"});
    must(session_->chat_tokens(messages, chat_options_));
  }

  void run_command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string argument =
        space == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', space));
    try {
      if (command == "/help")
        note(kHelp);
      else if (command == "/reset")
        restart();
      else if (command == "/stats")
        note(last_ ? statistics_of(*last_) : "there is no answer yet");
      else if (command == "/save")
        save(argument);
      else if (command == "/load")
        load(argument);
      else
        refuse("{} is no command; /help lists them", command);
    } catch (const Failure& failure) {
      note(fmt::format("butter: {}", failure.what()));  // the conversation goes on
    }
  }

  void answer(const std::string& text) {
    messages_.push_back({"user", text});
    ProgressBar bar("reading", ProgressBar::Unit::kTokens);
    GenerateOptions options = sampling_.generate_options(common_.seed);
    options.chat = chat_options_;
    options.on_prefill = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    const auto result = session_->chat(messages_, options, [&](std::string_view piece) {
      bar.erase();
      return common_.json || write_out(piece);
    });
    bar.erase();
    if (!result) {
      messages_.pop_back();
      note(fmt::format("butter: {}", result.error().message()));
      return;
    }
    last_ = *result;
    messages_.push_back({"assistant", result->text});
    if (common_.json) {
      nlohmann::ordered_json json = {{"text", result->text},
                                     {"finish_reason", result->finish_reason},
                                     {"prompt_tokens", result->prompt_tokens},
                                     {"reused_tokens", result->reused_tokens},
                                     {"generated_tokens", result->token_ids.size()}};
      if (sampling_.logprobs) json["logprobs"] = logprobs_json(*result, engine_->tokenizer());
      print_json(json);
    } else {
      write_out("\n");
      write_out(logprobs_lines(*result, engine_->tokenizer()));
    }
    if (result->finish_reason == "length" && sampling_.max_tokens < 0) {
      note("the context is full; /reset begins anew");
    }
  }

  void save(const std::string& path) const {
    if (path.empty()) refuse("/save needs a file name");
    write_text_file(path, write_messages(messages_));
    if (session_->tokens().empty()) {
      note(fmt::format("saved {} messages to {}", messages_.size(), path));
      return;
    }
    // The conversation is saved whatever becomes of its cache.
    must(session_->save_cache(cache_path(path)));
    note(fmt::format("saved {} messages to {}, and their cache to {}", messages_.size(), path,
                     cache_path(path)));
  }

  static std::string cache_path(const std::string& path) { return path + ".cache"; }

  // The cache that was saved with a conversation. It need not be there, or fit: then the text is read again.
  // That it is this conversation's is not asked: the next turn keeps what its tokens have in common.
  void load_cache(const std::string& path) {
    const Status taken = session_->load_cache(path);
    if (taken) {
      note(fmt::format("{} messages, with their cache of {} tokens", messages_.size(),
                       session_->tokens().size()));
      return;
    }
    const std::string reason =
        taken.error().code() == StatusCode::kNotFound ? "" : fmt::format(" ({})", taken.error().message());
    note(fmt::format("{} messages; they are read with your next one{}", messages_.size(), reason));
  }

  void load(const std::string& path) {
    if (path.empty()) refuse("/load needs a file name");
    std::vector<Message> messages = read_messages_file(path);
    session_->reset();
    messages_ = std::move(messages);
    load_cache(cache_path(path));
  }

  CommonOptions common_;
  SamplingArguments sampling_;
  ChatArguments chat_;
  ChatOptions chat_options_;
  std::unique_ptr<Engine> engine_;
  std::optional<Session> session_;
  std::vector<Message> messages_;
  std::optional<GenerateResult> last_;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() {
  return std::make_unique<ChatCommand>();
}

}  // namespace butter::cli
