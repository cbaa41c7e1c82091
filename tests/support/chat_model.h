// ChatModel: the tiny Llama of tests/data/fixtures as a GGUF file with a tokenizer and a chat template, for
// tests of what needs both. Its words mean nothing.
//
// A token for each byte that UTF-8 has, and three special ones; 256 ids have logits, so the last ten stand
// for no token.
#pragma once

#include <string>
#include <vector>

#include "support/fixture_gguf.h"

namespace butter {

constexpr int32_t kChatPadId = 0;
constexpr int32_t kChatStartId = 1;  // <|im_start|>
constexpr int32_t kChatEndId = 2;    // <|im_end|>, which ends a turn
constexpr int32_t kChatTokens = 246;

// Roles and contents between the special tokens; tools, tool calls and the variable enable_thinking are used.
constexpr const char* kChatTemplate = R"({%- if tools -%}
<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content if message.content is not none }}
{%- for call in message.tool_calls -%}
call {{ call.function.name }} {{ call.function.arguments | tojson }}
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think></think>
{% endif -%}
{%- endif -%}
)";

struct ChatModelOptions {
  const char* chat_template = kChatTemplate;  // nullptr: none
  std::vector<int32_t> unused = {};           // tokens that the file calls unused
  int32_t tokens = kChatTokens;               // the first ones; bytes beyond have no token
};

namespace chat_model {

// In the byte alphabet's order of ids; bytes that no UTF-8 text has are left out.
inline std::vector<int> bytes_with_token() {
  std::vector<int> bytes;
  for (int byte = 0; byte < 0xf5; ++byte) {
    if (byte != 0xc0 && byte != 0xc1) bytes.push_back(byte);
  }
  return bytes;
}

inline std::string utf8_of(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// A byte's character of GPT-2's alphabet: itself where that is printable, else the next from U+0100 on.
inline std::string spelling_of(int byte) {
  const auto is_printable = [](int b) { return (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad); };
  if (is_printable(byte)) return utf8_of(byte);
  int replaced = 0;
  for (int before = 0; before < byte; ++before) replaced += is_printable(before) ? 0 : 1;
  return utf8_of(0x100 + replaced);
}

}  // namespace chat_model

inline void write_chat_model(const std::string& path, const ChatModelOptions& options = {}) {
  std::vector<std::string> tokens = {"<|pad|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), 3);
  for (const int byte : chat_model::bytes_with_token()) tokens.push_back(chat_model::spelling_of(byte));
  tokens.resize(static_cast<size_t>(options.tokens));
  types.resize(tokens.size(), 1);
  for (const int32_t id : options.unused) types[static_cast<size_t>(id)] = 5;
  FixtureGgufOptions file;
  file.finish = [&](GgufWriter& writer) {
    writer.string("tokenizer.ggml.model", "gpt2");
    writer.string("tokenizer.ggml.pre", "gpt-2");
    writer.strings("tokenizer.ggml.tokens", tokens);
    writer.numbers<int32_t>("tokenizer.ggml.token_type", types);
    writer.value<uint32_t>("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(kChatEndId));
    if (options.chat_template != nullptr) writer.string("tokenizer.chat_template", options.chat_template);
  };
  write_fixture_gguf(load_fixture("llama"), path, file);
}

}  // namespace butter
