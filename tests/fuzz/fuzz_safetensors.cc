// The safetensors header: whatever the bytes, a file whose views lie inside them, or an Error.
#include "checkpoint/safetensors.h"
#include "fuzz/touch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = butter::SafetensorsFile::parse(bytes);
  if (!file) return 0;
  butter::touch(file->metadata());
  butter::touch(file->tensors());
  for (const butter::TensorEntry& entry : file->tensors().entries()) (void)file->tensor(entry.name);
  return 0;
}
