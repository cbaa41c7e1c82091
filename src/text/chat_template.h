// ChatTemplate: turns a conversation into the text that a model was trained to continue.
//
// Templates are Jinja, as published with checkpoints (tokenizer.chat_template in GGUF, chat_template in
// tokenizer_config.json), with the settings that those assume: trim_blocks, lstrip_blocks, break and
// continue,
// {% generation %}, raise_exception, strftime_now, tojson without HTML escapes. What Butter's Jinja does not
// know is an error that names it and its line, when the template is parsed where that is possible.
//
// Special tokens and who wrote them. The text of a rendering mixes the template's words with what people
// wrote, and only the template may say <|im_end|>. So rendering also returns `content`: the spans of bytes
// that derive from the messages (content and role) and from arguments made with Value::content(). The caller
// encodes the whole text, and takes for a special token only what does not touch a span: not even one byte of
// it may be content. It must not cut the text at the spans for any other purpose, so that ordinary text
// around them is tokenised as it would be without them.
//   Spans are exact through concatenation, slicing, case, trimming, replacing, joining, splitting,
//   formatting, JSON and block captures. Where content decides which of the template's words are left over
//   (replacing what content says), the whole result counts as content. What is only chosen by content (an if,
//   a lookup in a dict) is the template's own word, as are numbers and truth values computed from content.
//
// Bounds: nesting, steps, output, memory (jinja::Limits). Value type; constant after parse, and render() may
// be called by several threads at once.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "butter/chat.h"
#include "text/jinja_limits.h"
#include "text/jinja_value.h"

namespace butter {

namespace jinja {
struct Program;
}

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  // Undefined in the template if not given.
  std::optional<std::string> bos_token = std::nullopt;
  std::optional<std::string> eos_token = std::nullopt;
  // More variables by name ("tools", "enable_thinking"); they replace the above. Built from Value::text,
  // Value::content, numbers, lists and dicts, by jinja::value_from_json, or by template_variables().
  std::vector<std::pair<std::string, jinja::Value>> arguments = {};
  // What strftime_now() shows; the local time if not given.
  std::optional<std::tm> now = std::nullopt;
};

struct RenderedChat {
  std::string text;
  std::vector<jinja::Span> content;  // sorted, disjoint, not touching
};

class ChatTemplate {
 public:
  // kInvalidArgument for a template that is not well formed, kUnsupported for what Butter does not do,
  // kLimit, kCorrupt (not UTF-8).
  static Result<ChatTemplate> parse(std::string_view source, const jinja::Limits& limits = {});

  // The template's own refusal (raise_exception) is kInvalidArgument, with its message.
  Result<RenderedChat> render(const std::vector<Message>& messages, const ChatTemplateOptions& options) const;
  // The same with the messages as a list of dicts. Their strings are content if they were made so.
  Result<RenderedChat> render(const jinja::Value& messages, const ChatTemplateOptions& options) const;

 private:
  ChatTemplate(std::shared_ptr<const jinja::Program> program, const jinja::Limits& limits)
      : program_(std::move(program)), limits_(limits) {}

  std::shared_ptr<const jinja::Program> program_;
  jinja::Limits limits_;
};

}  // namespace butter
