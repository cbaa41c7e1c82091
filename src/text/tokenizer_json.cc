// Reads Hugging Face's tokenizer.json into a TokenizerSpec. What it does not know, it refuses by name: a
// step left out would give other ids without a word.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {

using nlohmann::json;

namespace {

constexpr std::string_view kFile = "tokenizer.json";

// Fills a spec from the three documents, which must outlive it.
class SpecReader {
 public:
  SpecReader(const json& tokenizer, const json& config, const json& generation)
      : tokenizer_(tokenizer), config_(config), generation_(generation) {}

  Result<TokenizerSpec> read() {
    BUTTER_TRY(read_model());
    BUTTER_TRY(read_normalizer());
    BUTTER_TRY(read_added_tokens());
    BUTTER_TRY(check_holes());
    BUTTER_TRY(read_pre_tokenizer());
    BUTTER_TRY(read_decoder());
    BUTTER_TRY(check_byte_fallback());
    BUTTER_TRY(read_post_processor(json_member(tokenizer_, "post_processor")));
    BUTTER_TRY(read_config());
    BUTTER_TRY(read_unknown());
    return std::move(spec_);
  }

 private:
  Status read_model();
  Status read_merge_model(const json& model);
  Status read_unigram_model(const json& model);
  Status read_unknown();
  Status read_normalizer();
  Status read_added_tokens();
  Status check_holes() const;
  Status read_merges(const json& merges);
  Status read_pre_tokenizer();
  Status read_decoder();
  Status check_byte_fallback() const;
  Status read_post_processor(const json& step);
  Status read_template(const json& step);
  Result<int64_t> template_id(const json& step, const json& piece) const;
  Status read_config();
  const json* added_token(std::string_view text) const;
  std::optional<int64_t> vocabulary_id(std::string_view text) const;
  bool is_byte_level() const { return spec_.spelling == Spelling::kByteAlphabet; }

  const json& tokenizer_;
  const json& config_;
  const json& generation_;
  TokenizerSpec spec_;
  std::unordered_map<std::string_view, int64_t> vocabulary_;  // the model's own
};

Status SpecReader::read_model() {
  const json& model = json_member(tokenizer_, "model");
  const std::string_view type = json_text(json_member(model, "type"));
  spec_.byte_fallback = json_flag(json_member(model, "byte_fallback"));
  if (type == "Unigram") {
    BUTTER_TRY(read_unigram_model(model));
  } else if (type == "BPE") {
    BUTTER_TRY(read_merge_model(model));
  } else {
    return fail(StatusCode::kUnsupported,
                "tokenizer.json: model.type is {}; \"BPE\" or \"Unigram\" is expected",
                json_shown(json_member(model, "type")));
  }
  for (size_t id = 0; id < spec_.tokens.size(); ++id) vocabulary_.emplace(spec_.tokens[id], id);
  return {};
}

Status SpecReader::read_merge_model(const json& model) {
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
  spec_.fuse_unknown = json_flag(json_member(model, "fuse_unk"));
  spec_.ignore_merges = json_flag(json_member(model, "ignore_merges"));
  const json& vocabulary = json_member(model, "vocab");
  if (!vocabulary.is_object()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: model.vocab is {}; an object is expected",
                json_shown(vocabulary));
  }
  for (auto token = vocabulary.begin(); token != vocabulary.end(); ++token) {
    BUTTER_TRY(place_token(token.key(), json_id(*token), kFile, &spec_));
  }
  return read_merges(json_member(model, "merges"));
}

Status SpecReader::read_unigram_model(const json& model) {
  spec_.kind = WordModelKind::kUnigram;
  const json& vocabulary = json_member(model, "vocab");
  if (!vocabulary.is_array()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: model.vocab is {}; an array is expected",
                json_shown(vocabulary));
  }
  for (const json& token : vocabulary) {
    if (!token.is_array() || token.size() != 2 || !token[0].is_string() || !token[1].is_number()) {
      return fail(StatusCode::kCorrupt,
                  "tokenizer.json: entry {} of model.vocab is {}; [text, score] is expected",
                  spec_.tokens.size(), json_shown(token));
    }
    BUTTER_TRY(place_token(json_text(token[0]), static_cast<int64_t>(spec_.tokens.size()), kFile, &spec_));
    spec_.scores.back() = token[1].get<double>();
  }
  return {};
}

// The model's own unknown token, which alone is given for what has none.
Status SpecReader::read_unknown() {
  const json& model = json_member(tokenizer_, "model");
  std::optional<int64_t> id;
  if (spec_.kind == WordModelKind::kUnigram) {
    const json& unknown = json_member(model, "unk_id");
    id = json_id(unknown);
    if (!id) {
      return fail(StatusCode::kUnsupported, "tokenizer.json: model.unk_id is {}; a token id is expected",
                  json_shown(unknown));
    }
  } else {
    const std::string_view unknown = json_text(json_member(model, "unk_token"));
    if (unknown.empty()) return {};
    id = vocabulary_id(unknown);
    if (!id) {
      return fail(StatusCode::kCorrupt, "tokenizer.json: model.unk_token is {}, which is not a token",
                  shown_text(unknown));
    }
  }
  spec_.unk_id = id;
  spec_.unknown_for_missing = true;
  return {};
}

std::optional<int64_t> SpecReader::vocabulary_id(std::string_view text) const {
  const auto found = vocabulary_.find(text);
  if (found == vocabulary_.end()) return std::nullopt;
  return found->second;
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
  if (steps.byte_level != is_byte_level()) {
    const auto where = [](bool there) { return there ? "in" : "not in"; };
    return fail(
        StatusCode::kUnsupported,
        "tokenizer.json: ByteLevel is {} the pre_tokenizer and {} the decoder; both or neither are expected",
        where(is_byte_level()), where(steps.byte_level));
  }
  spec_.decode_steps = std::move(steps.steps);
  spec_.leading_space = steps.leading_space;
  return {};
}

Status SpecReader::read_added_tokens() {
  const json& added = json_member(tokenizer_, "added_tokens");
  if (added.is_null()) return {};
  if (!added.is_array()) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: added_tokens is {}; an array is expected",
                json_shown(added));
  }
  for (const json& token : added) {
    const bool is_word_token = vocabulary_id(json_text(json_member(token, "content"))).has_value();
    BUTTER_TRY(add_added_token(token, json_id(json_member(token, "id")), is_word_token, kFile, &spec_));
  }
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

Status SpecReader::read_merges(const json& merges) {
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
  spec_.spelling = steps.byte_level ? Spelling::kByteAlphabet : Spelling::kText;
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
  if (!is_byte_level() || !spec_.byte_fallback) return {};
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
  const std::optional<int64_t> id = ids.is_array() && ids.size() == 1 ? json_id(ids[0]) : std::nullopt;
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

Status SpecReader::read_config() {
  const auto find = [&](std::string_view text) -> std::optional<int64_t> {
    if (const json* token = added_token(text)) return json_id(json_member(*token, "id"));
    return vocabulary_id(text);
  };
  BUTTER_TRY(read_tokenizer_config(config_, find, &spec_));  // what the post-processor adds comes first
  return read_generation_config(generation_, &spec_);
}

}  // namespace

Result<VocabularyTokenizer> VocabularyTokenizer::from_tokenizer_json(std::string_view tokenizer_json,
                                                                     const TokenizerFiles& files) {
  BUTTER_ASSIGN(const json tokenizer, parse_tokenizer_file(tokenizer_json, kFile));
  BUTTER_ASSIGN(const json config, parse_if_there(files.tokenizer_config, "tokenizer_config.json"));
  BUTTER_ASSIGN(const json generation, parse_if_there(files.generation_config, "generation_config.json"));
  BUTTER_ASSIGN(const TokenizerSpec spec, SpecReader(tokenizer, config, generation).read());
  auto made = create(spec);
  if (!made) return fail(made.error().within("tokenizer.json"));
  return made;
}

}  // namespace butter
