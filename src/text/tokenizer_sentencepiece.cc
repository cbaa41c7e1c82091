// Makes a tokenizer of a SentencePiece model.
#include "text/sentencepiece_file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {
namespace {

using Model = SentencePieceFile::Model;

std::optional<int64_t> control_id(const SentencePieceFile& file, std::string_view piece) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.types[id] == TokenType::kControl && file.pieces[id] == piece) return static_cast<int64_t>(id);
  }
  return std::nullopt;
}

std::optional<int64_t> unknown_id(const SentencePieceFile& file) {
  const auto found = std::ranges::find(file.types, TokenType::kUnknown);
  if (found == file.types.end()) return std::nullopt;
  return found - file.types.begin();
}

Status check(const SentencePieceFile& file) {
  if (file.model != Model::kBpe && file.model != Model::kUnigram) {
    return fail(StatusCode::kUnsupported, "its model_type is {}; UNIGRAM and BPE are expected",
                file.model == Model::kWord ? "WORD" : "CHAR");
  }
  if (file.has_denormalizer)
    return fail(StatusCode::kUnsupported, "it has a denormalizer, which is not supported");
  if (!unknown_id(file) && !file.byte_fallback)
    return fail(StatusCode::kCorrupt, "it has neither an unknown piece nor byte_fallback");
  return {};
}

TokenizerSpec spec_of(const SentencePieceFile& file) {
  TokenizerSpec spec = sentencepiece_spec(
      file.model == Model::kBpe ? WordModelKind::kJoinedPairs : WordModelKind::kUnigram, file.rules);
  spec.tokens = file.pieces;
  spec.types = file.types;
  spec.scores.assign(file.scores.begin(), file.scores.end());
  spec.unknown_text = file.unk_surface;
  spec.byte_fallback = file.byte_fallback;
  spec.unk_id = unknown_id(file);
  spec.unknown_for_missing = spec.unk_id.has_value();
  return spec;
}

void set_if_missing(std::optional<int64_t>* id, std::optional<int64_t> other) {
  if (!*id) *id = other;
}

}  // namespace

TokenizerSpec sentencepiece_spec(WordModelKind kind, const SentencePieceRules& rules) {
  TokenizerSpec spec;
  spec.kind = kind;
  spec.sentencepiece = rules;
  spec.pre_tokenizer = "sentencepiece";
  spec.stages.emplace();
  spec.spelling = Spelling::kText;
  spec.decode_steps = {{DecodeStep::Kind::kReplace, "\u2581", " "}, {DecodeStep::Kind::kBytes}};
  spec.leading_space = rules.remove_extra_whitespaces ? LeadingSpace::kMarks
                       : rules.add_dummy_prefix       ? LeadingSpace::kMark
                                                      : LeadingSpace::kKept;
  return spec;
}

Result<VocabularyTokenizer> VocabularyTokenizer::from_sentencepiece(std::string_view model,
                                                                    const TokenizerFiles& files) {
  if (model.size() > kMaxFileBytes) {
    return fail(StatusCode::kLimit, "the SentencePiece model has {} bytes; at most {} are expected",
                model.size(), kMaxFileBytes);
  }
  const auto build = [&]() -> Result<VocabularyTokenizer> {
    BUTTER_ASSIGN(SentencePieceFile file, read_sentencepiece_file(model));
    BUTTER_TRY(check(file));
    BUTTER_ASSIGN(const ConfigOfVocabulary config, ConfigOfVocabulary::parse(files));
    // Files from before this flag have it on.
    file.rules.prefix_after_special = json_flag(json_member(config.tokenizer_config(), "legacy"), true);
    TokenizerSpec spec = spec_of(file);
    spec.add_bos = control_id(file, file.bos_piece).has_value();
    BUTTER_TRY(config.add_tokens_to(&spec));
    BUTTER_TRY(config.add_ids_to(&spec));
    set_if_missing(&spec.bos_id, control_id(file, file.bos_piece));
    set_if_missing(&spec.eos_id, control_id(file, file.eos_piece));
    set_if_missing(&spec.pad_id, control_id(file, file.pad_piece));
    if (spec.end_ids.empty() && spec.eos_id) spec.end_ids.push_back(*spec.eos_id);
    return create(spec);
  };
  auto made = build();
  if (!made) return fail(made.error().within("SentencePiece model"));
  return made;
}

Result<VocabularyTokenizer> VocabularyTokenizer::from_model_file(std::string_view file,
                                                                 const TokenizerFiles& files) {
  return looks_like_tiktoken(file) ? from_tiktoken(file, files) : from_sentencepiece(file, files);
}

}  // namespace butter
