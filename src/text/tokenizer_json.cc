// Reads Hugging Face's tokenizer.json into a TokenizerSpec. What it does not know, it refuses by name: a
// step left out would give other ids without a word.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"
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

namespace {

constexpr int kMaxDepth = 32;  // of nested objects and arrays

Result<json> parse(std::string_view text, std::string_view file) {
  if (text.size() > BpeTokenizer::kMaxJsonBytes) {
    return fail(StatusCode::kLimit, "{} has {} bytes; at most {} are expected", file, text.size(),
                BpeTokenizer::kMaxJsonBytes);
  }
  bool too_deep = false;
  const auto limit_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) too_deep = true;
    return depth <= kMaxDepth;
  };
  json parsed = json::parse(text.begin(), text.end(), limit_depth, /*allow_exceptions=*/false);
  if (too_deep) return fail(StatusCode::kLimit, "{} is nested deeper than {} levels", file, kMaxDepth);
  if (!parsed.is_object()) return fail(StatusCode::kCorrupt, "{} is not a JSON object", file);
  return parsed;
}

std::optional<int64_t> id_of(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > BpeTokenizer::kMaxTokens) return std::nullopt;
  return value.get<int64_t>();
}

// Fills a spec from the three documents, which must outlive it.
class SpecReader {
 public:
  SpecReader(const json& tokenizer, const json& config, const json& generation)
      : tokenizer_(tokenizer), config_(config), generation_(generation) {}

  Result<TokenizerSpec> read() {
    BUTTER_TRY(check_model());
    BUTTER_TRY(read_normalizer());
    BUTTER_TRY(read_vocabulary());
    BUTTER_TRY(read_added_tokens());
    BUTTER_TRY(check_holes());
    BUTTER_TRY(read_merges());
    BUTTER_TRY(read_pre_tokenizer());
    BUTTER_TRY(read_decoder());
    BUTTER_TRY(check_byte_fallback());
    BUTTER_TRY(read_post_processor(json_member(tokenizer_, "post_processor")));
    BUTTER_TRY(read_config());
    BUTTER_TRY(read_generation_config());
    return std::move(spec_);
  }

 private:
  Status check_model();
  Status read_normalizer();
  Status read_vocabulary();
  Status read_added_tokens();
  Status read_added_token(const json& token);
  Status place_token(std::string_view text, std::optional<int64_t> id);
  Status check_holes() const;
  Status read_merges();
  Status read_pre_tokenizer();
  Status read_decoder();
  Status check_byte_fallback() const;
  Status read_post_processor(const json& step);
  Status read_template(const json& step);
  Result<int64_t> template_id(const json& step, const json& piece) const;
  Status read_config();
  Status read_generation_config();
  Result<std::optional<int64_t>> named_id(const char* key) const;
  const json* added_token(std::string_view text) const;

  const json& tokenizer_;
  const json& config_;
  const json& generation_;
  TokenizerSpec spec_;
};

Status SpecReader::check_model() {
  const json& model = json_member(tokenizer_, "model");
  if (json_text(json_member(model, "type")) != "BPE") {
    return fail(StatusCode::kUnsupported, "tokenizer.json: model.type is {}; \"BPE\" is expected",
                json_shown(json_member(model, "type")));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& value = json_member(model, key);
    if (value.is_null() || (value.is_string() && json_text(value).empty())) continue;
    return fail(StatusCode::kUnsupported, "tokenizer.json: model.{} is {}; none is expected", key,
                json_shown(value));
  }
  const json& dropout = json_member(model, "dropout");
  if (!dropout.is_null() && dropout != 0) {
    return fail(StatusCode::kUnsupported, "tokenizer.json: model.dropout is {}; none is expected",
                json_shown(dropout));
  }
  spec_.byte_fallback = json_flag(json_member(model, "byte_fallback"));
  spec_.fuse_unknown = json_flag(json_member(model, "fuse_unk"));
  spec_.ignore_merges = json_flag(json_member(model, "ignore_merges"));
  return {};
}

Status SpecReader::read_normalizer() {
  BUTTER_ASSIGN(spec_.normalizer, read_normalizer_steps(json_member(tokenizer_, "normalizer")));
  return {};
}

Status SpecReader::read_decoder() {
  const json& decoder = json_member(tokenizer_, "decoder");
  if (decoder.is_null()) {
    return fail(StatusCode::kUnsupported, "tokenizer.json: decoder is missing; one is expected");
  }
  BUTTER_ASSIGN(DecoderSteps steps, read_decoder_steps(decoder));
  if (steps.byte_level != spec_.byte_level) {
    const auto where = [](bool there) { return there ? "in" : "not in"; };
    return fail(
        StatusCode::kUnsupported,
        "tokenizer.json: ByteLevel is {} the pre_tokenizer and {} the decoder; both or neither are expected",
        where(spec_.byte_level), where(steps.byte_level));
  }
  spec_.decode_steps = std::move(steps.steps);
  spec_.leading_space = steps.leading_space;
  return {};
}

Status SpecReader::place_token(std::string_view text, std::optional<int64_t> id) {
  if (!id || *id < 0 || *id >= static_cast<int64_t>(BpeTokenizer::kMaxTokens)) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: the id of token {} is not a number from 0 to {}",
                shown_text(text), BpeTokenizer::kMaxTokens - 1);
  }
  const auto at = static_cast<size_t>(*id);
  if (at >= spec_.tokens.size()) {
    spec_.tokens.resize(at + 1);
    spec_.types.resize(at + 1, TokenType::kNormal);
  }
  std::string_view& place = spec_.tokens[at];
  if (place.data() != nullptr && place != text) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: id {} is both {} and {}", *id, shown_text(place),
                shown_text(text));
  }
  place = text;
  return {};
}

Status SpecReader::read_vocabulary() {
  const json& vocabulary = json_member(json_member(tokenizer_, "model"), "vocab");
  if (!vocabulary.is_object()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: model.vocab is {}; an object is expected",
                json_shown(vocabulary));
  }
  for (auto token = vocabulary.begin(); token != vocabulary.end(); ++token) {
    BUTTER_TRY(place_token(token.key(), id_of(*token)));
  }
  return {};
}

Status SpecReader::read_added_token(const json& token) {
  const json& content = json_member(token, "content");
  const std::string_view text = json_text(content);
  if (text.empty()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: an added token's content is {}; a text is expected",
                json_shown(content));
  }
  const std::optional<int64_t> id = id_of(json_member(token, "id"));
  BUTTER_TRY(place_token(text, id));
  spec_.types[static_cast<size_t>(*id)] =
      json_flag(json_member(token, "special")) ? TokenType::kControl : TokenType::kUserDefined;
  const auto flag = [&](const char* name) { return json_flag(json_member(token, name)); };
  const json& vocabulary = json_member(json_member(tokenizer_, "model"), "vocab");
  spec_.added_rules.push_back({*id, flag("lstrip"), flag("rstrip"), flag("single_word"), flag("normalized"),
                               vocabulary.contains(text)});
  return {};
}

Status SpecReader::read_added_tokens() {
  const json& added = json_member(tokenizer_, "added_tokens");
  if (added.is_null()) return {};
  if (!added.is_array()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: added_tokens is {}; an array is expected",
                json_shown(added));
  }
  for (const json& token : added) BUTTER_TRY(read_added_token(token));
  return {};
}

// create() would see a hole too, but not tell it from an empty token.
Status SpecReader::check_holes() const {
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    if (spec_.tokens[id].data() != nullptr) continue;
    return fail(StatusCode::kCorrupt,
                "tokenizer.json: no token has id {}; ids 0 to {} are expected to have one each", id,
                spec_.tokens.size() - 1);
  }
  return {};
}

Status SpecReader::read_merges() {
  const json& merges = json_member(json_member(tokenizer_, "model"), "merges");
  if (!merges.is_array()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: model.merges is {}; an array is expected",
                json_shown(merges));
  }
  for (const json& merge : merges) {
    const size_t rank = spec_.merges.size() + spec_.merge_pairs.size();
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if ((!is_pair && !merge.is_string()) || (is_pair ? spec_.merges.size() : spec_.merge_pairs.size()) > 0) {
      return fail(
          StatusCode::kCorrupt,
          "tokenizer.json: merge {} is {}; \"left right\" or a pair is expected, for all of them alike", rank,
          json_shown(merge));
    }
    if (is_pair) {
      spec_.merge_pairs.emplace_back(json_text(merge[0]), json_text(merge[1]));
    } else {
      spec_.merges.push_back(json_text(merge));
    }
  }
  return {};
}

Status SpecReader::read_pre_tokenizer() {
  BUTTER_ASSIGN(PreTokenizerSteps steps, read_pre_tokenizer_steps(json_member(tokenizer_, "pre_tokenizer")));
  spec_.byte_level = steps.byte_level;
  const bool marks_first = !steps.stages.empty() && steps.stages[0].scheme == MarkScheme::kFirst;
  if (marks_first && may_shorten_the_beginning(spec_.normalizer)) {
    return fail(
        StatusCode::kUnsupported,
        "tokenizer.json: Metaspace has prepend_scheme \"first\" behind a normalizer that takes characters "
        "away, which is not supported");
  }
  spec_.pre_tokenizer = PreTokenizer::name_of(steps.stages).value_or("tokenizer.json");
  spec_.stages = std::move(steps.stages);
  return {};
}

// A spelled byte without a token would be looked up as the bytes of its spelling.
Status SpecReader::check_byte_fallback() const {
  if (!spec_.byte_level || !spec_.byte_fallback) return {};
  for (const std::string_view token : spec_.tokens) {
    if (byte_of_token(token) < 0) continue;
    return fail(StatusCode::kUnsupported,
                "tokenizer.json: model.byte_fallback with ByteLevel and a token {} is not supported",
                shown_text(token));
  }
  return {};
}

Status SpecReader::read_post_processor(const json& step) {
  const std::string_view type = json_text(json_member(step, "type"));
  if (step.is_null() || type == "ByteLevel") return {};  // ByteLevel trims offsets, and no ids
  if (type == "Sequence") {
    for (const json& part : json_member(step, "processors")) BUTTER_TRY(read_post_processor(part));
    return {};
  }
  if (type == "TemplateProcessing") return read_template(step);
  return fail(StatusCode::kUnsupported, "tokenizer.json: post_processor {} is not supported",
              json_shown(step));
}

// The id of a special token that stands in a template.
Result<int64_t> SpecReader::template_id(const json& step, const json& piece) const {
  const std::string_view name = json_text(json_member(json_member(piece, "SpecialToken"), "id"));
  const json& ids = json_member(json_member(json_member(step, "special_tokens"), name), "ids");
  const std::optional<int64_t> id = ids.is_array() && ids.size() == 1 ? id_of(ids[0]) : std::nullopt;
  if (!id) {
    return fail(StatusCode::kUnsupported, "tokenizer.json: the post-processor's token {} is not one token",
                shown_text(name));
  }
  return *id;
}

// [BOS] A [EOS] is all that a template for one text may be.
Status SpecReader::read_template(const json& step) {
  const json& single = json_member(step, "single");
  bool seen_text = false;
  if (single.is_array() && single.size() <= 3) {
    for (const json& piece : single) {
      if (!json_member(piece, "Sequence").is_null()) {
        if (seen_text) break;
        seen_text = true;
        continue;
      }
      BUTTER_ASSIGN(const int64_t id, template_id(step, piece));
      bool& adds = seen_text ? spec_.add_eos : spec_.add_bos;
      if (std::exchange(adds, true)) {
        return fail(StatusCode::kUnsupported,
                    "tokenizer.json: the post-processor adds two tokens on one side");
      }
      (seen_text ? spec_.eos_id : spec_.bos_id) = id;
    }
  }
  if (seen_text) return {};
  return fail(StatusCode::kUnsupported,
              "tokenizer.json: post_processor template {} is not supported; BOS, the text, EOS are",
              json_shown(single));
}

const json* SpecReader::added_token(std::string_view text) const {
  const json& added = json_member(tokenizer_, "added_tokens");
  if (!added.is_array()) return nullptr;
  const auto found = std::ranges::find_if(
      added, [&](const json& token) { return json_text(json_member(token, "content")) == text; });
  return found == added.end() ? nullptr : &*found;
}

// The id of the token that a key of tokenizer_config.json names, as a text or as an object with one.
Result<std::optional<int64_t>> SpecReader::named_id(const char* key) const {
  const json& value = json_member(config_, key);
  if (value.is_null()) return std::optional<int64_t>();
  const std::string_view text =
      value.is_object() ? json_text(json_member(value, "content")) : json_text(value);
  if (const json* token = added_token(text)) return id_of(json_member(*token, "id"));
  const std::optional<int64_t> id =
      id_of(json_member(json_member(json_member(tokenizer_, "model"), "vocab"), text));
  if (!id) {
    return fail(StatusCode::kCorrupt, "tokenizer_config.json: {} is {}, which is not a token", key,
                json_shown(value));
  }
  return id;
}

Status SpecReader::read_config() {
  const auto set = [&](const char* key, std::optional<int64_t>* id) -> Status {
    BUTTER_ASSIGN(const std::optional<int64_t> named, named_id(key));
    if (named && !*id) *id = named;  // what the post-processor adds comes first
    return {};
  };
  BUTTER_TRY(set("bos_token", &spec_.bos_id));
  BUTTER_TRY(set("eos_token", &spec_.eos_id));
  BUTTER_TRY(set("unk_token", &spec_.unk_id));
  BUTTER_TRY(set("pad_token", &spec_.pad_id));
  BUTTER_ASSIGN(const std::optional<int64_t> end, named_id("eos_token"));
  if (end) spec_.end_ids.push_back(*end);
  const json& add_bos = json_member(config_, "add_bos_token");
  if (add_bos.is_boolean()) spec_.add_bos = add_bos.get<bool>();
  const json& add_eos = json_member(config_, "add_eos_token");
  if (add_eos.is_boolean()) spec_.add_eos = add_eos.get<bool>();

  // The model's own unknown token, which alone is given for bytes that have none.
  const std::string_view unknown = json_text(json_member(json_member(tokenizer_, "model"), "unk_token"));
  if (unknown.empty()) return {};
  const std::optional<int64_t> id =
      id_of(json_member(json_member(json_member(tokenizer_, "model"), "vocab"), unknown));
  if (!id) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: model.unk_token is {}, which is not a token",
                shown_text(unknown));
  }
  spec_.unk_id = id;
  spec_.unknown_for_missing = true;
  return {};
}

Status SpecReader::read_generation_config() {
  const json& eos = json_member(generation_, "eos_token_id");
  if (eos.is_null()) return {};
  const json list = eos.is_array() ? eos : json::array({eos});
  for (const json& value : list) {
    const std::optional<int64_t> id = id_of(value);
    if (!id) {
      return fail(StatusCode::kCorrupt, "generation_config.json: eos_token_id is {}; token ids are expected",
                  json_shown(eos));
    }
    spec_.end_ids.push_back(*id);
  }
  if (!spec_.eos_id && !spec_.end_ids.empty()) spec_.eos_id = spec_.end_ids.front();
  return {};
}

Result<json> parse_if_there(std::string_view text, std::string_view file) {
  if (text.empty()) return json();
  return parse(text, file);
}

}  // namespace

Result<BpeTokenizer> BpeTokenizer::from_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config_json,
                                                       std::string_view generation_config_json) {
  BUTTER_ASSIGN(const json tokenizer, parse(tokenizer_json, "tokenizer.json"));
  BUTTER_ASSIGN(const json config, parse_if_there(tokenizer_config_json, "tokenizer_config.json"));
  BUTTER_ASSIGN(const json generation, parse_if_there(generation_config_json, "generation_config.json"));
  BUTTER_ASSIGN(const TokenizerSpec spec, SpecReader(tokenizer, config, generation).read());
  auto made = create(spec);
  if (!made) return fail(made.error().within("tokenizer.json"));
  return made;
}

}  // namespace butter
