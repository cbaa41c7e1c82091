#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
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
    BUTTER_TRY(set_pre_tokenizer());
    BUTTER_TRY(add_tokens());
    BUTTER_TRY(set_ids());
    BUTTER_TRY(set_flags());
    set_byte_ids();
    BUTTER_TRY(add_merges());
    collect_special_tokens();
    if (ignores_merges_) index_normal_tokens();
    return std::move(made_);
  }

 private:
  Status check_counts() const;
  Status set_pre_tokenizer();
  Status add_tokens();
  Status add_token(TokenId id);
  void set_byte_ids();
  Status add_merges();
  void collect_special_tokens();
  void index_normal_tokens();
  Status set_ids();
  Status set_flags();
  Result<std::optional<TokenId>> checked_id(std::string_view name, std::optional<int64_t> id) const;
  Result<TokenId> part_of_merge(size_t rank, std::string_view part) const;

  const TokenizerSpec& spec_;
  BpeTokenizer made_;
  bool ignores_merges_ = false;
  std::unordered_map<std::string_view, TokenId> ids_;  // by the file's spelling
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
  if (spec_.merges.size() > kMaxTokens) {
    return fail(StatusCode::kCorrupt, "the tokenizer has {} merges; at most {} are expected",
                spec_.merges.size(), kMaxTokens);
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
  return {};
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
  if (type == TokenType::kByte) {
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
  // What is not of the byte alphabet stands for itself, as in `tokenizers`.
  const bool literal = type != TokenType::kNormal || !append_spelled_bytes(text, &made_.piece_bytes_);
  if (literal && type != TokenType::kUnused) made_.piece_bytes_ += text;
  if (made_.piece_bytes_.size() > kMaxTextBytes) {
    return fail(StatusCode::kCorrupt, "the tokens up to {} have more than {} bytes", id, kMaxTextBytes);
  }
  made_.piece_ends_.push_back(static_cast<uint32_t>(made_.piece_bytes_.size()));
  return {};
}

void BpeTokenizer::Builder::set_byte_ids() {
  const TokenId missing = spec_.unknown_for_missing_bytes ? made_.unk_id_.value_or(-1) : -1;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(spelling_of_byte(static_cast<uint8_t>(byte)));
    made_.byte_ids_[byte] = found == ids_.end() ? missing : found->second;
  }
}

Result<TokenId> BpeTokenizer::Builder::part_of_merge(size_t rank, std::string_view part) const {
  const auto found = ids_.find(part);
  if (found == ids_.end()) {
    return fail(StatusCode::kCorrupt, "merge {} ({}) needs {}, which is not a token", rank,
                shown_text(spec_.merges[rank]), shown_text(part));
  }
  return found->second;
}

Status BpeTokenizer::Builder::add_merges() {
  made_.merges_ = MergeTable(spec_.merges.size());
  std::string merged_text;
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const std::string_view merge = spec_.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      return fail(StatusCode::kCorrupt, "merge {} is {}; two tokens with one space between them are expected",
                  rank, shown_text(merge));
    }
    merged_text = merge.substr(0, space);
    merged_text += merge.substr(space + 1);
    BUTTER_ASSIGN(const TokenId left, part_of_merge(rank, merge.substr(0, space)));
    BUTTER_ASSIGN(const TokenId right, part_of_merge(rank, merge.substr(space + 1)));
    BUTTER_ASSIGN(const TokenId merged, part_of_merge(rank, merged_text));
    made_.merges_.set(left, right, {static_cast<uint32_t>(rank), merged});
  }
  return {};
}

void BpeTokenizer::Builder::collect_special_tokens() {
  std::vector<SpecialTokens::Token> special;
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const TokenType type = made_.types_[id];
    if (type != TokenType::kControl && type != TokenType::kUserDefined && type != TokenType::kUnknown)
      continue;
    special.push_back(
        {std::string(spec_.tokens[id]), static_cast<TokenId>(id), type == TokenType::kUserDefined});
  }
  made_.special_ = SpecialTokens(std::move(special));
}

void BpeTokenizer::Builder::index_normal_tokens() {
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    // Of two spellings of the same bytes, only that of the byte alphabet is a word's.
    std::string bytes;
    if (!append_spelled_bytes(spec_.tokens[id], &bytes)) continue;
    if (made_.types_[id] == TokenType::kNormal) made_.normal_by_piece_.push_back(static_cast<TokenId>(id));
  }
  std::ranges::sort(made_.normal_by_piece_, {}, [&](TokenId id) { return made_.piece(id); });
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
  if (spec_.unknown_for_missing_bytes && !made_.unk_id_) return needs("unknown tokens", "unknown");
  made_.add_bos_ = spec_.add_bos;
  made_.add_eos_ = spec_.add_eos;
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
        pairs_(tokenizer.merges_, tokenizer.byte_ids_) {
    cache_.resize(std::clamp(std::bit_ceil(text_bytes / 8 + 1), kLeastSlots, kMostSlots));
    ids_.reserve(text_bytes / 4 + 2);
  }

  std::vector<TokenId> take_ids() { return std::move(ids_); }
  void add_special(TokenId id) { ids_.push_back(id); }

  // Text without tokens that are matched as they are spelled. It must outlive the Encoder.
  Status add_text(std::string_view text, WordReader::Place place) {
    while (!text.empty()) {
      const size_t good = well_formed_utf8_bytes(text);
      BUTTER_TRY(add_well_formed(text.substr(0, good), place));
      place = WordReader::Place::kContinues;
      text.remove_prefix(good);
      if (text.empty()) break;
      add_malformed(text.substr(0, first_utf8_unit(text).bytes));
      text.remove_prefix(first_utf8_unit(text).bytes);
    }
    return {};
  }

 private:
  static constexpr size_t kLeastSlots = 64;
  static constexpr size_t kMostSlots = 1 << 15;
  struct Slot {
    std::string_view word;
    uint32_t first_id = 0;
    uint32_t ids = 0;
  };

  Status add_well_formed(std::string_view text, WordReader::Place place) {
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
    const std::vector<TokenId>& known = tokenizer_.normal_by_piece_;
    if (!known.empty()) {
      const auto piece_of = [&](TokenId id) { return tokenizer_.piece(id); };
      const auto found = std::ranges::lower_bound(known, word, {}, piece_of);
      if (found != known.end() && piece_of(*found) == word) return ids_.push_back(*found);
    }
    pairs_.encode(word, &ids_);
  }

  const BpeTokenizer& tokenizer_;
  WordReader words_;
  BytePairEncoder pairs_;
  std::vector<Slot> cache_;
  std::vector<TokenId> ids_;
};

Result<std::vector<TokenId>> BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return fail(StatusCode::kLimit, "the text has {} bytes; at most {} are tokenized at once", text.size(),
                kMaxTextBytes);
  }
  Encoder encoder(*this, text.size());
  const SpecialTokens::Rules rules = {!options.parse_special, options.content.data(),
                                      options.content.data() + options.content.size()};
  const auto place_at = [](size_t begin) {
    return begin == 0 ? WordReader::Place::kFirst : WordReader::Place::kLater;
  };
  size_t at = 0;
  while (const auto match = special_.find(text, at, rules)) {
    BUTTER_TRY(encoder.add_text(text.substr(at, match->begin - at), place_at(at)));
    encoder.add_special(match->id);
    at = match->end;
  }
  BUTTER_TRY(encoder.add_text(text.substr(at), place_at(at)));

  std::vector<TokenId> ids = encoder.take_ids();
  if (options.add_bos && add_bos_ && (ids.empty() || ids.front() != *bos_id_))
    ids.insert(ids.begin(), *bos_id_);
  if (options.add_eos && add_eos_ && (ids.empty() || ids.back() != *eos_id_)) ids.push_back(*eos_id_);
  return ids;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (const TokenId id : ids) {
    const TokenType kind = type(id);
    if (options.skip_special && (kind == TokenType::kControl || kind == TokenType::kUnknown)) continue;
    bytes += piece(id);
  }
  return bytes;
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

bool Tokenizer::is_end(TokenId id) const {
  return std::ranges::binary_search(end_ids(), id);
}

}  // namespace butter
