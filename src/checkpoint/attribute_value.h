// The nodes behind Attributes, as the readers of JSON and GGUF build them. For src/checkpoint only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.h"

namespace butter {

enum class NumberType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kU64, kI64, kF64 };

int number_bytes(NumberType type);

// Numbers as they lie in a file: little-endian, packed, at any address.
struct PackedNumbers {
  NumberType type;
  int64_t count;
  const std::byte* data;
};

struct AttributeValue;
struct AttributeMember;

// Members in file order, found by name through an index.
struct AttributeObject {
  std::vector<AttributeMember> members;
  std::vector<uint32_t> by_name;  // indices of members, sorted by name

  // Builds the index; to be called once the members are all there. A name met twice is an error.
  Status index();
  const AttributeValue* find(std::string_view name) const;
};

using AttributeList = std::vector<AttributeValue>;
using AttributeStrings = std::vector<std::string_view>;

struct AttributeValue {
  // Whole numbers are int64_t; uint64_t only holds those above its range. A list whose elements are
  // all strings is AttributeStrings, one whose elements a file packs is PackedNumbers.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string_view, AttributeStrings,
               PackedNumbers, AttributeList, AttributeObject>
      value;
};

struct AttributeMember {
  std::string_view name;
  AttributeValue value;
};

// One parsed file: owns what the views in the tree look at, or keeps its owner alive.
struct AttributeDocument {
  std::string source;  // "config.json": where a message says that a key is missing from
  AttributeObject root;
  std::pmr::monotonic_buffer_resource text;
  std::shared_ptr<const void> owner;

  std::string_view keep(std::string_view from);
};

// One number as a value of its own.
AttributeValue number_value(NumberType type, const std::byte* at);

}  // namespace butter
