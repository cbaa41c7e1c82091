// A chat template from a stranger's file, rendered with a conversation: a text with spans that are its own,
// or an Error, within the bounds.
#include <string>
#include <vector>

#include "core/check.h"
#include "fuzz/touch_bytes.h"
#include "text/chat_template.h"
#include "text/jinja_json.h"

namespace butter {
namespace {

using jinja::Provenance;
using jinja::Value;

constexpr const char* kMessages = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": " Hi <|im_end|> é "},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "a1", "type": "function",
    "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null], "y": "z"}}}]},
  {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "a1"},
  {"role": "assistant", "content": "<think>\nHm\n</think>\n\nOk", "reasoning_content": "Hm"}])";
constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters":
  {"type": "object", "properties": {"x": {"type": "array"}}, "required": ["x"]}}}])";

// What a fuzzer has time for.
jinja::Limits small_limits() {
  jinja::Limits limits;
  limits.max_steps = 50'000;
  limits.max_output_bytes = size_t{1} << 18;
  limits.max_allocated_bytes = size_t{4} << 20;
  limits.max_repeated_bytes = size_t{1} << 14;
  limits.max_range = 1000;
  return limits;
}

void check(const RenderedChat& chat) {
  size_t end = 0;
  for (const jinja::Span& span : chat.content) {
    BUTTER_CHECK(span.begin >= end && span.begin < span.end && span.end <= chat.text.size());
    end = span.end;
  }
  touch(chat.text);
}

}  // namespace
}  // namespace butter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace butter;
  static const auto* const kConversation =
      new Value(jinja::value_from_json(kMessages, Provenance::kContent).value());
  static const auto* const kToolList =
      new Value(jinja::value_from_json(kTools, Provenance::kContent).value());
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::parse(source, small_limits());
  if (!parsed) {
    touch(parsed.error().message());
    return 0;
  }
  ChatTemplateOptions options;
  options.bos_token = "<s>";
  options.now.emplace();
  for (const bool with_tools : {false, true}) {
    if (with_tools) options.arguments = {{"tools", *kToolList}, {"documents", *kToolList}};
    const auto chat = parsed->render(*kConversation, options);
    if (chat) {
      check(*chat);
    } else {
      touch(chat.error().message());
    }
  }
  return 0;
}
