// The commands and their options as data, for manuals and completions: read off the declarations that parse
// the command line, so that neither can differ from it.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace CLI {
class App;
}

namespace butter::cli {

// All commands, in the order of --help.
std::vector<std::unique_ptr<Command>> make_commands();
// Makes each a subcommand of the program.
void declare_commands(CLI::App& app, const std::vector<std::unique_ptr<Command>>& commands);

struct OptionEntry {
  std::vector<std::string> names;  // "-m", "--model"; of a value without a name: "name"
  std::string kind;                // of its value: "N", "FILE", "cpu|reference"; empty: it takes none
  std::string help;
  bool is_positional = false;

  bool operator==(const OptionEntry&) const = default;
};

struct CommandEntry {
  std::string name;
  std::string summary;
  std::vector<OptionEntry> options;
};

std::vector<CommandEntry> command_table();

}  // namespace butter::cli
