// A vocabulary and a chat template for tests: three special tokens, and a token for each byte that UTF-8 text
// may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace butter {

constexpr int32_t kBytePadId = 0;
constexpr int32_t kByteStartId = 1;  // <|im_start|>
constexpr int32_t kByteEndId = 2;    // <|im_end|>
constexpr int32_t kByteTokens = 246;

namespace byte_vocabulary_internal {

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

}  // namespace byte_vocabulary_internal

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

// By id, as GGUF and tokenizer.json spell them.
inline std::vector<std::string> byte_vocabulary() {
  std::vector<std::string> tokens = {"<|pad|>", "<|im_start|>", "<|im_end|>"};
  for (int byte = 0; byte < 0xf5; ++byte) {
    if (byte != 0xc0 && byte != 0xc1) tokens.push_back(byte_vocabulary_internal::spelling_of(byte));
  }
  return tokens;
}

}  // namespace butter
