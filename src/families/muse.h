// Muse Glimmer: a gate for each channel, norms without weights, layers without rope (families.md 6.10).
#pragma once

#include "families/family.h"

namespace butter {

Result<ModelSpec> muse_glimmer_spec(const FamilySource& source);

}  // namespace butter
