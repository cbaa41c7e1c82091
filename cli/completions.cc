// butter completions: scripts that let bash, zsh and fish complete commands, options and their values.
#include <fmt/format.h>

#include <algorithm>

#include "butter/inspect.h"
#include "butter/pull.h"
#include "cli/command_table.h"
#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

// What may stand as a value.
struct Values {
  std::vector<std::string> words;
  bool files = false;
};

Values values_of(const std::string& kind) {
  if (kind == "FILE") return {{}, true};
  if (kind == "MODEL") return {pullable_models(), true};
  if (kind == "NAME") return {pullable_models(), false};
  if (kind == "SCHEME") return {cache_format_names(), false};
  Values values;
  if (kind.find('|') == std::string::npos) return values;
  for (size_t start = 0, bar = 0; bar != std::string::npos; start = bar + 1) {
    bar = kind.find('|', start);
    values.words.push_back(kind.substr(start, bar == std::string::npos ? bar : bar - start));
  }
  return values;
}

std::string joined(const std::vector<std::string>& words, const char* separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

// A text between single quotes, for any of the shells.
std::string quoted(const std::string& text, const char* quote_inside = "'\\''") {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += quote_inside;
    else
      quoted += c;
  }
  return quoted + '\'';
}

std::vector<std::string> command_names(const std::vector<CommandEntry>& table) {
  std::vector<std::string> names;
  for (const CommandEntry& command : table) names.push_back(command.name);
  return names;
}

// --- bash

constexpr const char* kBashHead = R"(# bash completion of butter, made by `butter completions bash`
_butter() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} options= words=
  COMPREPLY=()
  # Words are cut at "=": --device=cpu is three.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  # An option in place of a command is one of generate.
  if ((COMP_CWORD == 1)) || [[ $command == -* ]]; then command=generate; fi
)";

constexpr const char* kBashTail =
    R"(  if ((COMP_CWORD == 1)); then words=$commands options="$options --version"; fi
  if [[ $cur != -* && -n $words ]]; then options=$words; fi
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}
complete -F _butter butter
)";

std::string bash_values(const OptionEntry& option) {
  const Values values = values_of(option.kind);
  std::string action;
  if (values.files)
    action = "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"; ";
  if (!values.files && !values.words.empty()) action = "mapfile -t COMPREPLY < <(";
  if (!values.words.empty()) action += fmt::format("compgen -W \"{}\" -- \"$cur\"", joined(values.words));
  if (!action.empty()) action += "); ";
  return action;
}

std::string bash_command(const CommandEntry& command) {
  std::string cases, words;
  std::vector<std::string> options;
  for (const OptionEntry& option : command.options) {
    if (option.is_positional) {
      words = joined(values_of(option.kind).words);
      continue;
    }
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.kind.empty() || option.kind[0] == '[') continue;  // what comes next may be an option
    cases += fmt::format("        {}) {}return ;;\n", joined(option.names, " | "), bash_values(option));
  }
  return fmt::format(
      "    {})\n      case $prev in\n{}      esac\n      options=\"{}\" words=\"{}\"\n      ;;\n",
      command.name, cases, joined(options), words);
}

std::string bash_script(const std::vector<CommandEntry>& table) {
  std::string script = kBashHead;
  script += fmt::format("  local commands=\"{}\"\n  case $command in\n", joined(command_names(table)));
  for (const CommandEntry& command : table) script += bash_command(command);
  return script + "  esac\n" + kBashTail;
}

// --- zsh

// An explanation between brackets, or a message between colons.
std::string zsh_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_action(const OptionEntry& option) {
  const Values values = values_of(option.kind);
  if (values.files && values.words.empty()) return "_files";
  if (values.files)
    return fmt::format("_alternative \"files\\:file\\:_files\" \"names\\:name\\:({})\"",
                       joined(values.words));
  return values.words.empty() ? " " : fmt::format("({})", joined(values.words));
}

std::string zsh_option(const OptionEntry& option) {
  const std::string value =
      option.kind.empty() ? "" : fmt::format(":{}:{}", zsh_escaped(option.kind), zsh_action(option));
  if (option.is_positional) return "      " + quoted("1" + value);
  std::string lines;
  for (const std::string& name : option.names) {
    // A value follows the name, or "=" after a long one.
    const std::string sign = option.kind.empty() || name.rfind("--", 0) != 0 ? "" : "=";
    if (!lines.empty()) lines += " \\\n";
    lines += "      " + quoted(fmt::format("*{}{}[{}]{}", name, sign, zsh_escaped(option.help), value));
  }
  return lines;
}

std::string zsh_script(const std::vector<CommandEntry>& table) {
  std::string script =
      "#compdef butter\n# zsh completion of butter, made by `butter completions zsh`\n_butter() {\n"
      "  local -a commands=(\n";
  for (const CommandEntry& command : table)
    script += fmt::format("    {}\n", quoted(command.name + ":" + zsh_escaped(command.summary)));
  script +=
      "  )\n"
      "  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  # An option in place of a command is one of generate.\n"
      "  local command=generate\n"
      "  if [[ $words[2] != -* ]]; then\n"
      "    command=$words[2]\n"
      "    shift words\n"
      "    ((CURRENT--))\n"
      "  fi\n"
      "  case $command in\n";
  for (const CommandEntry& command : table) {
    script += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionEntry& option : command.options) script += " \\\n" + zsh_option(option);
    script += "\n      ;;\n";
  }
  // Autoloaded, the file is the function's body; sourced, it is told of.
  return script +
         "  esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _butter \"$@\"\nelse\n  compdef "
         "_butter butter\nfi\n";
}

// --- fish

constexpr const char* kFishHead = R"(# fish completion of butter, made by `butter completions fish`
function __butter_begins
    test (count (commandline -opc)) -eq 1
end
# An option in place of a command is one of generate.
function __butter_is
    set -l words (commandline -opc)
    set -l command generate
    if test (count $words) -gt 1; and not string match -q -- '-*' $words[2]
        set command $words[2]
    end
    test $command = $argv[1]
end
complete -c butter -f
complete -c butter -n __butter_begins -l help -d 'the commands'
complete -c butter -n __butter_begins -l version -d 'version, compiler, instruction set, devices'
)";

std::string fish_quoted(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') escaped += '\\';
    escaped += c;
  }
  return quoted(escaped, "\\'");
}

std::string fish_option(const CommandEntry& command, const OptionEntry& option) {
  const Values values = values_of(option.kind);
  std::string line = fmt::format("complete -c butter -n '__butter_is {}'", command.name);
  if (!option.is_positional) {
    for (const std::string& name : option.names) {
      const bool is_long = name.rfind("--", 0) == 0;
      line += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
    }
    if (!option.kind.empty()) line += values.files ? " -r -F" : " -x";
  }
  if (!values.words.empty()) line += " -a " + fish_quoted(joined(values.words));
  return line + " -d " + fish_quoted(option.help) + "\n";
}

std::string fish_script(const std::vector<CommandEntry>& table) {
  std::string script = kFishHead;
  for (const CommandEntry& command : table) {
    script += fmt::format("complete -c butter -n __butter_begins -a {} -d {}\n", command.name,
                          fish_quoted(command.summary));
    for (const OptionEntry& option : command.options) script += fish_option(command, option);
  }
  return script;
}

class CompletionsCommand : public Command {
 public:
  const char* name() const override { return "completions"; }
  const char* summary() const override { return "print a shell's completion script"; }

  void declare(Arguments& arguments) override {
    arguments.positional("shell", shell_, "whose script is printed", "bash|zsh|fish");
  }

  int run() override {
    const std::vector<CommandEntry> table = command_table();
    if (shell_ == "bash")
      write_out(bash_script(table));
    else if (shell_ == "zsh")
      write_out(zsh_script(table));
    else if (shell_ == "fish")
      write_out(fish_script(table));
    else
      refuse_usage("the shell is \"{}\"; bash, zsh or fish is expected", shell_);
    return kExitOk;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completions_command() {
  return std::make_unique<CompletionsCommand>();
}

}  // namespace butter::cli
