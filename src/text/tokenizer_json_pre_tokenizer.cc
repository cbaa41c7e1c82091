// The pre_tokenizer of a tokenizer.json, as stages.
#include <array>

#include "text/characters.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {
namespace {

using nlohmann::json;
using Kind = PreTokenizerStage::Kind;

// Any value, in full as far as a message has room.
std::string step_text(const json& step) {
  return shown_text(step.dump(-1, ' ', false, json::error_handler_t::replace));
}

class StepReader {
 public:
  Status read(const json& step) {
    const std::string_view type = json_text(json_member(step, "type"));
    if (type == "Sequence") return read_sequence(step);
    if (steps_.byte_level) {
      return fail(StatusCode::kUnsupported,
                  "tokenizer.json: pre_tokenizer step {} stands behind ByteLevel, which must be the last",
                  step_text(step));
    }
    if (type == "ByteLevel") return read_byte_level(step);
    if (type == "Split") return read_split(step);
    if (type == "Metaspace") return read_metaspace(step);
    if (type == "Punctuation") return read_punctuation(step);
    if (type == "Digits") {
      add(digits_stage(json_flag(json_member(step, "individual_digits"))));
    } else if (type == "Whitespace") {
      add(word_stage());
    } else if (type == "WhitespaceSplit") {
      add(white_space_stage());
    } else {
      return fail(StatusCode::kUnsupported, "tokenizer.json: pre_tokenizer step {} is not supported",
                  step_text(step));
    }
    return {};
  }

  PreTokenizerSteps take() { return std::move(steps_); }

 private:
  void add(PreTokenizerStage stage) { steps_.stages.push_back(std::move(stage)); }

  Status read_sequence(const json& step) {
    const json& parts = json_member(step, "pretokenizers");
    if (!parts.is_array()) return wrong(step, "pretokenizers", "an array");
    for (const json& part : parts) BUTTER_TRY(read(part));
    return {};
  }

  // Both flags are on where the file leaves them out.
  Status read_byte_level(const json& step) {
    if (json_flag(json_member(step, "add_prefix_space"), true)) {
      add({Kind::kMark, " ", SplitBehavior::kIsolated, false, MarkScheme::kAlways});
    }
    if (json_flag(json_member(step, "use_regex"), true)) add(byte_level_stage());
    steps_.byte_level = true;
    return {};
  }

  Status read_split(const json& step) {
    const json& pattern = json_member(step, "pattern");
    const std::string_view regex = json_text(json_member(pattern, "Regex"));
    const std::string_view text = json_text(json_member(pattern, "String"));
    if (regex.empty() == text.empty()) return wrong(step, "pattern", "a Regex or a String");
    PreTokenizerStage stage{regex.empty() ? Kind::kText : Kind::kPattern,
                            std::string(regex.empty() ? text : regex)};
    BUTTER_ASSIGN(stage.behavior, behavior_of(step, ""));
    stage.invert = json_flag(json_member(step, "invert"));
    add(std::move(stage));
    return {};
  }

  Status read_punctuation(const json& step) {
    BUTTER_ASSIGN(const SplitBehavior behavior, behavior_of(step, "Isolated"));
    add(punctuation_stage(behavior));
    return {};
  }

  Status read_metaspace(const json& step) {
    const std::string_view mark = json_text(json_member(step, "replacement"));
    if (!is_one_character(mark)) return wrong(step, "replacement", "one character");
    BUTTER_ASSIGN(const MarkScheme scheme, scheme_of(step));
    if (scheme == MarkScheme::kFirst && !steps_.stages.empty()) {
      return fail(
          StatusCode::kUnsupported,
          "tokenizer.json: Metaspace has prepend_scheme \"first\" behind another pre_tokenizer step, which "
          "is not supported");
    }
    add({Kind::kMark, std::string(mark), SplitBehavior::kIsolated, false, scheme});
    if (json_flag(json_member(step, "split"), true)) {
      add({Kind::kText, std::string(mark), SplitBehavior::kMergedWithNext});
    }
    return {};
  }

  // Files from before prepend_scheme have add_prefix_space in its place.
  static Result<MarkScheme> scheme_of(const json& step) {
    const json& scheme = json_member(step, "prepend_scheme");
    const json& prefix = json_member(step, "add_prefix_space");
    if (scheme.is_null()) return json_flag(prefix, true) ? MarkScheme::kAlways : MarkScheme::kNever;
    const std::string_view name = json_text(scheme);
    if (name == "always") return MarkScheme::kAlways;
    if (name == "first") return MarkScheme::kFirst;
    if (name == "never") return MarkScheme::kNever;
    return fail(wrong(step, "prepend_scheme", "\"always\", \"first\" or \"never\"").error());
  }

  static Result<SplitBehavior> behavior_of(const json& step, std::string_view if_missing) {
    constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous},
    }};
    const json& value = json_member(step, "behavior");
    const std::string_view wanted = value.is_null() ? if_missing : json_text(value);
    for (const auto& [name, behavior] : kNames) {
      if (name == wanted) return behavior;
    }
    return fail(wrong(step, "behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous")
                    .error());
  }

  static Status wrong(const json& step, std::string_view member, std::string_view expected) {
    return fail(StatusCode::kCorrupt, "tokenizer.json: {} of pre_tokenizer step {} is {}; {} is expected",
                member, json_shown(step), json_shown(json_member(step, member)), expected);
  }

  PreTokenizerSteps steps_;
};

}  // namespace

Result<PreTokenizerSteps> read_pre_tokenizer_steps(const json& pre_tokenizer) {
  StepReader reader;
  if (!pre_tokenizer.is_null()) BUTTER_TRY(reader.read(pre_tokenizer));
  return reader.take();
}

}  // namespace butter
