// Qwen2 and Qwen3 (families.md 6.3, 6.4), Qwen3-MoE (6.5), Qwen3-Next (6.6), Qwen3.5 and its MoE (6.7, 6.8).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> qwen2_spec(const FamilySource& source);
Result<ModelSpec> qwen3_spec(const FamilySource& source);
Result<ModelSpec> qwen3_moe_spec(const FamilySource& source);
Result<ModelSpec> qwen3_next_spec(const FamilySource& source);
Result<ModelSpec> qwen3_5_spec(const FamilySource& source);
Result<ModelSpec> qwen3_5_moe_spec(const FamilySource& source);

}  // namespace butter
