#include "text/piece_trie.h"

#include <algorithm>
#include <queue>

namespace butter {

// Breadth first: a node stands for the pieces [begin, end), which agree in their first `depth` bytes.
PieceTrie::PieceTrie(std::vector<Piece> pieces) {
  std::ranges::sort(pieces, {}, &Piece::text);
  struct Range {
    size_t begin, end, depth;
  };
  std::queue<Range> open;
  open.push({0, pieces.size(), 0});
  nodes_.emplace_back();
  bytes_.push_back(0);
  for (size_t at = 0; !open.empty(); ++at, open.pop()) {
    auto [begin, end, depth] = open.front();
    if (begin < end && pieces[begin].text.size() == depth) nodes_[at].value = pieces[begin++].value;
    nodes_[at].first_child = static_cast<int32_t>(nodes_.size());
    while (begin < end) {
      const char byte = pieces[begin].text[depth];
      size_t next = begin + 1;
      while (next < end && pieces[next].text[depth] == byte) ++next;
      nodes_.emplace_back();
      bytes_.push_back(static_cast<uint8_t>(byte));
      ++nodes_[at].children;
      open.push({begin, next, depth + 1});
      begin = next;
    }
  }
  children_of_root_.fill(-1);
  for (int32_t i = 0; i < nodes_[0].children; ++i)
    children_of_root_[bytes_[nodes_[0].first_child + i]] = nodes_[0].first_child + i;
}

int32_t PieceTrie::child(int32_t node, uint8_t byte) const {
  if (node == 0) return children_of_root_[byte];
  const uint8_t* const first = bytes_.data() + nodes_[node].first_child;
  const uint8_t* const last = first + nodes_[node].children;
  const uint8_t* const found = std::lower_bound(first, last, byte);
  return found == last || *found != byte ? -1 : static_cast<int32_t>(found - bytes_.data());
}

size_t PieceTrie::longest_prefix_bytes(std::string_view text) const {
  size_t longest = 0;
  for_each_prefix(text, [&](size_t bytes, int32_t) { longest = bytes; });
  return longest;
}

int32_t PieceTrie::find(std::string_view text) const {
  int32_t node = 0;
  for (size_t i = 0; i < text.size() && node >= 0; ++i) node = child(node, static_cast<uint8_t>(text[i]));
  return node < 0 ? -1 : nodes_[node].value;
}

}  // namespace butter
