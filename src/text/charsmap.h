// CharsMap: SentencePiece's precompiled_charsmap, which maps short texts to others (nmt_nfkc and its kin).
//
// Its bytes are a little-endian uint32 n, n bytes of a double array (Darts), and the texts, each with a zero
// behind it. They come from untrusted files. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace butter {

class CharsMap {
 public:
  static constexpr size_t kMaxMappedBytes = 256;  // of one text that another is mapped to
  CharsMap() = default;                           // maps nothing
  static Result<CharsMap> create(std::string_view blob);

  struct Match {
    size_t bytes;           // of the text that is mapped
    std::string_view with;  // valid while the map lives
  };
  // The longest text in the map that `text` begins with, as SentencePiece takes it.
  std::optional<Match> longest_prefix(std::string_view text) const;
  // The shortest one, as PyPI `tokenizers` takes it.
  std::optional<Match> shortest_prefix(std::string_view text) const;

  // What the Precompiled normalizer of `tokenizers` makes of well-formed text: a grapheme of at most five
  // bytes that begins with a text of the map is replaced as a whole, else its characters are, each by itself.
  void append_as_tokenizers(std::string_view text, std::string* out) const;

 private:
  template <typename Found>
  void for_each_prefix(std::string_view text, const Found& found) const;
  void append_grapheme(std::string_view grapheme, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace butter
