// SpecialTokens: the tokens that are matched in text as they are spelled, before any word is cut.
// SpecialTokenFinder: their matches in one text.
//
// The leftmost match wins, and the longest of those that begin there; the next is looked for behind it. That,
// and what the flags do, is as in PyPI `tokenizers`. SpecialTokens are immutable once made; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "butter/tokenizer.h"

namespace butter {

class SpecialTokens {
 public:
  struct Token {
    std::string text;  // not empty
    int32_t id = 0;
    bool always = false;  // user-defined: matched even where special tokens are not asked for
    // tokenizer.json's lstrip, rstrip and single_word.
    bool takes_space_before = false;
    bool takes_space_behind = false;
    bool whole_word = false;  // not where a letter or digit stands beside it
  };

  SpecialTokens() = default;  // none
  // No two have the same text.
  explicit SpecialTokens(std::vector<Token> tokens);

  bool empty() const { return tokens_.empty(); }

 private:
  friend class SpecialTokenFinder;

  std::vector<Token> tokens_;          // sorted by text
  std::array<bool, 256> starts_ = {};  // some token begins with this byte
  bool has_always_ = false;
};

class SpecialTokenFinder {
 public:
  // A token in the text, with the white space that it takes.
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };
  // Which tokens count where: all, or the `always` ones alone (what another one matches is text then, as a
  // whole). One that is not `always` is not there where it touches a span of `content`: sorted, disjoint, in
  // bytes of a longer text, in which this one begins at `origin`.
  struct Rules {
    bool only_always = false;
    std::span<const TextSpan> content = {};
    size_t origin = 0;
  };

  // All must outlive it.
  SpecialTokenFinder(const SpecialTokens& tokens, std::string_view text, const Rules& rules)
      : tokens_(tokens), text_(text), rules_(rules) {}

  // The matches, from left to right.
  std::optional<Match> next();

 private:
  using Token = SpecialTokens::Token;
  const Token* longest_at(size_t at) const;
  bool counts(const Token& token, size_t begin, size_t end) const;
  bool is_whole_word(size_t begin, size_t end) const;
  size_t end_of_space(size_t begin);

  const SpecialTokens& tokens_;
  const std::string_view text_;
  const Rules rules_;
  size_t from_ = 0;
  size_t last_end_ = 0;  // of the match before
  TextSpan space_;       // white space that was seen
};

}  // namespace butter
