#include "text/sentencepiece_normalizer.h"

#include "text/characters.h"
#include "text/normalizer.h"

namespace butter {
namespace {

constexpr std::string_view kMark = "\u2581";

}  // namespace

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(const SentencePieceRules& rules,
                                                                PieceTrie one_symbol) {
  SentencePieceNormalizer made;
  made.rules_ = rules;
  made.space_ = rules.escape_whitespaces ? kMark : " ";
  made.one_symbol_ = std::move(one_symbol);
  if (!rules.precompiled_charsmap.empty()) {
    BUTTER_ASSIGN(made.charsmap_, CharsMap::create(rules.precompiled_charsmap));
  }
  made.rules_.precompiled_charsmap = {};
  return made;
}

SentencePieceNormalizer::Part SentencePieceNormalizer::next_part(std::string_view text) const {
  const size_t symbol = one_symbol_.longest_prefix_bytes(text);
  if (symbol > 0) return {symbol, text.substr(0, symbol)};
  if (const auto match = charsmap_.longest_prefix(text)) return {match->bytes, match->with};
  const std::string_view character = first_character(text);
  return {character.size(), character};
}

Result<std::string> SentencePieceNormalizer::apply(std::string_view text, bool is_later) const {
  const size_t most_bytes = Normalizer::most_bytes_from(text);
  const bool has_affix = rules_.add_dummy_prefix && (!is_later || rules_.prefix_after_special);
  std::string out;
  bool after_space = rules_.remove_extra_whitespaces;
  // A text of white space alone has no prefix either.
  while (rules_.remove_extra_whitespaces && !text.empty()) {
    const Part part = next_part(text);
    if (part.with != " ") break;
    text.remove_prefix(part.bytes);
  }
  if (text.empty()) return out;
  if (has_affix && !rules_.treat_whitespace_as_suffix) out += space_;
  while (!text.empty()) {
    Part part = next_part(text);
    text.remove_prefix(part.bytes);
    while (after_space && part.with.starts_with(' ')) part.with.remove_prefix(1);
    for (const char c : part.with) {
      if (c == ' ') {
        out += space_;
      } else {
        out += c;
      }
    }
    if (!part.with.empty()) after_space = rules_.remove_extra_whitespaces && part.with.ends_with(' ');
    if (out.size() > most_bytes)
      return fail(StatusCode::kLimit, "the normalizer makes more than {} bytes", most_bytes);
  }
  while (rules_.remove_extra_whitespaces && out.ends_with(space_)) out.resize(out.size() - space_.size());
  if (has_affix && rules_.treat_whitespace_as_suffix) out += space_;
  return out;
}

}  // namespace butter
