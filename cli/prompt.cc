#include "cli/prompt.h"

#include "cli/failure.h"
#include "cli/terminal.h"

namespace butter::cli {

void PromptArguments::declare(Arguments& arguments) {
  arguments.text("-p,--prompt", text, "the text; - reads standard input");
  arguments.text("-f,--file", file, "a file with the text", "FILE");
  arguments.integers("--token-ids", ids, {INT64_MIN, INT64_MAX}, "token ids in place of text");
}

void PromptArguments::check_one_source() const {
  const int sources = (text ? 1 : 0) + (file ? 1 : 0) + (has_ids() ? 1 : 0);
  if (sources == 0)
    refuse_usage("there is no prompt: give one with -p TEXT, -p - (standard input), -f FILE or --token-ids");
  if (sources > 1)
    refuse_usage("more than one of --prompt, --file and --token-ids is given; one is expected");
}

std::string PromptArguments::read_text() const {
  const std::string read = file ? read_text_file(*file) : *text == "-" ? read_stdin() : *text;
  if (read.empty()) refuse("the prompt is empty; a text is expected in {}", file ? *file : "--prompt");
  return read;
}

std::vector<int32_t> PromptArguments::read_ids(const ModelInfo& model) const {
  std::vector<int32_t> result;
  for (const int64_t id : ids) {
    if (id < 0 || id >= model.vocabulary) {
      refuse("--token-ids holds {}; {} has the ids 0 to {}", id, model.name, model.vocabulary - 1);
    }
    result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

std::vector<int32_t> PromptArguments::read_tokens(const Engine& engine) const {
  if (has_ids()) return read_ids(engine.info());
  return must(require_tokenizer(engine).encode(read_text()));
}

const Tokenizer& require_tokenizer(const Engine& engine) {
  const Tokenizer* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) {
    refuse("{} has no tokenizer; give the prompt as numbers with --token-ids", engine.info().name);
  }
  return *tokenizer;
}

}  // namespace butter::cli
