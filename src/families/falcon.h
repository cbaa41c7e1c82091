// Falcon-H1: Mamba2 and attention side by side in every layer (families.md 6.18).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> falcon_h1_spec(const FamilySource& source);

}  // namespace butter
