// TensorTable: the tensors of one checkpoint, in file order and by name.
//
// Names and data are views into the file's bytes, whose owner outlives the table. Const methods may be
// called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor_view.h"

namespace butter {

struct TensorEntry {
  std::string_view name;
  TensorView view;         // empty when Butter cannot read the tensor
  std::string unreadable;  // then why: "is stored as F8_E4M3, which Butter does not read"
  uint64_t begin = 0;      // of the data, counted from the data section of its file
  uint64_t bytes = 0;
};

class TensorTable {
 public:
  TensorTable() = default;
  // Sorts by place in the file. Refuses a name met twice, and data that overlaps, by the tensors' names.
  static Result<TensorTable> create(std::vector<TensorEntry> entries);

  struct Part {
    std::string file_name;  // as a message names it
    const TensorTable* tensors = nullptr;
  };
  // The tensors of several files, one file after the other. Refuses a name that two of them hold.
  static Result<TensorTable> join(std::span<const Part> parts);
  // In this order. Refuses a name met twice.
  static Result<TensorTable> of(std::vector<TensorEntry> entries);

  std::span<const TensorEntry> entries() const { return entries_; }
  const TensorEntry* find(std::string_view name) const;  // null if there is none

 private:
  // Sorts the names. The places of two entries with one name, if there are such.
  std::optional<std::pair<uint32_t, uint32_t>> index_names();
  Status index_unique_names();

  std::vector<TensorEntry> entries_;
  std::vector<uint32_t> by_name_;
};

// a · b and a + b, or false if the result does not fit.
inline bool multiply(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
inline bool add(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

}  // namespace butter
