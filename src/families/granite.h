// Granite 4 without recurrent layers or experts: Llama's block with multipliers (families.md 6.17).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> granite_spec(const FamilySource& source);

}  // namespace butter
