// What is odd about a checkpoint as the model that its configuration says it is.
#pragma once

#include "families/family.h"

namespace butter {

// Makes the spec's notes: the checkpoint's own, tensors that the model does not read, of a kind that none
// reads aside (checkpoint/unused_tensors.h), and the embedding that is the head of a model which says it has
// its own.
void add_file_notes(const FamilySource& source, ModelSpec& spec);

}  // namespace butter
