// The table of pre-tokenisers. A new one is a new row: patterns are spelled as the model's tokenizer.json
// spells them (a row is recognised there by its stages), and names as GGUF's tokenizer.ggml.pre has them.
#include <array>

#include "text/pre_tokenizer.h"

namespace butter {

const std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Two runs of Unicode 17 are numbers for Digits, which knows a newer Unicode than the patterns do.
const std::string_view kDigitsPattern = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

std::span<const PreTokenizerRow> pre_tokenizer_rows() {
  static const std::array<std::string_view, 2> kGpt2Names = {"gpt2", "gpt-2"};
  static const std::array<std::string_view, 1> kGpt2 = {kByteLevelPattern};
  static const std::array<std::string_view, 1> kSmollmNames = {"smollm"};
  static const std::array<std::string_view, 2> kSmollm = {kDigitsPattern, kByteLevelPattern};
  static const std::array<PreTokenizerRow, 2> kRows = {{
      {kGpt2Names, kGpt2},
      {kSmollmNames, kSmollm},
  }};
  return kRows;
}

}  // namespace butter
