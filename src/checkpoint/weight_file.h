// WeightFile: one of the files that hold a model's tensors, mapped and parsed.
#pragma once

#include <memory>

#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor_table.h"

namespace butter {

struct WeightFile {
  std::shared_ptr<MappedFile> file;
  TensorTable tensors;
  std::shared_ptr<const void> header;  // owns the tensors' names, where they are not views of the file
};

// Of one model: what a guarded process can map at a time (MappedFile) leaves room for it.
constexpr int kMaxWeightFiles = 1000;

}  // namespace butter
