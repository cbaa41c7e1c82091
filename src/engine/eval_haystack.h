// Haystack: a filler text with facts in it, for retrieval probes. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "butter/tokenizer.h"

namespace butter {

// One fact: "the access code of the amber tower is 40713".
struct Needle {
  std::string key;    // "amber tower"
  std::string value;  // "40713"
  double depth = 0;   // where it stands: 0 the beginning of the text, below 1

  std::string statement() const;
  std::string question() const;
  // How the answer begins: what is left to say is the value.
  std::string answer_start() const;
};

// `count` facts with different keys, at depths (j + within) / count: `within`, 0 to 1, moves all of them, so
// that several haystacks meet all depths.
std::vector<Needle> make_needles(uint64_t seed, int count, double within);
int most_needles();  // that have different keys

// The filler's text with each fact as a paragraph of its own, at a space near its depth.
std::string make_haystack(const Tokenizer& tokenizer, std::span<const TokenId> filler,
                          std::span<const Needle> needles);

// Whether a text says the value, as a number of its own: no digit before or after it.
bool says_value(std::string_view text, std::string_view value);

}  // namespace butter
