// Command: one word after `butter`. It declares its arguments, then runs; main.cc has the table of them.
#pragma once

#include <memory>
#include <vector>

#include "cli/arguments.h"

namespace butter::cli {

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;  // one line, for --help
  virtual void declare(Arguments& arguments) = 0;
  // The exit status. Throws Failure (cli/failure.h).
  virtual int run() = 0;
};

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_eval_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_pull_command();
std::unique_ptr<Command> make_completions_command();
std::unique_ptr<Command> make_manual_command();

}  // namespace butter::cli
