// SymbolTable: the tokens that a word begins as, before any merge. Immutable once filled; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace butter {

struct SymbolTable {
  SymbolTable() { byte_ids.fill(-1); }
  explicit SymbolTable(const std::array<int32_t, 256>& ids) : byte_ids(ids) {}

  // Of bytes: each byte is a symbol. Else each character is, by character_ids, and one that has no id there
  // is its bytes, if all of them have an id.
  bool of_bytes = true;
  std::array<int32_t, 256> byte_ids;  // -1: the vocabulary has none
  std::unordered_map<char32_t, int32_t> character_ids;
  // What stands for a symbol without an id; -1: it vanishes.
  int32_t unknown_id = -1;
  bool fuse_unknown = false;  // one unknown_id for a run of them

  // Appends the ids of a word. Bytes that are no UTF-8 are taken as bytes.
  void append(std::string_view word, std::vector<int32_t>* ids) const;
};

}  // namespace butter
