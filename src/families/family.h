// Family: how the configurations and tensor names of one kind of model become a ModelSpec.
//
// A family is one file here and one row of the table in families.cc. It holds no forward code: what it wants
// to say goes into the spec. Configurations are untrusted: every number is bounded before it is used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/status.h"
#include "model/model_spec.h"

namespace butter {

// What a family reads.
struct FamilySource {
  CheckpointFormat format = CheckpointFormat::kSafetensors;
  Attributes config;       // config.json (of the text model, in wrappers), or the GGUF metadata
  std::string model_type;  // model_type of config.json, or general.architecture
  const Checkpoint* checkpoint =
      nullptr;  // to see which tensors there are; null when only the config is looked at

  bool gguf() const { return format == CheckpointFormat::kGguf; }
  // Whether the file lists it, readable or not: what is there and cannot be read is an error where it is
  // read.
  bool has_tensor(std::string_view name) const;
};

struct Family {
  const char* name;
  std::vector<const char*> model_types;    // of config.json
  std::vector<const char*> architectures;  // of config.json, where model_type is unknown
  std::vector<const char*> gguf_architectures;
  Result<ModelSpec> (*make_spec)(const FamilySource& source);
};

// Picks the family by the configuration's selectors and makes the spec. An unknown model type is an error
// that lists the families there are.
Result<ModelSpec> make_model_spec(const Checkpoint& checkpoint);

// The same from a configuration alone, for tests of bad ones: tensors count as absent.
Result<ModelSpec> make_model_spec(CheckpointFormat format, const Attributes& config);

}  // namespace butter
