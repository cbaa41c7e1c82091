// The shards of a safetensors model: the files that model.safetensors.index.json names.
//
//   {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}}
//
// The index is untrusted: a shard is a plain file name beside the index, each is there, and each holds the
// tensors that the index promises of it. What a shard holds beyond that is part of the model too.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/weight_file.h"
#include "core/status.h"

namespace butter {

// Whether `path` is named as an index is.
bool is_safetensors_index(const std::string& path);

// All shards, sorted by name.
Result<std::vector<WeightFile>> open_safetensors_shards(const std::string& index_path);

}  // namespace butter
