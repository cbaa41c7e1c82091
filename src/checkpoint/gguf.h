// Gguf: the parsed header of a GGUF file, version 2 or 3, and views of its tensors. Nothing of the tensors'
// data is read, and nothing that can stay in the mapping is copied.
//
// Every count, length, dimension and offset is untrusted and held against the size of the file before
// it is used; an error is one sentence with the key or tensor, what was found and what was expected.
//
//   "GGUF" | version: u32 | tensors: u64 | keys: u64 | keys · (name, type: u32, value)
//   | tensors · (name, rank: u32, dims: u64 · rank, type: u32, offset: u64) | padding | data
//
// Numbers are little-endian; a string is its length (u64) and its bytes; an array is its element type
// (u32), its count (u64) and its elements. Dimensions are stored fastest first; the views have them in
// (out, in) order. The data section begins at a multiple of general.alignment (32 if absent), and
// offsets count from there. Versions 2 and 3 have one layout; 3 allowed big-endian files, which are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "checkpoint/attributes.h"
#include "checkpoint/tensor_table.h"
#include "core/status.h"

namespace butter {

class Gguf {
 public:
  // Whether `file` begins as a GGUF file does.
  static bool recognises(std::span<const std::byte> file);

  // Parses a file's bytes, which `owner` keeps alive (or, if null, the caller does: they must then
  // outlive the Gguf and every copy of its metadata).
  static Result<Gguf> parse(std::span<const std::byte> file, std::shared_ptr<const void> owner = nullptr);

  const Attributes& metadata() const { return metadata_; }
  const TensorTable& tensors() const { return tensors_; }

 private:
  Attributes metadata_;
  TensorTable tensors_;
};

}  // namespace butter
