// SafetensorsFile: the parsed header of a safetensors file and views of its tensors. Nothing of the
// tensors' data is read or copied.
//
//   header bytes: u64 | header: JSON | data
//
// The header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, counted from the data;
// "__metadata__" maps strings to strings. All of it is untrusted: lengths are bounded, names unique, the
// bytes of a tensor are those of its dtype and shape, and together the tensors cover the data without
// gap or overlap.
//
// What Butter cannot read (another dtype, more than four dimensions, no elements) is listed with a
// reason, and refused only when it is asked for: files carry such tensors beside those that a model
// needs. Data may begin at any byte: MLX does not pad its header.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/attributes.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor_table.h"
#include "core/status.h"

namespace butter {

class SafetensorsFile {
 public:
  // Maps and parses; the result, and each copy of it, keeps the mapping alive.
  static Result<SafetensorsFile> open(const std::string& path);

  // Parses a file's bytes, which `owner` keeps alive (or, if null, the caller does).
  static Result<SafetensorsFile> parse(std::span<const std::byte> file,
                                       std::shared_ptr<const void> owner = nullptr);

  // What "__metadata__" holds.
  const Attributes& metadata() const { return metadata_; }
  // Views are those of F32, F16, BF16, I32, I8, U8 and U32 tensors; the others are `unreadable`.
  const TensorTable& tensors() const { return tensors_; }
  // A tensor that must be there and readable.
  Result<TensorView> tensor(std::string_view name) const;

 private:
  std::shared_ptr<const void> owner_;
  Attributes header_;  // owns the names
  Attributes metadata_;
  TensorTable tensors_;
};

// The view of `name`, or a sentence: it is missing from `file`, or cannot be read and why.
Result<TensorView> readable_tensor(const TensorTable& table, std::string_view name, std::string_view file);

}  // namespace butter
