#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

namespace butter {
namespace {

// Whether [begin, end) has a byte in common with a span.
bool touches(const SpecialTokens::Rules& rules, size_t begin, size_t end) {
  const TextSpan* const first = std::partition_point(rules.content, rules.content_end,
                                                     [&](const TextSpan& span) { return span.end <= begin; });
  return first != rules.content_end && first->begin < end;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &Token::text);
  for (const Token& token : tokens_) {
    const auto first = static_cast<uint8_t>(token.text[0]);
    starts_[first] = true;
    if (token.always) always_starts_[first] = true;
  }
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from,
                                                        const Rules& rules) const {
  const std::array<bool, 256>& starts = rules.only_always ? always_starts_ : starts_;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts[static_cast<uint8_t>(text[at])]) continue;
    if (const auto match = longest_at(text, at, rules)) return match;
  }
  return std::nullopt;
}

// Narrows the sorted tokens to those that agree with the text, byte by byte; on the way, the first of the
// range is the one that ends here, if any does.
std::optional<SpecialTokens::Match> SpecialTokens::longest_at(std::string_view text, size_t at,
                                                              const Rules& rules) const {
  std::optional<Match> longest;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[at + depth]);
    const auto byte_of = [&](const Token& token) { return static_cast<uint8_t>(token.text[depth]); };
    first = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) < byte; });
    last = std::partition_point(first, last, [&](const Token& token) { return byte_of(token) == byte; });
    if (first == last) break;
    if (first->text.size() == depth + 1) {
      const size_t end = at + depth + 1;
      if (first->always || (!rules.only_always && !touches(rules, at, end))) longest = {at, end, first->id};
      // The one that ends here has no byte to compare further on.
      if (++first == last) break;
    }
  }
  return longest;
}

std::optional<int32_t> SpecialTokens::id_of(std::string_view text) const {
  const auto found = std::ranges::lower_bound(
      tokens_, text, {}, [](const Token& token) -> std::string_view { return token.text; });
  if (found == tokens_.end() || found->text != text) return std::nullopt;
  return found->id;
}

}  // namespace butter
