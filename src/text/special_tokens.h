// SpecialTokens: finds the tokens that are matched in text as they are spelled, before any word is cut.
//
// The leftmost match wins, and the longest of those that begin there. Immutable once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "butter/tokenizer.h"

namespace butter {

class SpecialTokens {
 public:
  struct Token {
    std::string text;  // not empty
    int32_t id;
    bool always;  // user-defined: matched even where special tokens are not asked for
  };
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  SpecialTokens() = default;  // none
  explicit SpecialTokens(std::vector<Token> tokens);

  // Says which tokens count where: all, or, over [content.begin, content.end) of each span and everywhere if
  // `only_always`, the `always` ones alone. Spans are sorted and disjoint.
  struct Rules {
    bool only_always = false;
    const TextSpan* content = nullptr;
    const TextSpan* content_end = nullptr;
  };
  // The first match at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from, const Rules& rules) const;

  // The id of a token by its text.
  std::optional<int32_t> id_of(std::string_view text) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::optional<Match> longest_at(std::string_view text, size_t at, const Rules& rules) const;

  std::vector<Token> tokens_;          // sorted by text
  std::array<bool, 256> starts_ = {};  // some token begins with this byte
  std::array<bool, 256> always_starts_ = {};
};

}  // namespace butter
