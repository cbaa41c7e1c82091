// Llama 2 and 3, SmolLM2 and others of the same block; Mistral, the same with a sliding window
// (families.md 6.1).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> llama_spec(const FamilySource& source);
Result<ModelSpec> mistral_spec(const FamilySource& source);

}  // namespace butter
