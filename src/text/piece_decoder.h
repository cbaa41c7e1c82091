// How the text of a token becomes bytes of text: tokenizer.json's decoder, as far as it works on one token
// alone.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace butter {

struct DecodeStep {
  enum class Kind {
    kReplace,  // each `text` becomes `with`
    kBytes,    // <0x0A> is that byte
    kStrip,    // up to `left` characters `text` go from the front, up to `right` from the end
  };
  Kind kind;
  std::string text = {};
  std::string with = {};
  size_t left = 0;
  size_t right = 0;
};

// What is taken from the beginning of a whole answer, which the encoder put there.
enum class LeadingSpace {
  kKept,
  kOne,              // one space
  kMark,             // one that stands for the mark that the first token begins with
  kMarks,            // the same of each token, until there is text
  kAllOfFirstToken,  // every space of the first token, unless it is spelled with one
};

std::string decode_piece(std::span<const DecodeStep> steps, std::string_view token);

// The byte that <0x0A> names; -1 for any other text.
int byte_of_token(std::string_view token);

}  // namespace butter
