// UTF-8 as streams of it arrive: well formed, cut short, or wrong.
//
// Malformed input is cut as the Unicode Standard recommends (section 3.9, "maximal subpart"), which is
// also what Python's and Rust's lossy decoders do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace butter {

enum class Utf8State {
  kWellFormed,  // a whole character
  kIncomplete,  // the bytes end inside what may still become a character
  kMalformed,   // no continuation can make these bytes a character
};

struct Utf8Unit {
  size_t bytes;  // at least 1
  Utf8State state;
};

// What stands at the start of `bytes`, which are not empty.
Utf8Unit first_utf8_unit(std::string_view bytes);

// How many bytes from the start are whole, well-formed characters.
size_t well_formed_utf8_bytes(std::string_view bytes);

// Appends `bytes` to `out` with each malformed or incomplete unit replaced by U+FFFD.
void append_replacing_malformed(std::string_view bytes, std::string* out);

// The scalar value of one whole, well-formed character.
char32_t decode_utf8(std::string_view character);

// Appends a scalar value (below 0x110000, not a surrogate).
void append_utf8(char32_t code_point, std::string* out);

}  // namespace butter
