// gpt-oss: attention with sinks, experts with biases and a clamped gate (families.md 6.12).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> gpt_oss_spec(const FamilySource& source);

}  // namespace butter
