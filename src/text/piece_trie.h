// PieceTrie: finds the pieces of a vocabulary that a text begins with. Immutable once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace butter {

class PieceTrie {
 public:
  struct Piece {
    std::string_view text;  // not empty
    int32_t value;          // not negative
  };

  PieceTrie() : PieceTrie(std::vector<Piece>()) {}  // of no pieces
  // No two pieces have the same text.
  explicit PieceTrie(std::vector<Piece> pieces);

  bool empty() const { return nodes_.size() == 1; }

  // Calls found(bytes, value) for each piece that `text` begins with, the shortest first.
  template <typename Found>
  void for_each_prefix(std::string_view text, const Found& found) const {
    int32_t node = 0;
    for (size_t bytes = 1; bytes <= text.size(); ++bytes) {
      node = child(node, static_cast<uint8_t>(text[bytes - 1]));
      if (node < 0) return;
      if (nodes_[node].value >= 0) found(bytes, nodes_[node].value);
    }
  }

  // Of the longest piece that `text` begins with; 0: there is none.
  size_t longest_prefix_bytes(std::string_view text) const;
  // The value of the piece that is this very text; -1: there is none.
  int32_t find(std::string_view text) const;

 private:
  // The children of a node stand side by side, sorted by their bytes.
  struct Node {
    int32_t value = -1;
    int32_t first_child = 0;
    int32_t children = 0;
  };
  int32_t child(int32_t node, uint8_t byte) const;  // -1: there is none

  std::vector<Node> nodes_;     // the first is the root
  std::vector<uint8_t> bytes_;  // by node: the last byte of its text
  std::array<int32_t, 256> children_of_root_;
};

}  // namespace butter
