// SmolLM3: Llama's block, with layers that do not turn their keys (families.md 6.2).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> smollm3_spec(const FamilySource& source);

}  // namespace butter
