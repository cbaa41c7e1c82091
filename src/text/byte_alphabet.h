// The byte alphabet: how byte-level vocabularies spell bytes as printable characters.
//
// Each of the 256 bytes has one character: itself (as Latin-1) where that is printable and not a space,
// else the next of U+0100, U+0101, ... in order of the bytes. So " the" is spelled "\u0120the".
// Source: GPT-2's encoder (Radford et al., 2019), from which tokenizer.json and GGUF took it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace butter {

// The spelling of a byte, in UTF-8.
std::string_view spelling_of_byte(uint8_t byte);

// Appends the bytes that `spelling` stands for; appends nothing and returns false where a character is
// not of the alphabet.
bool append_spelled_bytes(std::string_view spelling, std::string* bytes);

}  // namespace butter
