#include "cli/command_table.h"

#include <CLI/CLI.hpp>

namespace butter::cli {
namespace {

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  entry.is_positional = entry.names.empty();
  if (entry.is_positional) entry.names.push_back(option.get_name(true));
  if (option.get_items_expected_max() > 0) entry.kind = option.get_type_name();
  entry.help = option.get_description();
  return entry;
}

}  // namespace

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_generate_command());
  commands.push_back(make_chat_command());
  commands.push_back(make_inspect_command());
  commands.push_back(make_plan_command());
  commands.push_back(make_bench_command());
  commands.push_back(make_eval_command());
  commands.push_back(make_tokenize_command());
  commands.push_back(make_pull_command());
  commands.push_back(make_completions_command());
  commands.push_back(make_manual_command());
  return commands;
}

void declare_commands(CLI::App& app, const std::vector<std::unique_ptr<Command>>& commands) {
  for (const auto& command : commands) {
    Arguments arguments(*app.add_subcommand(command->name(), command->summary()));
    command->declare(arguments);
  }
}

std::vector<CommandEntry> command_table() {
  CLI::App app;
  const auto commands = make_commands();
  declare_commands(app, commands);
  std::vector<CommandEntry> table;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandEntry entry{command->get_name(), command->get_description(), {}};
    for (const CLI::Option* option : command->get_options()) entry.options.push_back(entry_of(*option));
    table.push_back(std::move(entry));
  }
  return table;
}

}  // namespace butter::cli
