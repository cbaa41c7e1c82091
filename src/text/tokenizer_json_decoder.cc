// The decoder of a tokenizer.json, as steps on one token and what happens at the beginning of an answer.
#include "text/characters.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_json_internal.h"

namespace butter {
namespace {

using nlohmann::json;
using Kind = DecodeStep::Kind;

class DecoderReader {
 public:
  Status read(const json& step) {
    const std::string_view type = json_text(json_member(step, "type"));
    if (type == "Sequence") {
      const json& parts = json_member(step, "decoders");
      if (!parts.is_array()) return refuse(step, "an array of decoders is expected");
      for (const json& part : parts) BUTTER_TRY(read(part));
      return {};
    }
    if (type == "Fuse") {
      fused_ = true;
      return {};
    }
    if (type == "Strip" && fused_) return read_strip_of_all(step);
    if (fused_ || made_.byte_level || has_bytes_)
      return refuse(step, "Fuse is expected before Strip, and no more");
    if (type == "ByteLevel" && made_.steps.empty()) {
      made_.byte_level = true;
      return {};
    }
    if (type == "ByteFallback") {
      has_bytes_ = true;
      made_.steps.push_back({Kind::kBytes});
      return {};
    }
    if (type == "Replace") return read_replace(step);
    if (type == "Strip") return read_strip(step);
    if (type == "Metaspace") return read_metaspace(step);
    return refuse(step, "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence are known");
  }

  DecoderSteps take() { return std::move(made_); }

 private:
  static Status refuse(const json& step, std::string_view why) {
    return fail(StatusCode::kUnsupported, "tokenizer.json: decoder {} is not supported here: {}",
                json_shown(step), why);
  }

  Status read_replace(const json& step) {
    const std::string_view from = json_text(json_member(json_member(step, "pattern"), "String"));
    const json& to = json_member(step, "content");
    if (from.empty() || !to.is_string())
      return refuse(step, "a pattern that is a String, and content, are expected");
    made_.steps.push_back({Kind::kReplace, std::string(from), std::string(json_text(to))});
    return {};
  }

  static size_t count_of(const json& value) { return value.is_number_unsigned() ? value.get<size_t>() : 0; }

  Status read_strip(const json& step) {
    const std::string_view content = json_text(json_member(step, "content"));
    if (!is_one_character(content)) return refuse(step, "content of one character is expected");
    made_.steps.push_back({Kind::kStrip, std::string(content), "", count_of(json_member(step, "start")),
                           count_of(json_member(step, "stop"))});
    return {};
  }

  Status read_strip_of_all(const json& step) {
    const size_t start = count_of(json_member(step, "start"));
    if (json_text(json_member(step, "content")) != " " || start > 1 ||
        count_of(json_member(step, "stop")) != 0) {
      return refuse(step, "behind Fuse, one space at the beginning is all that may go");
    }
    if (start == 1) made_.leading_space = LeadingSpace::kOne;
    return {};
  }

  Status read_metaspace(const json& step) {
    const std::string_view mark = json_text(json_member(step, "replacement"));
    if (!is_one_character(mark)) return refuse(step, "a replacement of one character is expected");
    made_.steps.push_back({Kind::kReplace, std::string(mark), " "});
    const json& scheme = json_member(step, "prepend_scheme");
    const bool prepends = scheme.is_null() ? json_flag(json_member(step, "add_prefix_space"), true)
                                           : json_text(scheme) != "never";
    if (prepends) made_.leading_space = LeadingSpace::kAllOfFirstToken;
    return {};
  }

  DecoderSteps made_;
  bool fused_ = false;
  bool has_bytes_ = false;
};

}  // namespace

Result<DecoderSteps> read_decoder_steps(const json& decoder) {
  DecoderReader reader;
  BUTTER_TRY(reader.read(decoder));
  return reader.take();
}

}  // namespace butter
