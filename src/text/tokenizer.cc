#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <deque>

#include "text/tokenizer_internal.h"
#include "text/utf8.h"

namespace butter {

std::string shown_text(std::string_view text) {
  constexpr size_t kShownBytes = 48;
  std::string shown = "\"";
  std::string clean;
  append_replacing_malformed(text.substr(0, kShownBytes), &clean);
  for (const char c : clean) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown + (text.size() > kShownBytes ? "...\"" : "\"");
}

std::optional<TokenType> token_type_of(int64_t number) {
  if (number < 1 || number > 6) return std::nullopt;
  return static_cast<TokenType>(number);
}

// One call of encode(): its scratch, and the ids so far.
//
// Most words of a text have been met before in it. So a cache, direct mapped, remembers where in the ids a
// word's ids stand: it holds no copies, neither of words nor of ids.
class VocabularyTokenizer::Encoder {
 public:
  Encoder(const VocabularyTokenizer& tokenizer, size_t text_bytes)
      : tokenizer_(tokenizer), words_(tokenizer.pre_tokenizer_), model_(tokenizer.words_->make_encoder()) {
    cache_.resize(std::clamp(std::bit_ceil(text_bytes / 8 + 1), kLeastSlots, kMostSlots));
    ids_.reserve(text_bytes / 4 + 2);
  }

  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options) {
    const Rules rules = {!options.parse_special, options.content};
    const auto add = [&](std::string_view part, const Rules& part_rules) {
      return add_between(part, part_rules);
    };
    BUTTER_TRY(cut_at_tokens(tokenizer_.special_, text, rules, add));
    return std::move(ids_);
  }

 private:
  using Rules = SpecialTokenFinder::Rules;
  using Place = WordReader::Place;

  // Calls `add` with each part of a text that lies between tokens, and adds the tokens.
  template <typename Add>
  Status cut_at_tokens(const SpecialTokens& tokens, std::string_view text, const Rules& rules,
                       const Add& add) {
    size_t at = 0;
    const auto add_until = [&](size_t end) -> Status {
      if (end <= at) return {};
      return add(text.substr(at, end - at), Rules{rules.only_always, rules.content, rules.origin + at});
    };
    SpecialTokenFinder tokens_of_text(tokens, text, rules);
    while (const auto match = tokens_of_text.next()) {
      BUTTER_TRY(add_until(match->begin));
      ids_.push_back(match->id);
      at = match->end;
    }
    return add_until(text.size());
  }

  // What lies between tokens of the text as it was given. It must outlive the Encoder.
  Status add_between(std::string_view text, const Rules& rules) {
    const bool may_hold_content = !rules.only_always && !rules.content.empty();
    if (tokenizer_.normalizer_.empty() || tokenizer_.normalized_special_.empty() || !may_hold_content)
      return add_normalized(text, rules);
    // Where content stands in normalized text nobody knows: each stretch of it is normalized by itself.
    const size_t end = rules.origin + text.size();
    size_t at = rules.origin;
    const auto add_until = [&](size_t stretch_end, bool is_content) -> Status {
      stretch_end = std::min(stretch_end, end);
      if (stretch_end <= at) return {};
      const std::string_view stretch = text.substr(at - rules.origin, stretch_end - at);
      at = stretch_end;
      return add_normalized(stretch, Rules{is_content, {}, stretch_end - stretch.size()});
    };
    const auto first =
        std::ranges::partition_point(rules.content, [&](const TextSpan& span) { return span.end <= at; });
    for (auto span = first; span != rules.content.end() && span->begin < end; ++span) {
      BUTTER_TRY(add_until(span->begin, false));
      BUTTER_TRY(add_until(span->end, true));
    }
    return add_until(end, false);
  }

  Status add_normalized(std::string_view text, const Rules& rules) {
    BUTTER_ASSIGN(text, normalized(text, rules.origin > 0));
    const auto add = [&](std::string_view part, const Rules& part_rules) {
      return add_text(part, part_rules.origin == 0 ? Place::kFirst : Place::kLater);
    };
    return cut_at_tokens(tokenizer_.normalized_special_, text, rules, add);
  }

  Result<std::string_view> normalized(std::string_view text, bool is_later) {
    if (tokenizer_.sentencepiece_) {
      BUTTER_ASSIGN(std::string made, tokenizer_.sentencepiece_->apply(text, is_later));
      return normalized_.emplace_back(std::move(made));
    }
    if (tokenizer_.normalizer_.empty()) return text;
    BUTTER_ASSIGN(std::string made, tokenizer_.normalizer_.apply(text));
    return normalized_.emplace_back(std::move(made));
  }

  // Text without tokens that are matched as they are spelled.
  Status add_text(std::string_view text, Place place) {
    while (!text.empty()) {
      const size_t good = well_formed_utf8_bytes(text);
      BUTTER_TRY(add_well_formed(text.substr(0, good), place));
      place = Place::kContinues;
      text.remove_prefix(good);
      if (text.empty()) break;
      add_malformed(text.substr(0, first_utf8_unit(text).bytes));
      text.remove_prefix(first_utf8_unit(text).bytes);
    }
    return {};
  }

  static constexpr size_t kLeastSlots = 64;
  static constexpr size_t kMostSlots = 1 << 15;
  struct Slot {
    std::string_view word;
    uint32_t first_id = 0;
    uint32_t ids = 0;
  };

  Status add_well_formed(std::string_view text, Place place) {
    words_.start(text, place);
    std::string_view word;
    while (words_.next(&word)) add_word(word);
    return words_.status();
  }

  void add_malformed(std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) model_->encode(bytes.substr(i, 1), &ids_);
  }

  void add_word(std::string_view word) {
    Slot& slot = cache_[std::hash<std::string_view>()(word) & (cache_.size() - 1)];
    if (slot.word == word) return repeat(slot);
    const size_t first_id = ids_.size();
    model_->encode(word, &ids_);
    slot = {word, static_cast<uint32_t>(first_id), static_cast<uint32_t>(ids_.size() - first_id)};
  }

  void repeat(const Slot& slot) {
    for (uint32_t i = 0; i < slot.ids; ++i) {
      const TokenId id = ids_[slot.first_id + i];
      ids_.push_back(id);
    }
  }

  const VocabularyTokenizer& tokenizer_;
  WordReader words_;
  const std::unique_ptr<WordEncoder> model_;
  std::vector<Slot> cache_;
  std::deque<std::string> normalized_;  // what words lie in
  std::vector<TokenId> ids_;
};

Result<std::vector<TokenId>> VocabularyTokenizer::encode(std::string_view text,
                                                         const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return fail(StatusCode::kLimit, "the text has {} bytes; at most {} are tokenized at once", text.size(),
                kMaxTextBytes);
  }
  BUTTER_ASSIGN(std::vector<TokenId> ids, Encoder(*this, text.size()).encode(text, options));
  if (options.add_bos && add_bos_ && (ids.empty() || ids.front() != *bos_id_))
    ids.insert(ids.begin(), *bos_id_);
  if (options.add_eos && add_eos_ && (ids.empty() || ids.back() != *eos_id_)) ids.push_back(*eos_id_);
  return ids;
}

std::string VocabularyTokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  bool is_beginning = !options.continues;
  for (const TokenId id : ids) {
    const TokenType kind = type(id);
    if (kind == TokenType::kUnused) continue;
    if (options.skip_special && (kind == TokenType::kControl || kind == TokenType::kUnknown)) continue;
    bytes += piece(id);
    if (!is_beginning) continue;
    take_leading_space(id, &bytes);
    is_beginning = leading_space_ == LeadingSpace::kMarks && bytes.empty();
  }
  return bytes;
}

void VocabularyTokenizer::take_leading_space(TokenId first, std::string* bytes) const {
  const bool is_spelled_with_one = std::ranges::binary_search(tokens_with_spaces_, first);
  const bool may_be_mark = !is_spelled_with_one && type(first) != TokenType::kByte;
  switch (leading_space_) {
    case LeadingSpace::kKept:
      return;
    case LeadingSpace::kOne:
      if (bytes->starts_with(' ')) bytes->erase(0, 1);
      return;
    case LeadingSpace::kMark:
    case LeadingSpace::kMarks:
      if (may_be_mark && bytes->starts_with(' ')) bytes->erase(0, 1);
      return;
    case LeadingSpace::kAllOfFirstToken:
      if (!is_spelled_with_one) std::erase(*bytes, ' ');
      return;
  }
}

std::string_view VocabularyTokenizer::piece(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto at = static_cast<size_t>(id);
  const size_t begin = at == 0 ? 0 : piece_ends_[at - 1];
  return std::string_view(piece_bytes_).substr(begin, piece_ends_[at] - begin);
}

TokenType VocabularyTokenizer::type(TokenId id) const {
  return id < 0 || id >= vocab_size() ? TokenType::kUnused : types_[static_cast<size_t>(id)];
}

std::optional<TokenId> VocabularyTokenizer::special_id(std::string_view text) const {
  const auto found = special_ids_.find(text);
  if (found == special_ids_.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::ranges::binary_search(end_ids(), id);
}

}  // namespace butter
