// StreamDetokenizer: turns the ids of an answer into text as they come.
//
// What it gives is always whole UTF-8 characters: bytes that may still become one are held back until the ids
// that follow complete it. Bytes that cannot become a character, and those left over at finish(), are given
// as U+FFFD, as Python's errors="replace" does; so all that it gave, joined, is decode() of the ids with its
// malformed parts replaced.
//
// One stream, one thread. The Tokenizer must outlive it.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace butter {

class StreamDetokenizer {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // The text that this id completes; may be empty.
  std::string push(TokenId id);
  // The end of the stream: what was held back. The next push() begins a new stream.
  std::string finish();
  // Whether bytes are held back.
  bool holds_back() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;  // an incomplete character, at most 3 bytes
};

}  // namespace butter
