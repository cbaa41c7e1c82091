// The tokenizer of a checkpoint: from GGUF metadata, or the files beside safetensors.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "butter/tokenizer.h"
#include "checkpoint/checkpoint.h"
#include "core/status.h"

namespace butter {

// Null where the checkpoint has no tokenizer: it runs on token ids.
Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const Checkpoint& checkpoint);

// A tokenizer must not make ids that the model has no embedding for.
Status check_vocabulary(const Tokenizer& tokenizer, int vocabulary);

// Ids of the model that are no tokens (beyond the tokenizer's, or places without a meaning), sorted. What
// ends a turn is never among them.
std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int vocabulary);

}  // namespace butter
