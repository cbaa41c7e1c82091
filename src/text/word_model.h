// WordModel: how a vocabulary makes tokens of a word. WordEncoder: one thread's use of it.
//
// A word is what pre-tokenization leaves: a few letters, or, where a tokenizer cuts nothing, a whole text.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace butter {

class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  // Appends the ids of a word: well-formed UTF-8 of less than 2^31 bytes, or one byte that is none.
  virtual void encode(std::string_view word, std::vector<int32_t>* ids) = 0;
};

// Immutable once made; any thread. Must outlive its encoders.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual std::unique_ptr<WordEncoder> make_encoder() const = 0;
};

}  // namespace butter
