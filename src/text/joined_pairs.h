// JoinedPairModel: BPE without a list of merges. While two neighbours together are a piece of the vocabulary,
// the pair whose piece is best, leftmost of equals, becomes one.
//
// That is the BPE of SentencePiece, whose pieces have scores and whose words begin as characters, and that of
// tiktoken, whose words begin as bytes and whose best piece is the one of the lowest rank. Ids equal those of
// both. n log n in the symbols of a word.
//
// SentencePiece's word is a whole text. It is read in stretches: between two characters that stand side by
// side in no piece nothing is ever joined, so what is before them and what is behind has nothing to do with
// the other.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "text/piece_trie.h"
#include "text/unknown_symbols.h"
#include "text/word_model.h"

namespace butter {

class JoinedPairModel final : public WordModel {
 public:
  struct Piece {
    std::string_view text;  // not empty
    int32_t id = 0;
    float score = 0;  // finite; the best is the highest
    // May be joined, but is none of the tokens: it falls apart into what it was joined of.
    bool is_unused = false;
    // Where a text has it, it is one symbol from the start, and stays one: the longest of those that fit.
    bool is_one_symbol = false;
  };
  struct Options {
    bool of_bytes = false;           // words begin as bytes, not as characters
    bool takes_whole_words = false;  // a word that is a piece is that piece, whatever its parts are
    UnknownSymbols unknown = {};
  };

  // No two pieces have the same text.
  JoinedPairModel(std::span<const Piece> pieces, const Options& options);
  JoinedPairModel(const JoinedPairModel&) = delete;
  JoinedPairModel& operator=(const JoinedPairModel&) = delete;

  std::unique_ptr<WordEncoder> make_encoder() const override;

 private:
  class Encoder;
  struct Entry {
    int32_t id;
    uint32_t order;  // 0 is the best score; equal scores have equal orders
    bool is_unused;
  };
  const Entry* find(std::string_view text) const;
  // Two characters that some piece has side by side, as one number.
  static uint64_t neighbours(std::string_view left, std::string_view right);
  void add_neighbours(std::string_view text);

  const Options options_;
  std::string texts_;
  size_t longest_bytes_ = 0;
  std::unordered_map<std::string_view, Entry> pieces_;  // views into texts_
  PieceTrie one_symbol_;
  std::unordered_set<uint64_t> neighbours_;  // not of bytes
};

}  // namespace butter
