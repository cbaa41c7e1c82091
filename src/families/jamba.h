// Jamba: Mamba1 and attention, experts in some layers (families.md 6.16).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> jamba_spec(const FamilySource& source);

}  // namespace butter
