// Gemma 3: centred norms before and after both branches, two rotations, sliding layers (families.md 6.11).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> gemma3_spec(const FamilySource& source);

}  // namespace butter
