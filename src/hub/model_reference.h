// ModelReference: a model of the Hugging Face hub, as -m and pull take it: org/name[:file][@revision].
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace butter {

struct ModelReference {
  std::string repository;  // org/name
  std::string file;        // a GGUF file or a quantisation tag (Q4_K_M); empty: not stated
  std::string revision = "main";

  std::string text() const;  // as it is written; a revision of main is left out
};

// Nothing where `text` does not have that form: its parts are names as the hub has them, and none climbs.
std::optional<ModelReference> parse_model_reference(std::string_view text);

// Whether a file name, which may come from a server, stays below the folder that it is put in: relative, of
// plain components, UTF-8 without control characters and backslashes, of bounded length and depth.
bool is_safe_file_name(std::string_view name);

}  // namespace butter
