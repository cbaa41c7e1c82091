// Spark-X2.5: a gate for each head, two rotations, sliding layers (families.md 6.9).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> spark2_5_spec(const FamilySource& source);

}  // namespace butter
