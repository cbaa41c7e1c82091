// tokenizer.json, with tokenizer_config.json behind a zero byte if there is one; and the same text as a
// tekken.json. Whatever it says, a tokenizer that gives ids for any text, or an Error.
#include "fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  const std::string_view config = text.substr(std::min(end + 1, size));
  const butter::TokenizerFiles files = {.tokenizer_config = config};
  butter::use(butter::VocabularyTokenizer::from_tokenizer_json(text.substr(0, end), files));
  butter::use(butter::VocabularyTokenizer::from_tekken(text.substr(0, end), files));
  return 0;
}
