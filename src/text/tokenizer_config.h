// The files beside a tokenizer that say more about it, for src/text only: tokenizer_config.json,
// added_tokens.json, generation_config.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

namespace butter {

// An object. Size and depth are bounded.
Result<nlohmann::json> parse_tokenizer_file(std::string_view text, std::string_view file);
// The same, or a null for a file that is not there.
Result<nlohmann::json> parse_if_there(std::string_view text, std::string_view file);

// A number that may be a token's id.
std::optional<int64_t> json_id(const nlohmann::json& value);

// Puts a token into its place. Two of one id must be spelled the same.
Status place_token(std::string_view text, std::optional<int64_t> id, std::string_view file,
                   TokenizerSpec* spec);

// Adds an added token and its flags: an entry of tokenizer.json's added_tokens or of tokenizer_config.json's
// added_tokens_decoder. `is_word_token`: the model's own vocabulary has it.
Status add_added_token(const nlohmann::json& token, std::optional<int64_t> id, bool is_word_token,
                       std::string_view file, TokenizerSpec* spec);

// The id of a token by its text.
using FindToken = std::function<std::optional<int64_t>(std::string_view)>;
// Reads from tokenizer_config.json the ids that the spec does not have yet, and whether BOS and EOS are
// added.
Status read_tokenizer_config(const nlohmann::json& config, const FindToken& find, TokenizerSpec* spec);
// Adds the ids that end a turn.
Status read_generation_config(const nlohmann::json& generation, TokenizerSpec* spec);

// What the files say of a vocabulary that is no tokenizer.json, of which the spec has the tokens: more
// tokens, flags, ids. The documents must outlive the spec.
class ConfigOfVocabulary {
 public:
  static Result<ConfigOfVocabulary> parse(const TokenizerFiles& files);
  const nlohmann::json& tokenizer_config() const { return config_; }
  // Tokens and their flags, then ids.
  Status add_tokens_to(TokenizerSpec* spec) const;
  Status add_ids_to(TokenizerSpec* spec) const;

 private:
  nlohmann::json config_;
  nlohmann::json added_;
  nlohmann::json generation_;
};

}  // namespace butter
