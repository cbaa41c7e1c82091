// SentencePieceNormalizer: what SentencePiece makes of a text before it cuts it: characters mapped, white
// space marked, a space put before it.
//
// Bytes that are no UTF-8 stay as they are (SentencePiece makes U+FFFD of each). Immutable; any thread.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "text/charsmap.h"
#include "text/piece_trie.h"

namespace butter {

// A model file's normalizer_spec.
struct SentencePieceRules {
  std::string_view precompiled_charsmap = {};  // empty: characters stay
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;  // runs become one, and those at both ends go
  bool escape_whitespaces = true;        // a space becomes U+2581
  bool treat_whitespace_as_suffix = false;
  // What lies between special tokens is a text with a prefix of its own; else only the beginning has one.
  bool prefix_after_special = true;
};

class SentencePieceNormalizer {
 public:
  // Pieces of `one_symbol` are left as they are spelled.
  static Result<SentencePieceNormalizer> create(const SentencePieceRules& rules, PieceTrie one_symbol);

  // `is_later`: a special token stands before the text. kLimit where the text grows without bound.
  Result<std::string> apply(std::string_view text, bool is_later) const;

 private:
  struct Part {
    size_t bytes;           // of the text
    std::string_view with;  // what they become
  };
  Part next_part(std::string_view text) const;

  SentencePieceRules rules_;
  std::string_view space_;
  CharsMap charsmap_;
  PieceTrie one_symbol_;
};

}  // namespace butter
