// Reads all that a parsed file offers, so that the sanitizers see a view that leaves the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/attributes.h"
#include "checkpoint/tensor_table.h"
#include "core/check.h"
#include "fuzz/touch_bytes.h"

namespace butter {

// The elements, or the error's sentence, of every getter.
template <typename T>
void touch_numbers(const Result<T>& result) {
  if (!result) return touch(result.error().message());
  for (auto item : *result) touched = touched + static_cast<uint64_t>(item != 0);
}

inline void touch(const Attributes& attributes) {
  for (std::string_view key : attributes.keys()) {
    BUTTER_CHECK(attributes.has(key));
    touch(key);
    touch(attributes.describe(key));
    (void)attributes.kind(key);
    (void)attributes.get_bool(key);
    (void)attributes.get_int(key);
    (void)attributes.require_int(key, 1, 1000);
    (void)attributes.require_float(key, 0, 1);
    if (const auto text = attributes.get_string(key)) touch(*text);
    if (const auto strings = attributes.get_strings(key))
      for (std::string_view text : *strings) touch(text);
    touch_numbers(attributes.get_ints(key));
    touch_numbers(attributes.get_floats(key));
    touch_numbers(attributes.get_bools(key));
    touch_numbers(attributes.get_int_or_ints(key));
    if (const auto inner = attributes.get_object(key)) touch(*inner);
  }
}

inline void touch(const TensorTable& table) {
  for (const TensorEntry& entry : table.entries()) {
    BUTTER_CHECK(table.find(entry.name) == &entry);
    touch(entry.name);
    if (entry.view.empty()) continue;
    touch(entry.view.shape.to_string());
    touch(entry.view.type_name());
    for (const std::span<const std::byte> part : entry.view.parts()) touch(part.data(), part.size());
  }
}

}  // namespace butter
