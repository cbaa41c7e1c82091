// What a command is given to read: -p TEXT, -p - (standard input), -f FILE, or --token-ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "butter/engine.h"
#include "cli/arguments.h"

namespace butter::cli {

struct PromptArguments {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::vector<int64_t> ids;

  void declare(Arguments& arguments);
  bool given() const { return text || file || !ids.empty(); }
  bool has_ids() const { return !ids.empty(); }

  // Refuses no source, more than one, and an empty text.
  std::string read_text() const;
  // The ids; refuses those that the model has no embedding for.
  std::vector<int32_t> read_ids(const ModelInfo& model) const;
  // --token-ids, or the tokens of the text as plain text.
  std::vector<int32_t> read_tokens(const Engine& engine) const;

  void check_one_source() const;
};

// The tokenizer, or a Failure that says what to do without.
const Tokenizer& require_tokenizer(const Engine& engine);

}  // namespace butter::cli
