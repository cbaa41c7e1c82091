// Phi-3, Phi-3.5 and Phi-4: fused projections, partial rotation (families.md 6.13).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> phi3_spec(const FamilySource& source);

}  // namespace butter
