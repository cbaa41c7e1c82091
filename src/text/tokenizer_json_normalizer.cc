// The normalizer of a tokenizer.json, as steps.
#include <algorithm>

#include "text/base64.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {
namespace {

using nlohmann::json;
using Kind = NormalizerStep::Kind;

constexpr size_t kMaxContentBytes = 256;

Status wrong(const json& step, std::string_view expected) {
  return fail(StatusCode::kUnsupported, "tokenizer.json: normalizer {} is not supported: {}",
              json_shown(step), expected);
}

Result<NormalizerStep> read_replace(const json& step) {
  const json& pattern = json_member(step, "pattern");
  const std::string_view regex = json_text(json_member(pattern, "Regex"));
  const std::string_view text = json_text(json_member(pattern, "String"));
  const json& content = json_member(step, "content");
  if (regex.empty() == text.empty() || !content.is_string() || json_text(content).size() > kMaxContentBytes) {
    return fail(
        wrong(step, "a pattern that is a Regex or a String, and content of at most 256 bytes, are expected")
            .error());
  }
  return NormalizerStep{regex.empty() ? Kind::kReplaceText : Kind::kReplaceRegex,
                        std::string(regex.empty() ? text : regex), std::string(json_text(content))};
}

Result<NormalizerStep> read_prepend(const json& step) {
  const json& content = json_member(step, "prepend");
  if (!content.is_string() || json_text(content).size() > kMaxContentBytes) {
    return fail(wrong(step, "a text to prepend of at most 256 bytes is expected").error());
  }
  return NormalizerStep{Kind::kPrepend, "", std::string(json_text(content))};
}

Result<NormalizerStep> read_precompiled(const json& step) {
  const json& charsmap = json_member(step, "precompiled_charsmap");
  const auto blob = decode_base64(json_text(charsmap));
  if (!charsmap.is_string() || !blob)
    return fail(wrong(step, "a precompiled_charsmap in base64 is expected").error());
  return NormalizerStep{Kind::kCharsMap, "", *blob};
}

Result<NormalizerStep> read_step(const json& step) {
  const std::string_view type = json_text(json_member(step, "type"));
  if (type == "NFC") return NormalizerStep{Kind::kNfc};
  if (type == "NFD") return NormalizerStep{Kind::kNfd};
  if (type == "NFKC") return NormalizerStep{Kind::kNfkc};
  if (type == "NFKD") return NormalizerStep{Kind::kNfkd};
  if (type == "Lowercase") return NormalizerStep{Kind::kLowercase};
  if (type == "StripAccents") return NormalizerStep{Kind::kStripAccents};
  if (type == "Replace") return read_replace(step);
  if (type == "Precompiled") return read_precompiled(step);
  if (type == "Prepend") return read_prepend(step);
  if (type == "Strip") {
    return NormalizerStep{Kind::kStrip, "", "", json_flag(json_member(step, "strip_left"), true),
                          json_flag(json_member(step, "strip_right"), true)};
  }
  return fail(wrong(step,
                    "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Precompiled and "
                    "Sequence are known")
                  .error());
}

Status add_steps(const json& normalizer, std::vector<NormalizerStep>* steps) {
  if (json_text(json_member(normalizer, "type")) != "Sequence") {
    BUTTER_ASSIGN(NormalizerStep step, read_step(normalizer));
    steps->push_back(std::move(step));
    return {};
  }
  const json& parts = json_member(normalizer, "normalizers");
  if (!parts.is_array()) return wrong(normalizer, "an array of normalizers is expected");
  for (const json& part : parts) BUTTER_TRY(add_steps(part, steps));
  return {};
}

}  // namespace

Result<std::vector<NormalizerStep>> read_normalizer_steps(const json& normalizer) {
  std::vector<NormalizerStep> steps;
  if (!normalizer.is_null()) BUTTER_TRY(add_steps(normalizer, &steps));
  return steps;
}

bool may_shorten_the_beginning(std::span<const NormalizerStep> steps) {
  return std::ranges::any_of(steps, [](const NormalizerStep& step) {
    const bool replaces = step.kind == Kind::kReplaceText || step.kind == Kind::kReplaceRegex;
    return (replaces && step.content.empty()) || (step.kind == Kind::kStrip && step.left) ||
           step.kind == Kind::kStripAccents;
  });
}

}  // namespace butter
