#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace butter {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// A lead byte's promise: how long its character is, and the range of the byte that follows, which is
// narrower where it must keep out overlong forms, surrogates and what lies above U+10FFFF.
struct Lead {
  size_t bytes;  // 0: no character starts so
  uint8_t second_min;
  uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool all_ascii(const char* eight_bytes) {
  uint64_t word;
  std::memcpy(&word, eight_bytes, sizeof(word));
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Unit first_utf8_unit(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<uint8_t>(bytes[0]));
  if (lead.bytes == 0) return {1, Utf8State::kMalformed};
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == bytes.size()) return {i, Utf8State::kIncomplete};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {i, Utf8State::kMalformed};
  }
  return {lead.bytes, Utf8State::kWellFormed};
}

size_t well_formed_utf8_bytes(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (bytes.size() - at >= 8 && all_ascii(bytes.data() + at)) {
      at += 8;
      continue;
    }
    const Utf8Unit unit = first_utf8_unit(bytes.substr(at));
    if (unit.state != Utf8State::kWellFormed) break;
    at += unit.bytes;
  }
  return at;
}

void append_replacing_malformed(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const size_t good = well_formed_utf8_bytes(bytes);
    out->append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    out->append(kReplacement);
    bytes.remove_prefix(first_utf8_unit(bytes).bytes);
  }
}

char32_t decode_utf8(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  char32_t value = lead & (0xFFu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i)
    value = value << 6 | (static_cast<uint8_t>(character[i]) & 0x3F);
  return value;
}

void append_utf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace butter
