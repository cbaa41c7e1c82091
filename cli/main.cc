// butter: runs language models with small KV caches. Finds the command, parses its options, runs it.
#include <CLI/CLI.hpp>

#include "butter/inspect.h"
#include "cli/build_commit.h"
#include "cli/command_table.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string version_text() {
  const BuildInfo build = must(build_info());
  return fmt::format(
      "butter {} ({})\ncompiler: {}\nCPU: {}; {} usable\nISA: {} (this machine has: {})\ndevices: {}\n",
      build.version, build_commit(), build.compiler, build.cpu, build.usable_cpus, build.isa,
      joined(build.isas), joined(build.devices));
}

// `butter -m MODEL -p PROMPT` is generate; -ctk and -ctv are names of other tools, which CLI11 would take
// apart.
std::vector<std::string> normalised(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word == "-ctk") word = "--cache-type-k";
    if (word == "-ctv") word = "--cache-type-v";
  }
  const bool is_option = !words.empty() && words[0].size() > 1 && words[0][0] == '-';
  if (is_option && words[0] != "-h" && words[0] != "--help" && words[0] != "--version") {
    words.insert(words.begin(), "generate");
  }
  return words;
}

// What CLI11 could not read, as a sentence that names the word.
[[noreturn]] void refuse_words(const CLI::ParseError& error, const std::vector<std::string>& words,
                               const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  const std::string where = chosen.empty() ? "butter" : "butter " + chosen.front()->get_name();
  if (chosen.empty() && !words.empty()) {
    refuse_usage("\"{}\" is no command; `butter --help` lists them", words[0]);
  }
  if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error)) {
    (void)extras;
    const std::vector<std::string> left = app.remaining(true);
    const std::string word = left.empty() ? "" : left.front();
    refuse_usage("\"{}\" is nothing that `{}` takes; `{} --help` lists its options", word, where, where);
  }
  std::string reason = error.what();
  for (char& c : reason) c = c == '\n' ? ' ' : c;
  refuse_usage("{} (`{} --help` lists the options)", reason, where);
}

int run(int argc, char** argv) {
  CLI::App app(
      "butter runs language models with small KV caches.\n"
      "`butter -m MODEL -p PROMPT` alone is `butter generate`.",
      "butter");
  app.set_version_flag(
      "--version", [] { return version_text(); }, "version, compiler, instruction set, devices");
  app.require_subcommand(1);
  const std::vector<std::unique_ptr<Command>> commands = make_commands();
  declare_commands(app, commands);
  std::vector<std::string> words = normalised(argc, argv);
  if (words.empty()) {
    note(app.help());
    return kExitUsage;
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForVersion& version) {
    write_out(version.what());
    return kExitOk;
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    write_out(chosen.empty() ? app.help() : chosen.front()->help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    refuse_words(error, words, app);
  }
  for (const auto& command : commands) {
    if (app.got_subcommand(command->name())) return command->run();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace butter::cli

int main(int argc, char** argv) {
  using namespace butter::cli;
  install_signal_handlers();
  int status = kExitError;
  try {
    status = run(argc, argv);
    check_output();
  } catch (const Failure& failure) {
    status = failure.exit_status();
    note(fmt::format("butter: {}", failure.what()));
  } catch (const std::bad_alloc&) {
    note("butter: the machine has no memory left for what was asked");
  } catch (const std::exception& error) {
    note(fmt::format("butter: unexpected error: {}", error.what()));
  }
  return status;
}
