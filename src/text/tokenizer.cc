#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <unordered_map>

#include "text/byte_alphabet.h"
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

// Checks a spec and fills a BpeTokenizer from it, one step after the other.
class BpeTokenizer::Builder {
 public:
  explicit Builder(const TokenizerSpec& spec) : spec_(spec) {}

  Result<BpeTokenizer> build() {
    BUTTER_TRY(check_counts());
    BUTTER_ASSIGN(made_.normalizer_, Normalizer::create(spec_.normalizer));
    BUTTER_TRY(set_pre_tokenizer());
    BUTTER_TRY(read_added_rules());
    BUTTER_TRY(add_tokens());
    BUTTER_TRY(set_ids());
    BUTTER_TRY(set_flags());
    set_symbols();
    BUTTER_TRY(add_merges());
    BUTTER_TRY(collect_special_tokens());
    if (ignores_merges_) index_normal_tokens();
    return std::move(made_);
  }

 private:
  Status check_counts() const;
  Status set_pre_tokenizer();
  Status read_added_rules();
  Status add_tokens();
  Status add_token(TokenId id);
  void append_piece(std::string_view text, TokenType type);
  std::string_view text_to_match(TokenId id) const;
  bool is_word_token(size_t id) const;
  void set_symbols();
  void set_byte_ids();
  Status add_merges();
  Status collect_special_tokens();
  void index_normal_tokens();
  Status set_ids();
  Status set_flags();
  Result<std::optional<TokenId>> checked_id(std::string_view name, std::optional<int64_t> id) const;
  using MergeParts = std::pair<std::string_view, std::string_view>;
  size_t merge_count() const;
  Result<MergeParts> parts_of_merge(size_t rank) const;
  Result<TokenId> id_in_merge(size_t rank, const MergeParts& parts, std::string_view token) const;

  const TokenizerSpec& spec_;
  BpeTokenizer made_;
  bool ignores_merges_ = false;
  std::unordered_map<std::string_view, TokenId> ids_;  // by the file's spelling
  std::unordered_map<int64_t, AddedTokenRule> added_rules_;
  std::unordered_map<TokenId, std::string> normalized_texts_;  // of the tokens in normalized text
};

Status BpeTokenizer::Builder::check_counts() const {
  if (spec_.model != "gpt2") {
    return fail(StatusCode::kUnsupported, "tokenizer model {} is not one that Butter knows: gpt2",
                shown_text(spec_.model));
  }
  if (spec_.tokens.empty() || spec_.tokens.size() > kMaxTokens) {
    return fail(StatusCode::kCorrupt, "the tokenizer has {} tokens; 1 to {} are expected",
                spec_.tokens.size(), kMaxTokens);
  }
  if (!spec_.types.empty() && spec_.types.size() != spec_.tokens.size()) {
    return fail(StatusCode::kCorrupt,
                "the tokenizer has {} tokens and {} token types; one for each is expected",
                spec_.tokens.size(), spec_.types.size());
  }
  if (merge_count() > kMaxTokens) {
    return fail(StatusCode::kCorrupt, "the tokenizer has {} merges; at most {} are expected", merge_count(),
                kMaxTokens);
  }
  return {};
}

Status BpeTokenizer::Builder::set_pre_tokenizer() {
  ignores_merges_ = spec_.ignore_merges;
  if (spec_.stages) {
    BUTTER_ASSIGN(made_.pre_tokenizer_, PreTokenizer::create(spec_.pre_tokenizer, *spec_.stages));
    return {};
  }
  const PreTokenizerRow* const row = PreTokenizer::find_row(spec_.pre_tokenizer);
  if (row == nullptr || !spec_.add_prefix_space) {
    BUTTER_ASSIGN(made_.pre_tokenizer_, PreTokenizer::create(spec_.pre_tokenizer));
  } else {
    std::vector<PreTokenizerStage> stages = row->stages;
    stages.insert(stages.begin(), {PreTokenizerStage::Kind::kMark, " ", SplitBehavior::kIsolated, false,
                                   MarkScheme::kAlways});
    BUTTER_ASSIGN(made_.pre_tokenizer_, PreTokenizer::create(row->names[0], stages));
  }
  ignores_merges_ |= row->ignore_merges;
  if (row->nfc && spec_.normalizer.empty()) {
    const NormalizerStep compose{NormalizerStep::Kind::kNfc};
    BUTTER_ASSIGN(made_.normalizer_, Normalizer::create({&compose, 1}));
  }
  return {};
}

Status BpeTokenizer::Builder::read_added_rules() {
  for (const AddedTokenRule& rule : spec_.added_rules) {
    BUTTER_ASSIGN(const std::optional<TokenId> id, checked_id("added", rule.id));
    added_rules_[rule.id] = rule;
    if (!rule.in_normalized_text || made_.normalizer_.empty()) continue;
    const std::string_view text = spec_.tokens[static_cast<size_t>(*id)];
    BUTTER_ASSIGN(std::string normalized, made_.normalizer_.apply(text));
    if (normalized.empty()) {
      return fail(StatusCode::kUnsupported,
                  "added token {} is looked for in normalized text, where nothing is left of it",
                  shown_text(text));
    }
    normalized_texts_[*id] = std::move(normalized);
  }
  return {};
}

// A token's text as texts to encode have it.
std::string_view BpeTokenizer::Builder::text_to_match(TokenId id) const {
  const auto normalized = normalized_texts_.find(id);
  return normalized == normalized_texts_.end() ? spec_.tokens[static_cast<size_t>(id)] : normalized->second;
}

bool BpeTokenizer::Builder::is_word_token(size_t id) const {
  const auto rule = added_rules_.find(static_cast<int64_t>(id));
  return rule == added_rules_.end() || rule->second.is_word_token;
}

Status BpeTokenizer::Builder::add_tokens() {
  made_.types_ = spec_.types;
  made_.types_.resize(spec_.tokens.size(), TokenType::kNormal);
  made_.piece_ends_.reserve(spec_.tokens.size());
  ids_.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) BUTTER_TRY(add_token(static_cast<TokenId>(i)));
  return {};
}

Status BpeTokenizer::Builder::add_token(TokenId id) {
  const std::string_view text = spec_.tokens[static_cast<size_t>(id)];
  const TokenType type = made_.types_[static_cast<size_t>(id)];
  if (!token_type_of(static_cast<int64_t>(type))) {
    return fail(StatusCode::kCorrupt, "token {} has type {}; 1 to 6 are expected", id,
                static_cast<int>(type));
  }
  if (type == TokenType::kByte && spec_.byte_level) {
    return fail(StatusCode::kUnsupported,
                "token {} ({}) has type 6 (byte), which byte-level BPE does not have", id, shown_text(text));
  }
  if (text.empty() && type != TokenType::kUnused) {
    return fail(StatusCode::kCorrupt, "token {} is missing; ids 0 to {} are expected to have a token each",
                id, spec_.tokens.size() - 1);
  }
  if (text.size() > kMaxTokenBytes) {
    return fail(StatusCode::kCorrupt, "token {} has {} bytes; at most {} are expected", id, text.size(),
                kMaxTokenBytes);
  }
  if (!text.empty()) {
    const auto [other, is_new] = ids_.emplace(text, id);
    if (!is_new) {
      return fail(StatusCode::kCorrupt, "tokens {} and {} are both {}; each token is expected once",
                  other->second, id, shown_text(text));
    }
  }
  if (type != TokenType::kUnused) append_piece(text_to_match(id), type);
  if (text.find(' ') != std::string_view::npos) made_.tokens_with_spaces_.push_back(id);
  if (made_.piece_bytes_.size() > kMaxTextBytes) {
    return fail(StatusCode::kCorrupt, "the tokens up to {} have more than {} bytes", id, kMaxTextBytes);
  }
  made_.piece_ends_.push_back(static_cast<uint32_t>(made_.piece_bytes_.size()));
  return {};
}

void BpeTokenizer::Builder::append_piece(std::string_view text, TokenType type) {
  if (!spec_.byte_level) {
    made_.piece_bytes_ += decode_piece(spec_.decode_steps, text);
    return;
  }
  // What is not of the byte alphabet stands for itself, as in `tokenizers`.
  const bool literal = type != TokenType::kNormal || !append_spelled_bytes(text, &made_.piece_bytes_);
  if (literal) made_.piece_bytes_ += text;
}

void BpeTokenizer::Builder::set_symbols() {
  SymbolTable& symbols = made_.symbols_;
  symbols.of_bytes = spec_.byte_level;
  symbols.fuse_unknown = spec_.fuse_unknown;
  if (spec_.unknown_for_missing) symbols.unknown_id = made_.unk_id_.value_or(-1);
  if (spec_.byte_level || spec_.byte_fallback) set_byte_ids();
  if (spec_.byte_level) return;
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string_view text = spec_.tokens[id];
    // A control token is not what a character in a text may become.
    if (text.empty() || made_.types_[id] == TokenType::kControl) continue;
    if (!is_word_token(id)) continue;
    const Utf8Unit unit = first_utf8_unit(text);
    if (unit.state != Utf8State::kWellFormed || unit.bytes != text.size()) continue;
    symbols.character_ids.emplace(decode_utf8(text), static_cast<TokenId>(id));
  }
}

void BpeTokenizer::Builder::set_byte_ids() {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = spec_.byte_level ? ids_.find(spelling_of_byte(static_cast<uint8_t>(byte)))
                                        : ids_.find(fmt::format("<0x{:02X}>", byte));
    if (found != ids_.end()) made_.symbols_.byte_ids[byte] = found->second;
  }
}

size_t BpeTokenizer::Builder::merge_count() const {
  return spec_.merges.size() + spec_.merge_pairs.size();
}

Result<BpeTokenizer::Builder::MergeParts> BpeTokenizer::Builder::parts_of_merge(size_t rank) const {
  if (rank >= spec_.merges.size()) return spec_.merge_pairs[rank - spec_.merges.size()];
  const std::string_view merge = spec_.merges[rank];
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    return fail(StatusCode::kCorrupt, "merge {} is {}; two tokens with one space between them are expected",
                rank, shown_text(merge));
  }
  return MergeParts(merge.substr(0, space), merge.substr(space + 1));
}

Result<TokenId> BpeTokenizer::Builder::id_in_merge(size_t rank, const MergeParts& parts,
                                                   std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    return fail(StatusCode::kCorrupt, "merge {} ({}) needs {}, which is not a token", rank,
                shown_text(fmt::format("{} {}", parts.first, parts.second)), shown_text(token));
  }
  return found->second;
}

Status BpeTokenizer::Builder::add_merges() {
  made_.merges_ = MergeTable(merge_count());
  std::string merged_text;
  for (size_t rank = 0; rank < merge_count(); ++rank) {
    BUTTER_ASSIGN(const MergeParts parts, parts_of_merge(rank));
    merged_text = parts.first;
    merged_text += parts.second;
    BUTTER_ASSIGN(const TokenId left, id_in_merge(rank, parts, parts.first));
    BUTTER_ASSIGN(const TokenId right, id_in_merge(rank, parts, parts.second));
    BUTTER_ASSIGN(const TokenId merged, id_in_merge(rank, parts, merged_text));
    made_.merges_.set(left, right, {static_cast<uint32_t>(rank), merged});
  }
  return {};
}

Status BpeTokenizer::Builder::collect_special_tokens() {
  std::vector<SpecialTokens::Token> given, normalized;
  std::unordered_map<std::string_view, TokenId> of_normalized;
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const TokenType type = made_.types_[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined && type != TokenType::kUnknown)
      continue;
    const auto id = static_cast<TokenId>(i);
    made_.special_ids_.emplace(spec_.tokens[i], id);
    const auto found = added_rules_.find(id);
    const AddedTokenRule rule = found == added_rules_.end() ? AddedTokenRule() : found->second;
    const std::string_view text = text_to_match(id);
    if (rule.in_normalized_text && !of_normalized.emplace(text, id).second) {
      return fail(StatusCode::kCorrupt, "added tokens {} and {} are both {} in normalized text",
                  of_normalized[text], id, shown_text(text));
    }
    (rule.in_normalized_text ? normalized : given)
        .push_back({std::string(text), id, type == TokenType::kUserDefined, rule.takes_space_before,
                    rule.takes_space_behind, rule.whole_word});
  }
  made_.special_ = SpecialTokens(std::move(given));
  made_.normalized_special_ = SpecialTokens(std::move(normalized));
  return {};
}

void BpeTokenizer::Builder::index_normal_tokens() {
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const TokenType type = made_.types_[id];
    if (type != TokenType::kNormal && type != TokenType::kUserDefined) continue;
    if (!is_word_token(id)) continue;
    std::string word;
    if (!spec_.byte_level) {
      word = spec_.tokens[id];
    } else if (!append_spelled_bytes(spec_.tokens[id], &word)) {
      continue;  // of two spellings of the same bytes, only that of the byte alphabet is a word's
    }
    made_.whole_words_.emplace(std::move(word), static_cast<TokenId>(id));
  }
}

Result<std::optional<TokenId>> BpeTokenizer::Builder::checked_id(std::string_view name,
                                                                 std::optional<int64_t> id) const {
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || *id >= static_cast<int64_t>(spec_.tokens.size())) {
    return fail(StatusCode::kCorrupt, "the tokenizer's {} id is {}; 0 to {} are expected", name, *id,
                spec_.tokens.size() - 1);
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

Status BpeTokenizer::Builder::set_ids() {
  BUTTER_ASSIGN(made_.bos_id_, checked_id("BOS", spec_.bos_id));
  BUTTER_ASSIGN(made_.eos_id_, checked_id("EOS", spec_.eos_id));
  BUTTER_ASSIGN(made_.unk_id_, checked_id("unknown", spec_.unk_id));
  BUTTER_ASSIGN(made_.pad_id_, checked_id("padding", spec_.pad_id));
  if (made_.eos_id_) made_.end_ids_.push_back(*made_.eos_id_);
  for (const int64_t id : spec_.end_ids) {
    BUTTER_ASSIGN(const std::optional<TokenId> end, checked_id("end-of-turn", id));
    made_.end_ids_.push_back(*end);
  }
  std::ranges::sort(made_.end_ids_);
  made_.end_ids_.erase(std::unique(made_.end_ids_.begin(), made_.end_ids_.end()), made_.end_ids_.end());
  return {};
}

Status BpeTokenizer::Builder::set_flags() {
  const auto needs = [](std::string_view flag, std::string_view id) {
    return fail(StatusCode::kCorrupt, "the tokenizer asks for {} and does not name the id of its {} token",
                flag, id);
  };
  if (spec_.add_bos && !made_.bos_id_) return needs("BOS", "BOS");
  if (spec_.add_eos && !made_.eos_id_) return needs("EOS", "EOS");
  if (spec_.unknown_for_missing && !made_.unk_id_) return needs("unknown tokens", "unknown");
  made_.add_bos_ = spec_.add_bos;
  made_.add_eos_ = spec_.add_eos;
  made_.leading_space_ = spec_.leading_space;
  return {};
}

Result<BpeTokenizer> BpeTokenizer::create(const TokenizerSpec& spec) {
  return Builder(spec).build();
}

// One call of encode(): its scratch, and the ids so far.
//
// Most words of a text have been met before in it. So a cache, direct mapped, remembers where in the ids a
// word's ids stand: it holds no copies, neither of words nor of ids.
class BpeTokenizer::Encoder {
 public:
  Encoder(const BpeTokenizer& tokenizer, size_t text_bytes)
      : tokenizer_(tokenizer),
        words_(tokenizer.pre_tokenizer_),
        pairs_(tokenizer.merges_, tokenizer.symbols_) {
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
    if (!tokenizer_.normalizer_.empty()) {
      BUTTER_ASSIGN(std::string normalized, tokenizer_.normalizer_.apply(text));
      text = normalized_.emplace_back(std::move(normalized));
    }
    const auto add = [&](std::string_view part, const Rules& part_rules) {
      return add_text(part, part_rules.origin == 0 ? Place::kFirst : Place::kLater);
    };
    return cut_at_tokens(tokenizer_.normalized_special_, text, rules, add);
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
    for (size_t i = 0; i < bytes.size(); ++i) pairs_.encode(bytes.substr(i, 1), &ids_);
  }

  void add_word(std::string_view word) {
    Slot& slot = cache_[std::hash<std::string_view>()(word) & (cache_.size() - 1)];
    if (slot.word == word) return repeat(slot);
    const size_t first_id = ids_.size();
    add_new_word(word);
    slot = {word, static_cast<uint32_t>(first_id), static_cast<uint32_t>(ids_.size() - first_id)};
  }

  void repeat(const Slot& slot) {
    for (uint32_t i = 0; i < slot.ids; ++i) {
      const TokenId id = ids_[slot.first_id + i];
      ids_.push_back(id);
    }
  }

  void add_new_word(std::string_view word) {
    const auto whole = tokenizer_.whole_words_.find(word);
    if (whole != tokenizer_.whole_words_.end()) return ids_.push_back(whole->second);
    pairs_.encode(word, &ids_);
  }

  const BpeTokenizer& tokenizer_;
  WordReader words_;
  BytePairEncoder pairs_;
  std::vector<Slot> cache_;
  std::deque<std::string> normalized_;  // what words lie in
  std::vector<TokenId> ids_;
};

Result<std::vector<TokenId>> BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
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

std::string BpeTokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  bool is_first = !options.continues;
  for (const TokenId id : ids) {
    const TokenType kind = type(id);
    if (kind == TokenType::kUnused) continue;
    if (options.skip_special && (kind == TokenType::kControl || kind == TokenType::kUnknown)) continue;
    bytes += piece(id);
    if (std::exchange(is_first, false)) take_leading_space(id, &bytes);
  }
  return bytes;
}

void BpeTokenizer::take_leading_space(TokenId first, std::string* bytes) const {
  if (leading_space_ == LeadingSpace::kOne && bytes->starts_with(' ')) bytes->erase(0, 1);
  if (leading_space_ == LeadingSpace::kAllOfFirstToken &&
      !std::ranges::binary_search(tokens_with_spaces_, first))
    std::erase(*bytes, ' ');
}

std::string_view BpeTokenizer::piece(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto at = static_cast<size_t>(id);
  const size_t begin = at == 0 ? 0 : piece_ends_[at - 1];
  return std::string_view(piece_bytes_).substr(begin, piece_ends_[at] - begin);
}

TokenType BpeTokenizer::type(TokenId id) const {
  return id < 0 || id >= vocab_size() ? TokenType::kUnused : types_[static_cast<size_t>(id)];
}

std::optional<TokenId> BpeTokenizer::special_id(std::string_view text) const {
  const auto found = special_ids_.find(text);
  if (found == special_ids_.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::ranges::binary_search(end_ids(), id);
}

}  // namespace butter
