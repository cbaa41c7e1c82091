#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace butter {
namespace {

constexpr int kCharacters = 0x144;  // the alphabet ends at U+0143

bool spelled_as_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int16_t, kCharacters> byte;  // of a code point; -1 outside the alphabet

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const char32_t code_point = spelled_as_itself(b) ? static_cast<char32_t>(b) : next++;
      append_utf8(code_point, &spelling[b]);
      byte[code_point] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet* const kAlphabet = new Alphabet;
  return *kAlphabet;
}

// The code point of a one or two byte character, which is all that the alphabet has; else -1.
int short_code_point(std::string_view character) {
  if (character.size() == 1) return static_cast<uint8_t>(character[0]);
  if (character.size() != 2) return -1;
  return ((character[0] & 0x1F) << 6) | (character[1] & 0x3F);
}

}  // namespace

std::string_view spelling_of_byte(uint8_t byte) {
  return alphabet().spelling[byte];
}

bool append_spelled_bytes(std::string_view spelling, std::string* bytes) {
  const size_t before = bytes->size();
  while (!spelling.empty()) {
    const Utf8Unit unit = first_utf8_unit(spelling);
    const int code_point =
        unit.state == Utf8State::kWellFormed ? short_code_point(spelling.substr(0, unit.bytes)) : -1;
    const int byte = code_point >= 0 && code_point < kCharacters ? alphabet().byte[code_point] : -1;
    if (byte < 0) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(byte));
    spelling.remove_prefix(unit.bytes);
  }
  return true;
}

}  // namespace butter
