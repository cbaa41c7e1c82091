// MergeModel: BPE by a list of merges, as GPT-2 and tokenizer.json have it.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/byte_pair_encoder.h"
#include "text/symbol_table.h"
#include "text/word_model.h"

namespace butter {

class MergeModel final : public WordModel {
 public:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  // By the words that they are: words that are one token, whatever the merges say.
  using WholeWords = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

  MergeModel(MergeTable merges, SymbolTable symbols, WholeWords whole_words)
      : merges_(std::move(merges)), symbols_(std::move(symbols)), whole_words_(std::move(whole_words)) {}

  std::unique_ptr<WordEncoder> make_encoder() const override;

 private:
  class Encoder;

  const MergeTable merges_;
  const SymbolTable symbols_;
  const WholeWords whole_words_;
};

}  // namespace butter
