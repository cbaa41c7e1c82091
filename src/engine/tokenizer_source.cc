#include "engine/tokenizer_source.h"

#include <algorithm>

#include "checkpoint/printable.h"
#include "text/tokenizer.h"

namespace butter {
namespace {

// Keys of further tokens that end a turn.
constexpr const char* kEndKeys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                    "tokenizer.ggml.eos_token_ids"};

// What chat models call the token that ends a turn: of files that do not name it, whose eos_token_id may be
// the end of a document.
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>",      "<|im_end|>", "<|end|>",   "<end_of_turn>",
                                          "<|end_of_turn|>", "<|eot|>",    "<|return|>"};

// gpt-oss has <|return|> at the end of a turn and <|end|> between its messages.
std::vector<int64_t> turn_ends_by_text(const TokenizerSpec& spec) {
  const auto id_of = [&](std::string_view text) {
    const auto found = std::ranges::find(spec.tokens, text);
    const int64_t id = found - spec.tokens.begin();
    const bool is_text = found == spec.tokens.end() || static_cast<size_t>(id) >= spec.types.size() ||
                         spec.types[static_cast<size_t>(id)] != TokenType::kControl;
    return is_text ? std::optional<int64_t>() : std::optional(id);
  };
  const bool has_messages = id_of("<|return|>").has_value();
  std::vector<int64_t> ids;
  for (const std::string_view text : kTurnEnds) {
    if (has_messages && text == "<|end|>") continue;
    if (const auto id = id_of(text)) ids.push_back(*id);
  }
  return ids;
}

Result<std::optional<int64_t>> optional_id(const Attributes& metadata, const char* key) {
  if (metadata.kind(key) == AttributeKind::kAbsent) return std::optional<int64_t>();
  BUTTER_ASSIGN(const int64_t id, metadata.get_int(key));
  return std::optional<int64_t>(id);
}

Result<std::vector<TokenType>> token_types(const Attributes& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  std::vector<TokenType> types;
  if (metadata.kind(kKey) == AttributeKind::kAbsent) return types;
  BUTTER_ASSIGN(const std::vector<int64_t> numbers, metadata.get_ints(kKey));
  types.reserve(numbers.size());
  for (size_t id = 0; id < numbers.size(); ++id) {
    const auto type = token_type_of(numbers[id]);
    if (!type) return fail(StatusCode::kCorrupt, "{}[{}] is {}; 1 to 6 are expected", kKey, id, numbers[id]);
    types.push_back(*type);
  }
  return types;
}

// The bytes of the charsmap of a SentencePiece model; GGUF has them as an array of numbers.
Result<std::string> charsmap_of(const Attributes& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.precompiled_charsmap";
  std::string bytes;
  if (metadata.kind(kKey) == AttributeKind::kAbsent) return bytes;
  BUTTER_ASSIGN(const std::vector<int64_t> numbers, metadata.get_ints(kKey));
  bytes.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < -128 || number > 255)
      return fail(StatusCode::kCorrupt, "{} holds {}; bytes are expected", kKey, number);
    bytes += static_cast<char>(number);
  }
  return bytes;
}

// What is not of the tokens themselves. `charsmap` must live as long as the spec.
Result<TokenizerSpec> gguf_kind(const Attributes& metadata, std::string_view charsmap) {
  BUTTER_ASSIGN(const std::string model, metadata.get_string_or("tokenizer.ggml.model", "gpt2"));
  if (model == "gpt2") {
    TokenizerSpec spec;
    BUTTER_ASSIGN(spec.pre_tokenizer, metadata.get_string_or("tokenizer.ggml.pre", "gpt2"));
    BUTTER_ASSIGN(spec.add_prefix_space, metadata.get_bool_or("tokenizer.ggml.add_space_prefix", false));
    return spec;
  }
  if (model != "llama" && model != "t5") {
    return fail(StatusCode::kUnsupported,
                "tokenizer.ggml.model is '{}', which is not one that Butter knows: gpt2, llama, t5",
                printable(model));
  }
  SentencePieceRules rules;
  rules.precompiled_charsmap = charsmap;
  BUTTER_ASSIGN(rules.add_dummy_prefix, metadata.get_bool_or("tokenizer.ggml.add_space_prefix", true));
  BUTTER_ASSIGN(rules.remove_extra_whitespaces,
                metadata.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", false));
  return sentencepiece_spec(model == "llama" ? WordModelKind::kJoinedPairs : WordModelKind::kUnigram, rules);
}

// llama.cpp's defaults, which files rely on.
bool adds_bos_unless_told(const TokenizerSpec& spec) {
  if (spec.sentencepiece) return spec.kind == WordModelKind::kJoinedPairs;
  const PreTokenizerRow* const row = PreTokenizer::find_row(spec.pre_tokenizer);
  return row != nullptr && row->adds_bos;
}

// What files of SentencePiece models may leave out.
void set_sentencepiece_defaults(TokenizerSpec* spec) {
  spec->byte_fallback = std::ranges::find(spec->types, TokenType::kByte) != spec->types.end();
  if (!spec->unk_id) {
    const auto unknown = std::ranges::find(spec->types, TokenType::kUnknown);
    if (unknown != spec->types.end()) spec->unk_id = unknown - spec->types.begin();
  }
  spec->unknown_for_missing = spec->unk_id.has_value();
}

Result<TokenizerSpec> gguf_tokenizer(const Attributes& metadata, std::string_view charsmap) {
  BUTTER_ASSIGN(TokenizerSpec spec, gguf_kind(metadata, charsmap));
  BUTTER_ASSIGN(const auto tokens, metadata.get_strings("tokenizer.ggml.tokens"));
  spec.tokens.assign(tokens.begin(), tokens.end());
  BUTTER_ASSIGN(spec.types, token_types(metadata));
  if (spec.sentencepiece) {
    BUTTER_ASSIGN(const auto scores, metadata.get_floats("tokenizer.ggml.scores"));
    spec.scores.assign(scores.begin(), scores.end());
  }
  if (metadata.kind("tokenizer.ggml.merges") != AttributeKind::kAbsent) {
    BUTTER_ASSIGN(const auto merges, metadata.get_strings("tokenizer.ggml.merges"));
    spec.merges.assign(merges.begin(), merges.end());
  }
  BUTTER_ASSIGN(spec.bos_id, optional_id(metadata, "tokenizer.ggml.bos_token_id"));
  BUTTER_ASSIGN(spec.eos_id, optional_id(metadata, "tokenizer.ggml.eos_token_id"));
  BUTTER_ASSIGN(spec.unk_id, optional_id(metadata, "tokenizer.ggml.unknown_token_id"));
  BUTTER_ASSIGN(spec.pad_id, optional_id(metadata, "tokenizer.ggml.padding_token_id"));
  BUTTER_ASSIGN(spec.add_bos, metadata.get_bool_or("tokenizer.ggml.add_bos_token",
                                                   spec.bos_id && adds_bos_unless_told(spec)));
  const bool adds_eos = spec.eos_id && spec.kind == WordModelKind::kUnigram;
  BUTTER_ASSIGN(spec.add_eos, metadata.get_bool_or("tokenizer.ggml.add_eos_token", adds_eos));
  if (spec.sentencepiece) set_sentencepiece_defaults(&spec);
  for (const char* key : kEndKeys) {
    if (metadata.kind(key) == AttributeKind::kAbsent) continue;
    BUTTER_ASSIGN(const std::vector<int64_t> ids, metadata.get_int_or_ints(key));
    spec.end_ids.insert(spec.end_ids.end(), ids.begin(), ids.end());
  }
  if (metadata.kind(kEndKeys[0]) == AttributeKind::kAbsent) {
    const std::vector<int64_t> ids = turn_ends_by_text(spec);
    spec.end_ids.insert(spec.end_ids.end(), ids.begin(), ids.end());
  }
  return spec;
}

// The files of one kind that a folder may have, the best first.
struct TokenizerFile {
  const char* name;
  Result<VocabularyTokenizer> (*read)(std::string_view, const TokenizerFiles&);
};
constexpr TokenizerFile kTokenizerFiles[] = {
    {"tokenizer.json", VocabularyTokenizer::from_tokenizer_json},
    {"tekken.json", VocabularyTokenizer::from_tekken},
    {"tokenizer.model", VocabularyTokenizer::from_model_file},
    {"spiece.model", VocabularyTokenizer::from_sentencepiece},
    {"tokenizer.model.v3", VocabularyTokenizer::from_sentencepiece},
    {"qwen.tiktoken", VocabularyTokenizer::from_tiktoken},
};

Result<std::unique_ptr<const Tokenizer>> folder_tokenizer(const Checkpoint& checkpoint) {
  BUTTER_ASSIGN(const auto config, checkpoint.sidecar("tokenizer_config.json"));
  BUTTER_ASSIGN(const auto added, checkpoint.sidecar("added_tokens.json"));
  BUTTER_ASSIGN(const auto generation, checkpoint.sidecar("generation_config.json"));
  const auto view = [](const std::optional<std::string>& text) {
    return text ? std::string_view(*text) : std::string_view();
  };
  const TokenizerFiles files = {view(config), view(added), view(generation)};
  for (const auto& [name, read] : kTokenizerFiles) {
    BUTTER_ASSIGN(const auto text, checkpoint.sidecar(name));
    if (!text) continue;
    auto tokenizer = read(*text, files);
    if (!tokenizer) return fail(tokenizer.error().within(name));
    return std::make_unique<const VocabularyTokenizer>(std::move(*tokenizer));
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (checkpoint.config().kind("tokenizer.ggml.tokens") == AttributeKind::kAbsent) return nullptr;
    BUTTER_ASSIGN(const std::string charsmap, charsmap_of(checkpoint.config()));
    BUTTER_ASSIGN(const TokenizerSpec spec, gguf_tokenizer(checkpoint.config(), charsmap));
    BUTTER_ASSIGN(VocabularyTokenizer tokenizer, VocabularyTokenizer::create(spec));
    return std::make_unique<const VocabularyTokenizer>(std::move(tokenizer));
  }
  return folder_tokenizer(checkpoint);
}

Status check_vocabulary(const Tokenizer& tokenizer, int vocabulary) {
  if (tokenizer.vocab_size() <= vocabulary) return {};
  return fail(StatusCode::kCorrupt, "the tokenizer has {} tokens; the model has embeddings for {}",
              tokenizer.vocab_size(), vocabulary);
}

std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int vocabulary) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary; ++id) {
    if (tokenizer.type(id) == TokenType::kUnused && !tokenizer.is_end(id)) ids.push_back(id);
  }
  return ids;
}

}  // namespace butter
