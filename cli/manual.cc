// butter manual: the manual page, butter(1), in man's own language.
#include <fmt/format.h>

#include <algorithm>

#include "butter/version.h"
#include "cli/command_table.h"
#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

constexpr const char* kHead = R"(.SH NAME
butter \- run language models with small KV caches
.SH SYNOPSIS
.B butter
.I command
.RI [ options ]
.br
.B butter \-m
.I MODEL
.B \-p
.I PROMPT
.SH DESCRIPTION
Butter answers prompts with language models on one machine, and keeps the KV cache small: in 2 to 16 bits a value,
behind a window if asked, planned to the byte beforehand.
.PP
An option in place of a command is one of
.BR generate .
Results go to standard output and everything else to standard error.
An option given twice: the last holds, unless it may be repeated.
)";

constexpr const char* kTail = R"(.SH EXIT STATUS
.TP
0
Done.
.TP
1
An error: one sentence on standard error names the file, the option or the tensor, what was found and what was expected.
.TP
2
The command line does not read.
.TP
130, 143
Ended by Ctrl\-C or SIGTERM.
.SH ENVIRONMENT
.TP
.B BUTTER_ISA
An instruction set to use: portable, avx2, avx512 or amx.
.TP
.B BUTTER_CACHE_DIR
Where
.B pull
keeps models that are not of the Hugging Face hub; else butter in
.B XDG_CACHE_HOME
or in ~/.cache.
.TP
.BR HF_HUB_CACHE ", " HF_HOME ", " HF_TOKEN ", " HF_TOKEN_PATH ", " HF_ENDPOINT
The hub's cache, token and address, as Hugging Face's own tools read them.
.SH FILES
.TP
.IR MODEL .quality.json
What
.B butter eval \-\-card
measured.
.SH EXAMPLES
.nf
butter pull smollm2
butter \-m smollm2 \-p "Why is the sky blue?"
butter chat \-m smollm2 \-\-kv\-cache aura
butter plan \-m smollm2 \-\-max\-context 32768 \-\-sessions 8 \-\-budget 8GiB
.fi
)";

// Hyphens stay hyphens, and no line begins with a request.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  if (!escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'')) escaped.insert(0, "\\&");
  return escaped;
}

std::string option_text(const OptionEntry& option) {
  std::string names;
  for (const std::string& name : option.names) {
    if (!names.empty()) names += ", ";
    names +=
        option.is_positional ? fmt::format("\\fI{}\\fR", roff(name)) : fmt::format("\\fB{}\\fR", roff(name));
  }
  if (!option.kind.empty() && !option.is_positional) names += fmt::format(" \\fI{}\\fR", roff(option.kind));
  return fmt::format(".TP\n{}\n{}\n", names, roff(option.help));
}

// What every command that reads a model takes.
std::vector<OptionEntry> common_options(const std::vector<CommandEntry>& table) {
  const auto has = [](const CommandEntry& command, const OptionEntry& option) {
    return std::find(command.options.begin(), command.options.end(), option) != command.options.end();
  };
  std::vector<OptionEntry> common = table.front().options;
  const auto model = std::find_if(common.begin(), common.end(),
                                  [](const OptionEntry& option) { return option.names.back() == "--model"; });
  if (model == common.end()) return {};
  const OptionEntry reads_model = *model;
  for (const CommandEntry& command : table) {
    if (!has(command, reads_model)) continue;
    std::erase_if(common, [&](const OptionEntry& option) { return !has(command, option); });
  }
  return common;
}

std::string manual(const std::vector<CommandEntry>& table) {
  std::string page = fmt::format(".TH BUTTER 1 \"\" \"butter {}\" \"User Commands\"\n", kVersion);
  page += kHead;
  const std::vector<OptionEntry> common = common_options(table);
  page += ".SH COMMON OPTIONS\nOf all commands that read a model.\n";
  for (const OptionEntry& option : common) page += option_text(option);
  page += ".SH COMMANDS\n";
  for (const CommandEntry& command : table) {
    page += fmt::format(".SS butter {}\n{}.\n", roff(command.name), roff(command.summary));
    for (const OptionEntry& option : command.options) {
      if (std::find(common.begin(), common.end(), option) == common.end()) page += option_text(option);
    }
  }
  return page + kTail;
}

class ManualCommand : public Command {
 public:
  const char* name() const override { return "manual"; }
  const char* summary() const override { return "print the manual page: `butter manual | man -l -`"; }
  void declare(Arguments&) override {}
  int run() override {
    write_out(manual(command_table()));
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> make_manual_command() {
  return std::make_unique<ManualCommand>();
}

}  // namespace butter::cli
