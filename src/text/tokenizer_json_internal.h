// What the readers of tokenizer.json share, for src/text only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/normalizer.h"
#include "text/piece_decoder.h"
#include "text/pre_tokenizer.h"

namespace butter {

// The member of an object, or a null that lives for ever.
const nlohmann::json& json_member(const nlohmann::json& object, std::string_view key);
// The text of a string; empty for any other value.
std::string_view json_text(const nlohmann::json& value);
// Whether a value is true; a flag that the file leaves out is `if_missing`.
bool json_flag(const nlohmann::json& value, bool if_missing = false);
// A value as a message shows it.
std::string json_shown(const nlohmann::json& value);

// What a file's pre_tokenizer says.
struct PreTokenizerSteps {
  std::vector<PreTokenizerStage> stages;
  bool byte_level = false;  // words are spelled in the byte alphabet
};
Result<PreTokenizerSteps> read_pre_tokenizer_steps(const nlohmann::json& pre_tokenizer);

// What a file's decoder says.
struct DecoderSteps {
  std::vector<DecodeStep> steps;
  LeadingSpace leading_space = LeadingSpace::kKept;
  bool byte_level = false;
};
Result<DecoderSteps> read_decoder_steps(const nlohmann::json& decoder);

// What a file's normalizer says; no steps where it has none.
Result<std::vector<NormalizerStep>> read_normalizer_steps(const nlohmann::json& normalizer);
// Whether what a text begins with may vanish.
bool may_shorten_the_beginning(std::span<const NormalizerStep> steps);

}  // namespace butter
