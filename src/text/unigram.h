// UnigramModel: cuts a word into the pieces whose scores, the logarithms of their probabilities, have the
// highest sum (Kudo, 2018), by Viterbi's algorithm. Time is linear in the word, times the longest piece.
//
// Sums are rounded as in the program that a vocabulary comes from, so that ids equal its own.
#pragma once

#include <span>
#include <string>

#include "text/piece_trie.h"
#include "text/unknown_symbols.h"
#include "text/word_model.h"

namespace butter {

class UnigramModel final : public WordModel {
 public:
  struct Piece {
    std::string_view text;  // not empty
    int32_t id = 0;
    double score = 0;            // finite
    bool is_one_symbol = false;  // a user-defined symbol of SentencePiece: better than any cut of it
  };
  struct Options {
    bool as_sentencepiece = false;  // sums are floats, and more of its ways; else as PyPI `tokenizers`
    double least_score = 0;         // an unknown character has ten less
    UnknownSymbols unknown = {};
  };

  // No two pieces have the same text.
  UnigramModel(std::span<const Piece> pieces, const Options& options);

  std::unique_ptr<WordEncoder> make_encoder() const override;

 private:
  template <typename Score>
  class Encoder;

  const Options options_;
  PieceTrie trie_;  // values are places in the two below
  std::vector<int32_t> ids_;
  std::vector<double> scores_;  // -inf: a user-defined symbol, whose score is its length's
};

}  // namespace butter
