// model_identity: a name for what a cache's rows depend on: "llama-30x576-1f0c...".
//
// Two models have the same one only if all that their specs say is the same and a sample of every tensor is:
// both ends and the middle of its bytes. So it reads a few kilobytes a tensor, whatever the model's size.
// Names of files do not count, the types of the weights do.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "model/model_spec.h"

namespace butter {

Result<std::string> model_identity(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace butter
