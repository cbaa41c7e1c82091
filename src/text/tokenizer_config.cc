#include "text/tokenizer_config.h"

#include <charconv>
#include <unordered_map>

#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {

using nlohmann::json;

const json& json_member(const json& object, std::string_view key) {
  static const json* const kNull = new json;
  if (!object.is_object()) return *kNull;
  const auto found = object.find(key);
  return found == object.end() ? *kNull : *found;
}

std::string_view json_text(const json& value) {
  return value.is_string() ? std::string_view(value.get_ref<const std::string&>()) : std::string_view();
}

bool json_flag(const json& value, bool if_missing) {
  return value.is_boolean() ? value.get<bool>() : value.is_null() && if_missing;
}

// Invalid UTF-8 cannot be in it: the parser refuses that.
std::string json_shown(const json& value) {
  if (value.is_null()) return "missing";
  if (value.is_object() && json_member(value, "type").is_string())
    return shown_text(json_text(json_member(value, "type")));
  return shown_text(value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100));
}

std::optional<int64_t> json_id(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > VocabularyTokenizer::kMaxTokens)
    return std::nullopt;
  return value.get<int64_t>();
}

// Whether objects and arrays are nested so deep. The parser's own way to ask takes time quadratic in a list.
static bool is_deeper_than(int most, std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Result<json> parse_tokenizer_file(std::string_view text, std::string_view file) {
  constexpr int kMaxDepth = 32;  // of nested objects and arrays
  if (text.size() > VocabularyTokenizer::kMaxFileBytes) {
    return fail(StatusCode::kLimit, "{} has {} bytes; at most {} are expected", file, text.size(),
                VocabularyTokenizer::kMaxFileBytes);
  }
  if (is_deeper_than(kMaxDepth, text))
    return fail(StatusCode::kLimit, "{} is nested deeper than {} levels", file, kMaxDepth);
  json parsed = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return fail(StatusCode::kCorrupt, "{} is not a JSON object", file);
  return parsed;
}

Result<json> parse_if_there(std::string_view text, std::string_view file) {
  if (text.empty()) return json();
  return parse_tokenizer_file(text, file);
}

Status place_token(std::string_view text, std::optional<int64_t> id, std::string_view file,
                   TokenizerSpec* spec) {
  if (!id || *id < 0 || *id >= static_cast<int64_t>(VocabularyTokenizer::kMaxTokens)) {
    return fail(StatusCode::kCorrupt, "{}: the id of token {} is not a number from 0 to {}", file,
                shown_text(text), VocabularyTokenizer::kMaxTokens - 1);
  }
  const auto at = static_cast<size_t>(*id);
  if (at >= spec->tokens.size()) {
    spec->tokens.resize(at + 1);
    spec->types.resize(at + 1, TokenType::kNormal);
    if (spec->kind != WordModelKind::kMerges) spec->scores.resize(at + 1);
  }
  std::string_view& place = spec->tokens[at];
  if (place.data() != nullptr && place != text) {
    return fail(StatusCode::kCorrupt, "{}: id {} is both {} and {}", file, *id, shown_text(place),
                shown_text(text));
  }
  place = text;
  return {};
}

Status add_added_token(const json& token, std::optional<int64_t> id, bool is_word_token,
                       std::string_view file, TokenizerSpec* spec) {
  const json& content = json_member(token, "content");
  const std::string_view text = json_text(content);
  if (text.empty()) {
    return fail(StatusCode::kCorrupt, "{}: an added token's content is {}; a text is expected", file,
                json_shown(content));
  }
  BUTTER_TRY(place_token(text, id, file, spec));
  const auto flag = [&](const char* name) { return json_flag(json_member(token, name)); };
  spec->types[static_cast<size_t>(*id)] = flag("special") ? TokenType::kControl : TokenType::kUserDefined;
  spec->added_rules.push_back(
      {*id, flag("lstrip"), flag("rstrip"), flag("single_word"), flag("normalized"), is_word_token});
  return {};
}

Status read_tokenizer_config(const json& config, const FindToken& find, TokenizerSpec* spec) {
  // A text, or an object with one.
  const auto named_id = [&](const char* key) -> Result<std::optional<int64_t>> {
    const json& value = json_member(config, key);
    if (value.is_null()) return std::optional<int64_t>();
    const std::optional<int64_t> id =
        find(value.is_object() ? json_text(json_member(value, "content")) : json_text(value));
    if (id) return id;
    return fail(StatusCode::kCorrupt, "tokenizer_config.json: {} is {}, which is not a token", key,
                json_shown(value));
  };
  const auto set = [&](const char* key, std::optional<int64_t>* id) -> Status {
    BUTTER_ASSIGN(const std::optional<int64_t> named, named_id(key));
    if (named && !*id) *id = named;
    return {};
  };
  BUTTER_TRY(set("bos_token", &spec->bos_id));
  BUTTER_TRY(set("eos_token", &spec->eos_id));
  BUTTER_TRY(set("unk_token", &spec->unk_id));
  BUTTER_TRY(set("pad_token", &spec->pad_id));
  BUTTER_ASSIGN(const std::optional<int64_t> end, named_id("eos_token"));
  if (end) spec->end_ids.push_back(*end);
  spec->add_bos = json_flag(json_member(config, "add_bos_token"), spec->add_bos);
  spec->add_eos = json_flag(json_member(config, "add_eos_token"), spec->add_eos);
  return {};
}

Status read_generation_config(const json& generation, TokenizerSpec* spec) {
  const json& eos = json_member(generation, "eos_token_id");
  if (eos.is_null()) return {};
  const json list = eos.is_array() ? eos : json::array({eos});
  for (const json& value : list) {
    const std::optional<int64_t> id = json_id(value);
    if (!id) {
      return fail(StatusCode::kCorrupt, "generation_config.json: eos_token_id is {}; token ids are expected",
                  json_shown(eos));
    }
    spec->end_ids.push_back(*id);
  }
  if (!spec->eos_id && !spec->end_ids.empty()) spec->eos_id = spec->end_ids.front();
  return {};
}

Result<ConfigOfVocabulary> ConfigOfVocabulary::parse(const TokenizerFiles& files) {
  ConfigOfVocabulary made;
  BUTTER_ASSIGN(made.config_, parse_if_there(files.tokenizer_config, "tokenizer_config.json"));
  BUTTER_ASSIGN(made.added_, parse_if_there(files.added_tokens, "added_tokens.json"));
  BUTTER_ASSIGN(made.generation_, parse_if_there(files.generation_config, "generation_config.json"));
  return made;
}

Status ConfigOfVocabulary::add_ids_to(TokenizerSpec* spec) const {
  std::unordered_map<std::string_view, int64_t> ids;
  // A special token comes before a word that is spelled the same.
  for (const bool special : {true, false}) {
    for (size_t id = 0; id < spec->tokens.size(); ++id) {
      if ((spec->types[id] == TokenType::kControl) == special) ids.emplace(spec->tokens[id], id);
    }
  }
  const auto find = [&](std::string_view text) -> std::optional<int64_t> {
    const auto found = ids.find(text);
    if (text.empty() || found == ids.end()) return std::nullopt;
    return found->second;
  };
  BUTTER_TRY(read_tokenizer_config(config_, find, spec));
  return read_generation_config(generation_, spec);
}

// added_tokens_decoder has flags; added_tokens.json, which is older, only texts, of tokens that are special.
Status ConfigOfVocabulary::add_tokens_to(TokenizerSpec* spec) const {
  const auto vocabulary_size = static_cast<int64_t>(spec->tokens.size());
  const json& decoder = json_member(config_, "added_tokens_decoder");
  for (auto token = decoder.begin(); token != decoder.end(); ++token) {
    if (!decoder.is_object()) break;
    const std::string& key = token.key();
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) id = -1;
    BUTTER_TRY(add_added_token(*token, id, id < vocabulary_size, "tokenizer_config.json", spec));
    spec->added_rules.back().in_normalized_text = false;  // it has no say here
  }
  if (!added_.is_object()) return {};
  for (auto token = added_.begin(); token != added_.end(); ++token) {
    const std::optional<int64_t> id = json_id(*token);
    if (id && *id >= 0 && *id < static_cast<int64_t>(spec->tokens.size()) &&
        spec->tokens[static_cast<size_t>(*id)] == token.key()) {
      continue;
    }
    BUTTER_TRY(place_token(token.key(), id, "added_tokens.json", spec));
    spec->types[static_cast<size_t>(*id)] = TokenType::kControl;
    spec->added_rules.push_back({.id = *id, .is_word_token = false});
  }
  return {};
}

}  // namespace butter
