// VocabularyTokenizer: the Tokenizer of every vocabulary that Butter reads.
//
// A text goes through these steps: tokens that are matched as they are spelled are cut out
// (special_tokens.h); the rest is normalized (normalizer.h, sentencepiece_normalizer.h), cut into words
// (pre_tokenizer.h), and each word is made tokens (word_model.h). Which do what is said by a TokenizerSpec,
// made of a GGUF file's metadata, a tokenizer.json, a SentencePiece model or a tiktoken file.
//
// Ids equal those of PyPI `tokenizers`, `sentencepiece` or `tiktoken` for well-formed UTF-8. Any other bytes
// are taken too: a byte that is not part of well-formed UTF-8 is a word of its own, and the text before and
// after it is cut as if it ended and began there. Where nothing normalizes or drops text,
// decode(encode(text)) is `text`, byte for byte, as long as a byte-level vocabulary has a token for each byte
// (has_byte; SmolLM2's lacks 21 control characters and bytes that UTF-8 hardly uses: those vanish, as they do
// in `tokenizers`).
//
// Immutable; const methods may be called from any thread at once.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "butter/tokenizer.h"
#include "core/status.h"
#include "text/normalizer.h"
#include "text/piece_decoder.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece_normalizer.h"
#include "text/special_tokens.h"
#include "text/word_model.h"

namespace butter {

// A number of tokenizer.ggml.token_type, if it is one.
std::optional<TokenType> token_type_of(int64_t number);

// How words become tokens.
enum class WordModelKind {
  kMerges,       // BPE by a list of merges (GGUF's "gpt2"); byte_pair_encoder.h
  kJoinedPairs,  // BPE by the scores of tokens (SentencePiece, GGUF's "llama"; tiktoken); joined_pairs.h
  kUnigram,      // (SentencePiece, GGUF's "t5", tokenizer.json); unigram.h
};

// How the tokens of a file stand for bytes. Those that are not normal stand for what they are spelled as.
enum class Spelling {
  kByteAlphabet,  // in the byte alphabet (byte_alphabet.h)
  kBytes,         // they are those bytes
  kText,          // decode_steps make bytes of them
};

// How a token that is matched as it is spelled is looked for: tokenizer.json's flags of added tokens.
struct AddedTokenRule {
  int64_t id = -1;
  bool takes_space_before = false;  // lstrip
  bool takes_space_behind = false;  // rstrip
  bool whole_word = false;          // single_word
  // Not in the text as it was given: in what the normalizer makes of the text between the others, and in the
  // form that the normalizer gives the token.
  bool in_normalized_text = false;
  bool is_word_token = true;  // words may become it too: it is of the model's own vocabulary
};

// What a file says about its tokenizer: plain data, not yet believed (VocabularyTokenizer::create checks it).
// Views must live until create() returns, no longer.
struct TokenizerSpec {
  WordModelKind kind = WordModelKind::kMerges;
  std::vector<NormalizerStep> normalizer;  // what becomes of a text before it is cut
  // SentencePiece's normalizer in its place. User-defined tokens are then symbols of the words, and the
  // kinds of model that it has round as it does.
  std::optional<SentencePieceRules> sentencepiece;
  std::string pre_tokenizer;  // tokenizer.ggml.pre: a name of pre_tokenizers.cc
  // What cuts text into words, in place of the table's row; the name is then for messages alone.
  std::optional<std::vector<PreTokenizerStage>> stages;
  // By id, as the file spells them. An id that the file skips is an empty string, which create() refuses
  // (unless its type says that it is unused).
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;                                            // by id; empty: all normal
  std::vector<double> scores;                                              // by id; not of kMerges
  std::vector<std::string_view> merges;                                    // "left right", best first
  std::vector<std::pair<std::string_view, std::string_view>> merge_pairs;  // in place of merges
  Spelling spelling = Spelling::kByteAlphabet;
  std::vector<DecodeStep> decode_steps;
  std::optional<std::string> unknown_text;  // what the unknown token decodes to, in place of its spelling
  LeadingSpace leading_space = LeadingSpace::kKept;
  bool byte_fallback = false;  // a character without a token is its bytes: <0xE2> <0x82> <0xAC>
  bool fuse_unknown = false;   // a run of unknown symbols is one unk_id; always so but for kMerges
  std::optional<int64_t> bos_id;
  std::optional<int64_t> eos_id;
  std::optional<int64_t> unk_id;
  std::optional<int64_t> pad_id;
  std::vector<AddedTokenRule> added_rules;  // of control and user-defined tokens; one not here has no flags
  std::vector<int64_t> end_ids;             // further ids that end a turn: eot, eom, generation_config.json's
  bool add_bos = false;
  bool add_eos = false;
  bool add_prefix_space =
      false;                   // text that does not begin with a space is given one; of named pre-tokenizers
  bool ignore_merges = false;  // a word that is a token is that token, whatever it would be made of
  // A symbol without a token becomes unk_id in place of vanishing. GGUF does not say so, whatever its
  // unknown_token_id is; tokenizer.json's model.unk_token does.
  bool unknown_for_missing = false;
};

// What all tokenizers of SentencePiece have in common, whatever file they come from; without tokens.
TokenizerSpec sentencepiece_spec(WordModelKind kind, const SentencePieceRules& rules);

// The texts of the files beside a model that say more about its tokenizer; empty: there is no such file.
struct TokenizerFiles {
  std::string_view tokenizer_config = {};   // tokenizer_config.json
  std::string_view added_tokens = {};       // added_tokens.json
  std::string_view generation_config = {};  // generation_config.json
};

class VocabularyTokenizer final : public Tokenizer {
 public:
  static constexpr size_t kMaxTokens = size_t{1} << 22;
  static constexpr size_t kMaxTokenBytes = size_t{1} << 16;
  static constexpr size_t kMaxTextBytes = (size_t{1} << 31) - 1;
  static constexpr size_t kMaxFileBytes = size_t{1} << 27;

  // An error names the token, merge, id or name that is wrong.
  static Result<VocabularyTokenizer> create(const TokenizerSpec& spec);

  // From the text of a Hugging Face tokenizer.json; the other files add the ids that it does not tell. BOS
  // and EOS are added where tokenizer_config.json says so with add_bos_token or add_eos_token, else where the
  // post-processor does. A construct that Butter does not have is an error that names it.
  static Result<VocabularyTokenizer> from_tokenizer_json(std::string_view tokenizer_json,
                                                         const TokenizerFiles& files = {});

  // From a SentencePiece model, of type BPE or Unigram. The other files add tokens, flags and ids. BOS is
  // added unless they say otherwise.
  static Result<VocabularyTokenizer> from_sentencepiece(std::string_view model,
                                                        const TokenizerFiles& files = {});

  // From a tiktoken file ("base64 rank" on each line) of one of the models that ship one: Llama 3, Llama 4,
  // Qwen. Their special tokens are known; the other files may name them otherwise.
  static Result<VocabularyTokenizer> from_tiktoken(std::string_view file, const TokenizerFiles& files = {});

  // From Mistral's tekken.json.
  static Result<VocabularyTokenizer> from_tekken(std::string_view tekken_json,
                                                 const TokenizerFiles& files = {});

  // From a file that is called tokenizer.model: a SentencePiece model or a tiktoken file.
  static Result<VocabularyTokenizer> from_model_file(std::string_view file, const TokenizerFiles& files = {});

  // Errors: kLimit for a text above kMaxTextBytes or one that the pre-tokenizer gives up on.
  using Tokenizer::decode;
  using Tokenizer::encode;
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options) const override;

  // The bytes of the ids. Ids that the vocabulary lacks add nothing (a model's logits may be padded).
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options) const override;

  // The bytes that a token stands for; empty for an unused or unknown id. Valid while the Tokenizer lives.
  std::string_view piece(TokenId id) const override;
  // kUnused for an id that the vocabulary lacks.
  TokenType type(TokenId id) const override;
  // The id of a control or user-defined token, by its text: "<|im_end|>".
  std::optional<TokenId> special_id(std::string_view text) const override;

  int64_t vocab_size() const override { return static_cast<int64_t>(types_.size()); }
  const std::string& pre_tokenizer() const override { return pre_tokenizer_.name(); }
  const std::vector<TokenId>& end_ids() const override { return end_ids_; }
  std::optional<TokenId> bos_id() const override { return bos_id_; }
  std::optional<TokenId> eos_id() const override { return eos_id_; }
  std::optional<TokenId> unk_id() const { return unk_id_; }
  std::optional<TokenId> pad_id() const { return pad_id_; }
  bool adds_bos() const override { return add_bos_; }
  bool adds_eos() const override { return add_eos_; }
  bool has_byte(uint8_t byte) const { return has_byte_[byte]; }

 private:
  class Builder;  // tokenizer_builder.cc
  class Encoder;
  VocabularyTokenizer() = default;
  void take_leading_space(TokenId first, std::string* bytes) const;

  Normalizer normalizer_;
  std::optional<SentencePieceNormalizer> sentencepiece_;  // in place of normalizer_
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const WordModel> words_;
  SpecialTokens special_;             // looked for in the text as it was given
  SpecialTokens normalized_special_;  // looked for in normalized text
  std::map<std::string, TokenId, std::less<>> special_ids_;
  std::string piece_bytes_;                  // all pieces, one after the other
  std::vector<uint32_t> piece_ends_;         // by id
  std::vector<TokenType> types_;             // by id
  std::vector<TokenId> tokens_with_spaces_;  // sorted: those that are spelled with one
  std::bitset<256> has_byte_;
  LeadingSpace leading_space_ = LeadingSpace::kKept;
  std::vector<TokenId> end_ids_;
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_id_;
  std::optional<TokenId> unk_id_;
  std::optional<TokenId> pad_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace butter
