#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

#include "text/characters.h"

namespace butter {
namespace {

// Whether [begin, end) has a byte in common with a span.
bool touches(std::span<const TextSpan> spans, size_t begin, size_t end) {
  const auto first =
      std::ranges::partition_point(spans, [&](const TextSpan& span) { return span.end <= begin; });
  return first != spans.end() && first->begin < end;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &Token::text);
  for (const Token& token : tokens_) {
    starts_[static_cast<uint8_t>(token.text[0])] = true;
    has_always_ |= token.always;
  }
}

std::optional<SpecialTokenFinder::Match> SpecialTokenFinder::next() {
  if (tokens_.empty() || (rules_.only_always && !tokens_.has_always_)) return std::nullopt;
  while (from_ < text_.size()) {
    const size_t begin = from_;
    const bool may_begin = tokens_.starts_[static_cast<uint8_t>(text_[begin])];
    const Token* const token = may_begin ? longest_at(begin) : nullptr;
    from_ += token == nullptr ? 1 : token->text.size();
    if (token == nullptr || (rules_.only_always && !token->always)) continue;
    if (token->whole_word && !is_whole_word(begin, from_)) continue;
    Match match = {begin, from_, token->id};
    while (token->takes_space_before && match.begin > last_end_) {
      const std::string_view before = last_character(text_.substr(last_end_, match.begin - last_end_));
      if (!is_white_space(before)) break;
      match.begin -= before.size();
    }
    if (token->takes_space_behind) match.end = end_of_space(match.end);
    last_end_ = match.end;
    return match;
  }
  return std::nullopt;
}

// Narrows the sorted tokens to those that agree with the text, byte by byte; on the way, the first of the
// range is the one that ends here, if any does.
const SpecialTokens::Token* SpecialTokenFinder::longest_at(size_t at) const {
  const Token* longest = nullptr;
  auto first = tokens_.tokens_.begin();
  auto last = tokens_.tokens_.end();
  for (size_t depth = 0; at + depth < text_.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text_[at + depth]);
    const auto byte_of = [&](const Token& token) { return static_cast<uint8_t>(token.text[depth]); };
    first = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) < byte; });
    last = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) == byte; });
    if (first == last) break;
    if (first->text.size() == depth + 1) {
      if (counts(*first, at, at + depth + 1)) longest = &*first;
      // The one that ends here has no byte to compare further on.
      if (++first == last) break;
    }
  }
  return longest;
}

bool SpecialTokenFinder::counts(const Token& token, size_t begin, size_t end) const {
  return token.always || !touches(rules_.content, rules_.origin + begin, rules_.origin + end);
}

bool SpecialTokenFinder::is_whole_word(size_t begin, size_t end) const {
  const std::string_view before = text_.substr(0, begin), behind = text_.substr(end);
  return (before.empty() || !is_word_character(last_character(before))) &&
         (behind.empty() || !is_word_character(first_character(behind)));
}

// Tokens of white space may each take what follows: it is looked at once.
size_t SpecialTokenFinder::end_of_space(size_t begin) {
  if (begin < space_.begin || begin > space_.end) space_ = {begin, begin};
  while (space_.end < text_.size()) {
    const std::string_view behind = first_character(text_.substr(space_.end));
    if (!is_white_space(behind)) break;
    space_.end += behind.size();
  }
  return space_.end;
}

}  // namespace butter
