// butter pull: fetches a model into the cache that its source has: Butter's own, or Hugging Face's.
#include "butter/pull.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

class PullCommand : public Command {
 public:
  const char* name() const override { return "pull"; }
  const char* summary() const override {
    return "fetch a model: `butter pull smollm2` is the small default, `butter pull org/name` one of the "
           "Hugging Face hub";
  }
  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    arguments.positional("name", name_,
                         "of the model: smollm2, or org/name[:file][@revision] of the Hugging Face hub",
                         "NAME");
  }

  int run() override {
    handle_interrupts();
    PullOptions options;
    options.cancel = &interrupted();
    std::string shown;
    std::optional<ProgressBar> bar;
    options.progress = [&](const char* what, int64_t done, int64_t total) {
      if (shown != what) {
        bar.reset();
        bar.emplace(shown = what, ProgressBar::Unit::kBytes);
        if (common_.verbose) note(what);
      }
      bar->update(done, total);
    };
    const auto pulled = pull_model(name_, options);
    bar.reset();
    if (!pulled && pulled.error().code() == StatusCode::kCancelled) return interrupt_exit_status();
    const PulledModel model = must(pulled);
    if (common_.json) {
      print_json({{"path", model.path}, {"bytes", model.bytes}, {"was_there", model.was_there}});
    } else {
      write_out(model.path + "\n");
      note(model.was_there
               ? fmt::format("{} is there already and whole", name_)
               : fmt::format("fetched {}: {}, as its hashes say", name_, spoken_bytes(model.bytes)));
    }
    return kExitOk;
  }

 private:
  CommonOptions common_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> make_pull_command() {
  return std::make_unique<PullCommand>();
}

}  // namespace butter::cli
