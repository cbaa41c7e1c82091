// The GGUF header: whatever the bytes, a Gguf whose views lie inside them, or an Error.
#include "checkpoint/gguf.h"
#include "fuzz/touch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto gguf = butter::Gguf::parse(file);
  if (!gguf) return 0;
  butter::touch(gguf->metadata());
  butter::touch(gguf->tensors());
  return 0;
}
