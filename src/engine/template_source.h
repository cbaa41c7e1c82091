// The chat templates of a checkpoint: in GGUF metadata, or in the files beside safetensors.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "core/status.h"

namespace butter {

// Source texts. Some models have a second template for requests with tools.
struct ChatTemplateSources {
  std::optional<std::string> usual;
  std::optional<std::string> with_tools;
};

Result<ChatTemplateSources> load_chat_templates(const Checkpoint& checkpoint);

}  // namespace butter
