// What the environment says about the hub, in the variables of Hugging Face's own tools.
#pragma once

#include <string>

#include "core/status.h"

namespace butter {

// "" where it is not set.
std::string environment(const char* name);

// $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
Result<std::string> hugging_face_home();

// $HF_ENDPOINT, else https://huggingface.co.
std::string hub_endpoint();

// $HF_TOKEN, else the file that `hf auth login` leaves ($HF_TOKEN_PATH, else token in the home); "" where
// there is none.
Result<std::string> hub_token();

}  // namespace butter
