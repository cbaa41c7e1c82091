// tokenizer.model: a SentencePiece model or a tiktoken file. Whatever its bytes, a tokenizer that gives ids
// for any text, or an Error.
#include "fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  butter::use(butter::VocabularyTokenizer::from_model_file(bytes));
  return 0;
}
