// butter tokenize: the token ids and pieces of a text, and text from ids.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "butter/inspect.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/printable.h"
#include "cli/prompt.h"
#include "cli/terminal.h"

namespace butter::cli {
namespace {

class TokenizeCommand : public Command {
 public:
  const char* name() const override { return "tokenize"; }
  const char* summary() const override { return "the token ids of a text, or the text of token ids"; }

  void declare(Arguments& arguments) override {
    common_.declare(arguments);
    arguments.text("-p,--prompt", text_.text, "the text; - reads standard input");
    arguments.text("-f,--file", text_.file, "a file with the text", "FILE");
    arguments.integers("--decode", text_.ids, {INT64_MIN, INT64_MAX}, "token ids to turn into text");
    arguments.flag("--special", special_, "special tokens in the text are those tokens, not text");
    arguments.flag("--no-bos", no_bos_, "leave out the BOS that the file may ask for");
  }

  int run() override {
    if (!text_.given())
      refuse_usage("there is nothing to read: give -p TEXT, -p - (standard input), -f FILE or --decode");
    text_.check_one_source();
    const auto tokenizer = must(load_model_tokenizer(common_.model_name()));
    if (!tokenizer) refuse("{} has no tokenizer", common_.model_name());
    return text_.has_ids() ? decode(*tokenizer) : encode(*tokenizer);
  }

 private:
  int encode(const Tokenizer& tokenizer) const {
    EncodeOptions options;
    options.add_bos = !no_bos_;
    options.add_eos = false;
    options.parse_special = special_;
    print(tokenizer, must(tokenizer.encode(text_.read_text(), options)), "");
    return kExitOk;
  }

  int decode(const Tokenizer& tokenizer) const {
    std::vector<int32_t> ids;
    for (const int64_t id : text_.ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        refuse("--decode holds {}; the tokenizer has the ids 0 to {}", id, tokenizer.vocab_size() - 1);
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    const std::string text = tokenizer.decode(ids);
    if (common_.json) {
      print(tokenizer, ids, text);
    } else {
      write_out(text + "\n");
    }
    return kExitOk;
  }

  void print(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const std::string& text) const {
    std::vector<std::string> pieces;
    for (const int32_t id : ids) pieces.emplace_back(tokenizer.piece(id));
    if (common_.json) {
      nlohmann::ordered_json json = {{"ids", ids}, {"pieces", pieces}};
      if (!text.empty()) json["text"] = text;
      print_json(json);
      return;
    }
    std::string lines;
    for (size_t i = 0; i < ids.size(); ++i) lines += fmt::format("{:>8}  {}\n", ids[i], printable(pieces[i]));
    write_out(lines);
  }

  CommonOptions common_;
  PromptArguments text_;
  bool special_ = false;
  bool no_bos_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
  return std::make_unique<TokenizeCommand>();
}

}  // namespace butter::cli
