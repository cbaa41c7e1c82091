// VocabularyTokenizer::Builder: checks a TokenizerSpec and makes a tokenizer of it.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/characters.h"
#include "text/joined_pairs.h"
#include "text/merge_model.h"
#include "text/tokenizer.h"
#include "text/tokenizer_internal.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace butter {

class VocabularyTokenizer::Builder {
 public:
  explicit Builder(const TokenizerSpec& spec) : spec_(spec) {}

  // One step after the other.
  Result<VocabularyTokenizer> build() {
    BUTTER_TRY(check_counts());
    BUTTER_ASSIGN(made_.normalizer_, Normalizer::create(spec_.normalizer));
    BUTTER_TRY(set_pre_tokenizer());
    BUTTER_TRY(read_added_rules());
    BUTTER_TRY(add_tokens());
    BUTTER_TRY(set_sentencepiece());
    BUTTER_TRY(set_ids());
    BUTTER_TRY(set_flags());
    set_byte_ids();
    BUTTER_TRY(set_words());
    BUTTER_TRY(collect_special_tokens());
    return std::move(made_);
  }

 private:
  Status check_counts() const;
  Status check_scores() const;
  Status set_pre_tokenizer();
  Status read_added_rules();
  Status add_tokens();
  Status add_token(TokenId id);
  Status check_token(TokenId id) const;
  Status remember_spelling(TokenId id);
  void append_piece(std::string_view text, TokenType type);
  Status set_sentencepiece();
  Status set_ids();
  Status set_flags();
  void set_byte_ids();
  Status set_words();
  Status set_merges();
  void set_joined_pairs();
  void set_unigram();
  Status collect_special_tokens();

  std::string_view text_to_match(TokenId id) const;
  AddedTokenRule rule_of(TokenId id) const;
  bool is_word_token(TokenId id) const;
  bool is_one_symbol(TokenId id) const;
  bool is_looked_for(TokenId id) const;
  Result<std::optional<TokenId>> checked_id(std::string_view name, std::optional<int64_t> id) const;
  SymbolTable symbols() const;
  MergeModel::WholeWords whole_words() const;
  UnknownSymbols unknown_symbols() const;
  TokenId token_count() const { return static_cast<TokenId>(spec_.tokens.size()); }
  std::string_view text_of(TokenId id) const { return spec_.tokens[static_cast<size_t>(id)]; }
  TokenType type_of(TokenId id) const { return made_.types_[static_cast<size_t>(id)]; }
  using MergeParts = std::pair<std::string_view, std::string_view>;
  size_t merge_count() const;
  Result<MergeParts> parts_of_merge(size_t rank) const;
  Result<TokenId> id_in_merge(size_t rank, const MergeParts& parts, std::string_view token) const;

  const TokenizerSpec& spec_;
  VocabularyTokenizer made_;
  bool ignores_merges_ = false;
  std::array<int32_t, 256> byte_ids_;
  std::unordered_map<std::string_view, TokenId> ids_;  // by the file's spelling
  std::unordered_map<std::string_view, TokenId>
      special_ids_;  // likewise, where a word may be spelled the same
  std::unordered_map<int64_t, AddedTokenRule> added_rules_;
  std::unordered_map<TokenId, std::string> normalized_texts_;  // of the tokens in normalized text
};

Status VocabularyTokenizer::Builder::check_counts() const {
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
  return spec_.kind == WordModelKind::kMerges ? Status() : check_scores();
}

Status VocabularyTokenizer::Builder::check_scores() const {
  if (spec_.scores.size() != spec_.tokens.size()) {
    return fail(StatusCode::kCorrupt, "the tokenizer has {} tokens and {} scores; one for each is expected",
                spec_.tokens.size(), spec_.scores.size());
  }
  const auto bad = std::ranges::find_if_not(spec_.scores, [](double score) { return std::isfinite(score); });
  if (bad == spec_.scores.end()) return {};
  return fail(StatusCode::kCorrupt, "token {} has the score {}; a finite number is expected",
              bad - spec_.scores.begin(), *bad);
}

Status VocabularyTokenizer::Builder::set_pre_tokenizer() {
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

Status VocabularyTokenizer::Builder::read_added_rules() {
  for (const AddedTokenRule& rule : spec_.added_rules) {
    BUTTER_ASSIGN(const std::optional<TokenId> id, checked_id("added", rule.id));
    added_rules_[rule.id] = rule;
    if (!rule.in_normalized_text || made_.normalizer_.empty()) continue;
    const std::string_view text = text_of(*id);
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
std::string_view VocabularyTokenizer::Builder::text_to_match(TokenId id) const {
  const auto normalized = normalized_texts_.find(id);
  return normalized == normalized_texts_.end() ? text_of(id) : normalized->second;
}

AddedTokenRule VocabularyTokenizer::Builder::rule_of(TokenId id) const {
  const auto rule = added_rules_.find(id);
  return rule == added_rules_.end() ? AddedTokenRule() : rule->second;
}

// Whether words may become it. A control token never is what stands in a text.
bool VocabularyTokenizer::Builder::is_word_token(TokenId id) const {
  return !text_of(id).empty() && type_of(id) != TokenType::kControl && rule_of(id).is_word_token;
}

// Whether it is matched as it is spelled inside words, which is how SentencePiece has its user-defined
// tokens.
bool VocabularyTokenizer::Builder::is_one_symbol(TokenId id) const {
  return spec_.sentencepiece && type_of(id) == TokenType::kUserDefined && is_word_token(id);
}

// Whether it is matched as it is spelled before a text becomes words.
bool VocabularyTokenizer::Builder::is_looked_for(TokenId id) const {
  const TokenType type = type_of(id);
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         (type == TokenType::kUserDefined && !is_one_symbol(id));
}

Status VocabularyTokenizer::Builder::add_tokens() {
  made_.types_ = spec_.types;
  made_.types_.resize(spec_.tokens.size(), TokenType::kNormal);
  made_.piece_ends_.reserve(spec_.tokens.size());
  ids_.reserve(spec_.tokens.size());
  for (TokenId id = 0; id < token_count(); ++id) BUTTER_TRY(add_token(id));
  return {};
}

Status VocabularyTokenizer::Builder::add_token(TokenId id) {
  BUTTER_TRY(check_token(id));
  BUTTER_TRY(remember_spelling(id));
  const TokenType type = type_of(id);
  if (type != TokenType::kUnused) append_piece(text_to_match(id), type);
  const bool shows_text = type == TokenType::kUnknown && spec_.unknown_text;
  if ((shows_text ? *spec_.unknown_text : text_of(id)).find(' ') != std::string_view::npos)
    made_.tokens_with_spaces_.push_back(id);
  if (made_.piece_bytes_.size() > kMaxTextBytes) {
    return fail(StatusCode::kCorrupt, "the tokens up to {} have more than {} bytes", id, kMaxTextBytes);
  }
  made_.piece_ends_.push_back(static_cast<uint32_t>(made_.piece_bytes_.size()));
  return {};
}

Status VocabularyTokenizer::Builder::check_token(TokenId id) const {
  const std::string_view text = text_of(id);
  const TokenType type = type_of(id);
  if (!token_type_of(static_cast<int64_t>(type))) {
    return fail(StatusCode::kCorrupt, "token {} has type {}; 1 to 6 are expected", id,
                static_cast<int>(type));
  }
  if (type == TokenType::kByte && spec_.spelling != Spelling::kText) {
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
  return {};
}

Status VocabularyTokenizer::Builder::remember_spelling(TokenId id) {
  const std::string_view text = text_of(id);
  if (text.empty()) return {};
  const bool is_apart = spec_.spelling == Spelling::kBytes && type_of(id) != TokenType::kNormal;
  const auto [other, is_new] = (is_apart ? special_ids_ : ids_).emplace(text, id);
  if (is_new) return {};
  return fail(StatusCode::kCorrupt, "tokens {} and {} are both {}; each token is expected once",
              other->second, id, shown_text(text));
}

void VocabularyTokenizer::Builder::append_piece(std::string_view text, TokenType type) {
  std::string& bytes = made_.piece_bytes_;
  if (type == TokenType::kUnknown && spec_.unknown_text) {
    bytes += *spec_.unknown_text;
  } else if (spec_.spelling == Spelling::kText) {
    bytes += decode_piece(spec_.decode_steps, text);
  } else if (spec_.spelling == Spelling::kBytes || type != TokenType::kNormal ||
             !append_spelled_bytes(text, &bytes)) {
    // What is not of the byte alphabet stands for itself, as in `tokenizers`.
    bytes += text;
  }
}

Status VocabularyTokenizer::Builder::set_sentencepiece() {
  if (!spec_.sentencepiece) return {};
  std::vector<PieceTrie::Piece> symbols;
  for (TokenId id = 0; id < token_count(); ++id) {
    if (is_one_symbol(id)) symbols.push_back({text_of(id), id});
  }
  BUTTER_ASSIGN(made_.sentencepiece_,
                SentencePieceNormalizer::create(*spec_.sentencepiece, PieceTrie(std::move(symbols))));
  return {};
}

Result<std::optional<TokenId>> VocabularyTokenizer::Builder::checked_id(std::string_view name,
                                                                        std::optional<int64_t> id) const {
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || *id >= static_cast<int64_t>(spec_.tokens.size())) {
    return fail(StatusCode::kCorrupt, "the tokenizer's {} id is {}; 0 to {} are expected", name, *id,
                spec_.tokens.size() - 1);
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

Status VocabularyTokenizer::Builder::set_ids() {
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

Status VocabularyTokenizer::Builder::set_flags() {
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

void VocabularyTokenizer::Builder::set_byte_ids() {
  byte_ids_.fill(-1);
  if (spec_.spelling == Spelling::kText && !spec_.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<char>(byte);
    const auto found = spec_.spelling == Spelling::kByteAlphabet
                           ? ids_.find(spelling_of_byte(static_cast<uint8_t>(byte)))
                       : spec_.spelling == Spelling::kBytes ? ids_.find(std::string_view(&value, 1))
                                                            : ids_.find(fmt::format("<0x{:02X}>", byte));
    if (found != ids_.end()) byte_ids_[static_cast<size_t>(byte)] = found->second;
    made_.has_byte_[static_cast<size_t>(byte)] = found != ids_.end();
  }
}

Status VocabularyTokenizer::Builder::set_words() {
  switch (spec_.kind) {
    case WordModelKind::kMerges:
      return set_merges();
    case WordModelKind::kJoinedPairs:
      if (spec_.spelling == Spelling::kBytes && !made_.has_byte_.all()) {
        size_t byte = 0;
        while (made_.has_byte_[byte]) ++byte;
        return fail(StatusCode::kCorrupt,
                    "the vocabulary has no token for the byte 0x{:02X}; one for each is expected", byte);
      }
      set_joined_pairs();
      return {};
    case WordModelKind::kUnigram:
      set_unigram();
      return {};
  }
  return {};
}

SymbolTable VocabularyTokenizer::Builder::symbols() const {
  SymbolTable symbols(byte_ids_);
  symbols.of_bytes = spec_.spelling != Spelling::kText;
  symbols.fuse_unknown = spec_.fuse_unknown;
  if (spec_.unknown_for_missing) symbols.unknown_id = *made_.unk_id_;
  if (symbols.of_bytes) return symbols;
  for (TokenId id = 0; id < token_count(); ++id) {
    if (is_word_token(id) && is_one_character(text_of(id)))
      symbols.character_ids.emplace(decode_utf8(text_of(id)), id);
  }
  return symbols;
}

size_t VocabularyTokenizer::Builder::merge_count() const {
  return spec_.merges.size() + spec_.merge_pairs.size();
}

Result<VocabularyTokenizer::Builder::MergeParts> VocabularyTokenizer::Builder::parts_of_merge(
    size_t rank) const {
  if (rank >= spec_.merges.size()) return spec_.merge_pairs[rank - spec_.merges.size()];
  const std::string_view merge = spec_.merges[rank];
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    return fail(StatusCode::kCorrupt, "merge {} is {}; two tokens with one space between them are expected",
                rank, shown_text(merge));
  }
  return MergeParts(merge.substr(0, space), merge.substr(space + 1));
}

Result<TokenId> VocabularyTokenizer::Builder::id_in_merge(size_t rank, const MergeParts& parts,
                                                          std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    return fail(StatusCode::kCorrupt, "merge {} ({}) needs {}, which is not a token", rank,
                shown_text(fmt::format("{} {}", parts.first, parts.second)), shown_text(token));
  }
  return found->second;
}

Status VocabularyTokenizer::Builder::set_merges() {
  MergeTable merges(merge_count());
  std::string merged_text;
  for (size_t rank = 0; rank < merge_count(); ++rank) {
    BUTTER_ASSIGN(const MergeParts parts, parts_of_merge(rank));
    merged_text = parts.first;
    merged_text += parts.second;
    BUTTER_ASSIGN(const TokenId left, id_in_merge(rank, parts, parts.first));
    BUTTER_ASSIGN(const TokenId right, id_in_merge(rank, parts, parts.second));
    BUTTER_ASSIGN(const TokenId merged, id_in_merge(rank, parts, merged_text));
    merges.set(left, right, {static_cast<uint32_t>(rank), merged});
  }
  made_.words_ = std::make_unique<MergeModel>(std::move(merges), symbols(),
                                              ignores_merges_ ? whole_words() : MergeModel::WholeWords());
  return {};
}

MergeModel::WholeWords VocabularyTokenizer::Builder::whole_words() const {
  MergeModel::WholeWords words;
  for (TokenId id = 0; id < token_count(); ++id) {
    const TokenType type = type_of(id);
    if (!is_word_token(id) || (type != TokenType::kNormal && type != TokenType::kUserDefined)) continue;
    std::string word;
    if (spec_.spelling == Spelling::kText) {
      word = text_of(id);
    } else if (!append_spelled_bytes(text_of(id), &word)) {
      continue;  // of two spellings of the same bytes, only that of the byte alphabet is a word's
    }
    words.emplace(std::move(word), id);
  }
  return words;
}

UnknownSymbols VocabularyTokenizer::Builder::unknown_symbols() const {
  UnknownSymbols unknown;
  unknown.byte_ids = byte_ids_;
  if (spec_.unknown_for_missing) unknown.unknown_id = *made_.unk_id_;
  return unknown;
}

void VocabularyTokenizer::Builder::set_joined_pairs() {
  std::vector<JoinedPairModel::Piece> pieces;
  for (TokenId id = 0; id < token_count(); ++id) {
    const TokenType type = type_of(id);
    const bool is_reserved = type == TokenType::kUnknown || type == TokenType::kByte;
    if (!is_word_token(id) || is_reserved) continue;
    pieces.push_back({text_of(id), id, static_cast<float>(spec_.scores[static_cast<size_t>(id)]),
                      type == TokenType::kUnused, is_one_symbol(id)});
  }
  made_.words_ = std::make_unique<JoinedPairModel>(
      pieces,
      JoinedPairModel::Options{spec_.spelling == Spelling::kBytes, ignores_merges_, unknown_symbols()});
}

void VocabularyTokenizer::Builder::set_unigram() {
  const bool as_sentencepiece = spec_.sentencepiece.has_value();
  std::vector<UnigramModel::Piece> pieces;
  // Of no piece that counts, SentencePiece takes the largest float.
  double least_score = std::numeric_limits<float>::max();
  for (TokenId id = 0; id < token_count(); ++id) {
    const TokenType type = type_of(id);
    const double score = spec_.scores[static_cast<size_t>(id)];
    const bool is_of_model = !text_of(id).empty() && rule_of(id).is_word_token;
    if (as_sentencepiece ? type == TokenType::kNormal : is_of_model)
      least_score = std::min(least_score, score);
    const bool is_reserved = as_sentencepiece && (type == TokenType::kUnknown || type == TokenType::kByte ||
                                                  type == TokenType::kUnused);
    if (is_word_token(id) && !is_reserved) pieces.push_back({text_of(id), id, score, is_one_symbol(id)});
  }
  made_.words_ = std::make_unique<UnigramModel>(
      pieces, UnigramModel::Options{as_sentencepiece, least_score, unknown_symbols()});
}

Status VocabularyTokenizer::Builder::collect_special_tokens() {
  std::vector<SpecialTokens::Token> given, normalized;
  std::unordered_map<std::string_view, TokenId> of_normalized;
  for (TokenId id = 0; id < token_count(); ++id) {
    if (is_looked_for(id) || is_one_symbol(id)) made_.special_ids_.emplace(text_of(id), id);
    if (!is_looked_for(id)) continue;
    const AddedTokenRule rule = rule_of(id);
    const std::string_view text = text_to_match(id);
    if (rule.in_normalized_text && !of_normalized.emplace(text, id).second) {
      return fail(StatusCode::kCorrupt, "added tokens {} and {} are both {} in normalized text",
                  of_normalized[text], id, shown_text(text));
    }
    (rule.in_normalized_text ? normalized : given)
        .push_back({std::string(text), id, type_of(id) == TokenType::kUserDefined, rule.takes_space_before,
                    rule.takes_space_behind, rule.whole_word});
  }
  made_.special_ = SpecialTokens(std::move(given));
  made_.normalized_special_ = SpecialTokens(std::move(normalized));
  return {};
}

Result<VocabularyTokenizer> VocabularyTokenizer::create(const TokenizerSpec& spec) {
  return Builder(spec).build();
}

}  // namespace butter
