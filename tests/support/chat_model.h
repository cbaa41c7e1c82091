// ChatModel: the tiny Llama of tests/data/fixtures as a GGUF file with a tokenizer and a chat template, for
// tests of what needs both. Its words mean nothing.
//
// 256 ids have logits, and byte_vocabulary() has fewer tokens: the last ten stand for none.
#pragma once

#include <string>
#include <vector>

#include "support/byte_vocabulary.h"
#include "support/fixture_gguf.h"

namespace butter {

struct ChatModelOptions {
  const char* chat_template = kChatTemplate;  // nullptr: none
  const char* tool_template = nullptr;        // another for requests with tools
  std::vector<int32_t> unused = {};           // tokens that the file calls unused
};

inline void write_chat_model(const std::string& path, const ChatModelOptions& options = {}) {
  std::vector<std::string> tokens = byte_vocabulary();
  std::vector<int32_t> types(3, 3);
  types.resize(tokens.size(), 1);
  for (const int32_t id : options.unused) types[static_cast<size_t>(id)] = 5;
  FixtureGgufOptions file;
  file.finish = [&](GgufWriter& writer) {
    writer.string("tokenizer.ggml.model", "gpt2");
    writer.string("tokenizer.ggml.pre", "gpt-2");
    writer.strings("tokenizer.ggml.tokens", tokens);
    writer.numbers<int32_t>("tokenizer.ggml.token_type", types);
    writer.value<uint32_t>("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(kByteEndId));
    if (options.chat_template != nullptr) writer.string("tokenizer.chat_template", options.chat_template);
    if (options.tool_template != nullptr)
      writer.string("tokenizer.chat_template.tool_use", options.tool_template);
  };
  write_fixture_gguf(load_fixture("llama"), path, file);
}

}  // namespace butter
