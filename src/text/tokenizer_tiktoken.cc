// Makes a tokenizer of a vocabulary of byte strings with ranks, as tiktoken has them: of a *.tiktoken file,
// or of Mistral's tekken.json.
#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <functional>

#include "text/base64.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

void add_numbered(std::string_view before, int first, int last, Texts* texts) {
  for (int i = first; i <= last; ++i) texts->push_back(fmt::format("{}{}|>", before, i));
}

Texts llama3_special() {
  Texts texts = {"<|begin_of_text|>",
                 "<|end_of_text|>",
                 "<|reserved_special_token_0|>",
                 "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>",
                 "<|step_id|>",
                 "<|start_header_id|>",
                 "<|end_header_id|>",
                 "<|eom_id|>",
                 "<|eot_id|>",
                 "<|python_tag|>",
                 "<|image|>"};
  add_numbered("<|reserved_special_token_", 2, 245, &texts);
  return texts;
}

Texts llama4_special() {
  Texts texts = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>",
                 "<|fim_suffix|>"};
  constexpr std::string_view kText = "<|text_post_train_reserved_special_token_";
  texts.insert(texts.end(), {"<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"});
  add_numbered(kText, 0, 5, &texts);
  texts.insert(texts.end(), {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  add_numbered(kText, 8, 68, &texts);
  constexpr std::string_view kVision = "<|vision_reserved_special_token_";
  texts.insert(texts.end(), {"<|image_start|>", "<|image_end|>"});
  add_numbered(kVision, 0, 1, &texts);
  texts.insert(texts.end(), {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  add_numbered(kVision, 2, 5, &texts);
  texts.push_back("<|image|>");
  add_numbered(kVision, 6, 6, &texts);
  texts.push_back("<|patch|>");
  add_numbered(kVision, 7, 1047, &texts);
  add_numbered("<|reasoning_reserved_special_token_", 0, 7, &texts);
  texts.insert(texts.end(), {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  add_numbered("<|reserved_special_token_", 0, 2047 - static_cast<int>(texts.size()), &texts);
  return texts;
}

Texts qwen_special() {
  Texts texts = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  add_numbered("<|extra_", 0, 204, &texts);
  return texts;
}

// A *.tiktoken file has byte strings and no more: how a text is cut, and which tokens are special, is in the
// program that comes with it. These are the models that ship one, told by how many byte strings it has.
struct KnownVocabulary {
  const char* name;
  size_t tokens;
  const char* pre_tokenizer;
  Texts (*special)();  // they follow the byte strings
  const char* bos;     // null: none comes first
  std::array<const char*, 3> ends;
};
constexpr KnownVocabulary kKnown[] = {
    {"Llama 3",
     128'000,
     "llama-bpe",
     llama3_special,
     "<|begin_of_text|>",
     {"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"}},
    {"Llama 4",
     200'000,
     "gpt-4o",
     llama4_special,
     "<|begin_of_text|>",
     {"<|end_of_text|>", "<|eot|>", "<|eom|>"}},
    {"Qwen", 151'643, "qwen2", qwen_special, nullptr, {"<|endoftext|>", "<|im_end|>", nullptr}},
};

Result<const KnownVocabulary*> known_vocabulary(size_t tokens) {
  std::string known;
  for (const KnownVocabulary& one : kKnown) {
    if (one.tokens == tokens) return &one;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.name, one.tokens);
  }
  return fail(StatusCode::kUnsupported,
              "tiktoken file: it has {} byte strings; those that Butter knows how to use are {}", tokens,
              known);
}

// Both kinds of file.
TokenizerSpec rank_spec() {
  TokenizerSpec spec;
  spec.kind = WordModelKind::kJoinedPairs;
  spec.spelling = Spelling::kBytes;
  spec.ignore_merges = true;
  return spec;
}

// The lowest rank is the best.
void set_scores(TokenizerSpec* spec) {
  for (size_t id = 0; id < spec->tokens.size(); ++id) spec->scores[id] = -static_cast<double>(id);
}

void leave_holes_unused(TokenizerSpec* spec) {
  for (size_t id = 0; id < spec->tokens.size(); ++id) {
    if (spec->tokens[id].empty()) spec->types[id] = TokenType::kUnused;
  }
}

// One line: the base64 of a byte string, a space, its rank.
Status read_line(std::string_view line, size_t number, std::deque<std::string>* texts, TokenizerSpec* spec) {
  const size_t space = line.find(' ');
  const std::string_view digits = space == std::string_view::npos ? "" : line.substr(space + 1);
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  auto bytes = decode_base64(line.substr(0, space));
  if (!bytes || bytes->empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return fail(StatusCode::kCorrupt,
                "tiktoken file: line {} is {}; a byte string in base64 and its rank are expected", number,
                shown_text(line));
  }
  return place_token(texts->emplace_back(std::move(*bytes)), rank, "tiktoken file", spec);
}

Status read_lines(std::string_view file, std::deque<std::string>* texts, TokenizerSpec* spec) {
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) BUTTER_TRY(read_line(line, number, texts, spec));
  }
  return {};
}

// Those that the files beside it do not give another meaning.
void add_known_special(const Texts& special, size_t first_id, TokenizerSpec* spec) {
  const size_t count = std::max(spec->tokens.size(), first_id + special.size());
  spec->tokens.resize(count);
  spec->types.resize(count, TokenType::kNormal);
  spec->scores.resize(count);
  for (size_t i = 0; i < special.size(); ++i) {
    const size_t id = first_id + i;
    const bool is_elsewhere = std::find(spec->tokens.begin() + static_cast<ptrdiff_t>(first_id),
                                        spec->tokens.end(), special[i]) != spec->tokens.end();
    if (!spec->tokens[id].empty() || is_elsewhere) continue;
    spec->tokens[id] = special[i];
    spec->types[id] = TokenType::kControl;
  }
}

std::optional<int64_t> control_id(const TokenizerSpec& spec, std::string_view text) {
  for (size_t id = spec.tokens.size(); id-- > 0;) {
    if (spec.types[id] == TokenType::kControl && spec.tokens[id] == text) return static_cast<int64_t>(id);
  }
  return std::nullopt;
}

}  // namespace

bool looks_like_tiktoken(std::string_view file) {
  const std::string_view line = file.substr(0, std::min(file.find('\n'), file.size()));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && decode_base64(line.substr(0, space)).has_value();
}

Result<VocabularyTokenizer> VocabularyTokenizer::from_tiktoken(std::string_view file,
                                                               const TokenizerFiles& files) {
  if (file.size() > kMaxFileBytes) {
    return fail(StatusCode::kLimit, "the tiktoken file has {} bytes; at most {} are expected", file.size(),
                kMaxFileBytes);
  }
  TokenizerSpec spec = rank_spec();
  std::deque<std::string> texts;
  BUTTER_TRY(read_lines(file, &texts, &spec));
  BUTTER_ASSIGN(const KnownVocabulary* const known, known_vocabulary(texts.size()));
  const Texts special = known->special();
  const size_t first_special = spec.tokens.size();
  BUTTER_ASSIGN(const ConfigOfVocabulary config, ConfigOfVocabulary::parse(files));
  BUTTER_TRY(config.add_tokens_to(&spec));
  add_known_special(special, first_special, &spec);
  set_scores(&spec);
  spec.pre_tokenizer = known->pre_tokenizer;
  spec.add_bos = known->bos != nullptr;
  BUTTER_TRY(config.add_ids_to(&spec));
  if (known->bos != nullptr && !spec.bos_id) spec.bos_id = control_id(spec, known->bos);
  for (const char* end : known->ends) {
    const auto id = end == nullptr ? std::nullopt : control_id(spec, end);
    if (id) spec.end_ids.push_back(*id);
  }
  if (!spec.eos_id && !spec.end_ids.empty()) spec.eos_id = spec.end_ids.front();
  leave_holes_unused(&spec);
  auto made = create(spec);
  if (!made) return fail(made.error().within("tiktoken file"));
  return made;
}

namespace {

// Files from before they listed their special tokens have these, and more of a name that tells its id.
constexpr const char* kTekkenSpecial[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};
constexpr std::string_view kTekkenFile = "tekken.json";

class TekkenReader {
 public:
  explicit TekkenReader(const json& file) : file_(file) {}

  // Views into the document and into this reader.
  Result<TokenizerSpec> read() {
    const json& config = json_member(file_, "config");
    BUTTER_ASSIGN(const int64_t size, count(config, "default_vocab_size"));
    BUTTER_ASSIGN(const int64_t special, count(config, "default_num_special_tokens"));
    if (special > size) {
      return fail(StatusCode::kCorrupt, "tekken.json: {} of {} tokens are special; fewer are expected",
                  special, size);
    }
    spec_ = rank_spec();
    BUTTER_TRY(read_special(special));
    BUTTER_TRY(read_vocabulary(special, size));
    set_scores(&spec_);
    BUTTER_TRY(read_pattern(config));
    spec_.bos_id = control_id(spec_, "<s>");
    spec_.eos_id = control_id(spec_, "</s>");
    spec_.pad_id = control_id(spec_, "<pad>");
    spec_.add_bos = spec_.bos_id.has_value();
    leave_holes_unused(&spec_);
    return std::move(spec_);
  }

 private:
  static Result<int64_t> count(const json& config, const char* key) {
    const std::optional<int64_t> value = json_id(json_member(config, key));
    if (value && *value >= 0) return *value;
    return fail(StatusCode::kCorrupt, "tekken.json: config.{} is {}; a number from 0 to {} is expected", key,
                json_shown(json_member(config, key)), VocabularyTokenizer::kMaxTokens);
  }

  Status place_special(std::string_view text, std::optional<int64_t> id, int64_t count) {
    if (text.empty() || !id || *id < 0 || *id >= count) {
      return fail(StatusCode::kCorrupt, "tekken.json: special token {} has no rank from 0 to {}",
                  shown_text(text), count - 1);
    }
    BUTTER_TRY(place_token(text, id, kTekkenFile, &spec_));
    spec_.types[static_cast<size_t>(*id)] = TokenType::kControl;
    return {};
  }

  Status read_special(int64_t count) {
    const json& listed = json_member(file_, "special_tokens");
    if (listed.is_array()) {
      for (const json& token : listed) {
        BUTTER_TRY(place_special(json_text(json_member(token, "token_str")),
                                 json_id(json_member(token, "rank")), count));
      }
    } else {
      for (int64_t id = 0; id < std::min<int64_t>(count, std::size(kTekkenSpecial)); ++id)
        BUTTER_TRY(place_special(kTekkenSpecial[id], id, count));
    }
    for (auto id = static_cast<int64_t>(spec_.tokens.size()); id < count; ++id)
      BUTTER_TRY(place_special(texts_.emplace_back(fmt::format("<SPECIAL_{}>", id)), id, count));
    return {};
  }

  // The vocabulary follows the special tokens; what is beyond the size is not used.
  Status read_vocabulary(int64_t special, int64_t size) {
    const json& vocabulary = json_member(file_, "vocab");
    if (!vocabulary.is_array()) {
      return fail(StatusCode::kCorrupt, "tekken.json: vocab is {}; an array is expected",
                  json_shown(vocabulary));
    }
    for (const json& token : vocabulary) {
      const std::optional<int64_t> rank = json_id(json_member(token, "rank"));
      auto bytes = decode_base64(json_text(json_member(token, "token_bytes")));
      if (!rank || *rank < 0 || !bytes || bytes->empty()) {
        return fail(StatusCode::kCorrupt,
                    "tekken.json: {} is no entry of vocab; rank and token_bytes are expected",
                    json_shown(token));
      }
      if (*rank >= size - special) continue;
      BUTTER_TRY(place_token(texts_.emplace_back(std::move(*bytes)), *rank + special, kTekkenFile, &spec_));
    }
    return {};
  }

  Status read_pattern(const json& config) {
    const std::string_view pattern = json_text(json_member(config, "pattern"));
    if (pattern.empty()) {
      return fail(StatusCode::kCorrupt, "tekken.json: config.pattern is {}; an expression is expected",
                  json_shown(json_member(config, "pattern")));
    }
    spec_.stages = {{PreTokenizerStage::Kind::kPattern, std::string(pattern)}};
    spec_.pre_tokenizer = PreTokenizer::name_of(*spec_.stages).value_or("tekken.json");
    return {};
  }

  const json& file_;
  TokenizerSpec spec_;
  std::deque<std::string> texts_;
};

}  // namespace

Result<VocabularyTokenizer> VocabularyTokenizer::from_tekken(std::string_view tekken_json,
                                                             const TokenizerFiles& files) {
  BUTTER_ASSIGN(const json file, parse_tokenizer_file(tekken_json, kTekkenFile));
  TekkenReader reader(file);
  BUTTER_ASSIGN(TokenizerSpec spec, reader.read());
  BUTTER_ASSIGN(const ConfigOfVocabulary config, ConfigOfVocabulary::parse(files));
  BUTTER_TRY(config.add_ids_to(&spec));
  if (spec.eos_id && spec.end_ids.empty()) spec.end_ids.push_back(*spec.eos_id);
  auto made = create(spec);
  if (!made) return fail(made.error().within(std::string(kTekkenFile)));
  return made;
}

}  // namespace butter
