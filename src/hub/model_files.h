// Which of a repository's files make up a model: pure functions over lists of names.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace butter {

struct ModelFiles {
  std::vector<std::string> names;  // sorted
  // What is opened: the GGUF file, of a split one its first part; empty: the folder that holds the files.
  std::string opened;
};

// `file` is a GGUF file by its name, or by a quantisation tag that one file alone has in its name, in either
// case; a split file is named by any of its parts. Empty: config.json with its safetensors files, tokenizer
// and templates, where there are such; else the only GGUF file. Anything else is an error that lists the
// GGUF files there are. `source` is what messages call the list: "org/name".
Result<ModelFiles> choose_model_files(const std::vector<std::string>& names, const std::string& file,
                                      const std::string& source);

}  // namespace butter
