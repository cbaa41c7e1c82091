// Tensors of a file that no text model reads: towers of images and sound, layers that predict further tokens,
// and rope tables, which are computed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/tensor_table.h"

namespace butter {

bool is_unused_kind(std::string_view name);

// "ignoring 312 vision tensors (0.8 GB)", or nothing where there are none such.
std::optional<std::string> describe_unused(const TensorTable& table);

}  // namespace butter
