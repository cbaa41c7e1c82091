// A GGUF model that was cut into several files: NAME-00001-of-00003.gguf and so on, in one folder.
//
// Each part is a GGUF file of its own, with its own data section. Its metadata says which part it is
// (split.no, from 0), how many there are (split.count) and how many tensors all hold together
// (split.tensors.count); the rest of the metadata is the first part's. Names and keys are untrusted and held
// against each other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/weight_file.h"
#include "core/status.h"

namespace butter {

// What the name of a part's file says.
struct SplitName {
  std::string stem;  // NAME, with the folder if there was one
  int part = 1;      // from 1
  int parts = 1;
};

// Nothing if `path` is not the name of a part.
std::optional<SplitName> parse_split_name(const std::string& path);
std::string split_name(const SplitName& name);

// All parts of the model whose first file is `first`, that one included; it alone for a model that is in one
// file. The sentence otherwise names the part, with what was found and expected.
Result<std::vector<WeightFile>> open_gguf_parts(std::shared_ptr<MappedFile> first, const Gguf& gguf);

}  // namespace butter
