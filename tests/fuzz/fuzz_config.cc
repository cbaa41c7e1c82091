// config.json: whatever the text, Attributes, or an Error; and every getter on every key.
#include "checkpoint/attributes.h"
#include "fuzz/touch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = butter::Attributes::parse_json(text, "config.json")) butter::touch(*config);
  return 0;
}
