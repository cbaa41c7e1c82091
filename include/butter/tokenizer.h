// Tokenizer: text to token ids and back. StreamDetokenizer: the ids of an answer to text, as they come.
//
// A tokenizer is immutable; const methods may be called from any thread at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "butter/export.h"
#include "butter/status.h"

namespace butter {

using TokenId = int32_t;

// What kind of thing a token is; the numbers are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,       // spelled in the byte alphabet
  kUnknown = 2,      // stands for what the vocabulary cannot spell
  kControl = 3,      // special: <|im_start|>; parsed in text only where asked
  kUserDefined = 4,  // matched in text as it is spelled, always
  kUnused = 5,       // a place without a meaning; decodes to nothing
  kByte = 6,         // SentencePiece's <0x0A>; no byte-level vocabulary has it
};

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  bool add_bos = true;         // BOS first, if the file asks for it and the ids do not begin with it
  bool add_eos = true;         // EOS last, likewise
  bool parse_special = false;  // control tokens that stand in the text are those tokens, not text
  // With parse_special: parts of the text in which they are text all the same (what people wrote, inside
  // what a chat template wrote). A token that touches one is text. Sorted, disjoint.
  std::span<const TextSpan> content = {};
};

struct DecodeOptions {
  bool skip_special = false;  // control and unknown tokens decode to nothing
  // The ids follow others: the space that some vocabularies put before a text, and take away at its
  // beginning, stays.
  bool continues = false;
};

class BUTTER_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Errors: kLimit for a text that is too long.
  virtual Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options) const = 0;
  Result<std::vector<TokenId>> encode(std::string_view text) const { return encode(text, EncodeOptions()); }

  // The bytes of the ids. Ids that the vocabulary lacks add nothing (a model's logits may be padded).
  virtual std::string decode(std::span<const TokenId> ids, const DecodeOptions& options) const = 0;
  std::string decode(std::span<const TokenId> ids) const { return decode(ids, DecodeOptions()); }

  // The bytes that a token stands for; empty for an unused or unknown id. Valid while the tokenizer lives.
  virtual std::string_view piece(TokenId id) const = 0;
  // kUnused for an id that the vocabulary lacks.
  virtual TokenType type(TokenId id) const = 0;
  // The id of a control or user-defined token, by its text: "<|im_end|>".
  virtual std::optional<TokenId> special_id(std::string_view text) const = 0;

  virtual int64_t vocab_size() const = 0;
  // The name of the rule that cuts text into words: "smollm".
  virtual const std::string& pre_tokenizer() const = 0;
  // Tokens that end a turn, sorted; is_end() is the question whether an id is among them.
  virtual const std::vector<TokenId>& end_ids() const = 0;
  bool is_end(TokenId id) const;
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
};

// Turns the ids of an answer into text as they come.
//
// What it gives is always whole UTF-8 characters: bytes that may still become one are held back until the ids
// that follow complete it. Bytes that cannot become a character, and those left over at finish(), are given
// as U+FFFD, as Python's errors="replace" does; so all that it gave, joined, is decode() of the ids with its
// malformed parts replaced.
//
// One stream, one thread. The Tokenizer must outlive it.
class BUTTER_API StreamDetokenizer {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // The text that this id completes; may be empty.
  std::string push(TokenId id);
  // The end of the stream: what was held back. The next push() begins a new stream.
  std::string finish();
  // Whether bytes are held back.
  bool holds_back() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool begun_ = false;  // a token has given bytes, or a space that was taken away
  std::string held_;    // an incomplete character, at most 3 bytes
};

}  // namespace butter
