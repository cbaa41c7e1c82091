// Qwen2 and Qwen2.5: biases on q, k and v. Qwen3: per-head norms of q and k (families.md 6.3, 6.4).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> qwen2_spec(const FamilySource& source);
Result<ModelSpec> qwen3_spec(const FamilySource& source);

}  // namespace butter
