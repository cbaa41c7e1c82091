// Nemotron-H, dense and with experts: blocks of one kind each (families.md 6.15).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> nemotron_h_spec(const FamilySource& source);

}  // namespace butter
