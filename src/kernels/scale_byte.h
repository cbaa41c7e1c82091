// The 8-bit scale of a row of the aura formats: a small float that counts from the largest of its page.
//
//   byte = 16·e + m     e > 0: 2^u · (1 + m/16) · 2^(e - 15)     e = 0: 2^u · (m/16) · 2^-14
//
// u, the page's exponent (one per KV head and side), is that of the page's largest scale. Byte 0 is the zero
// row. Placed at bits 6..13 of an fp16 number, a byte is its own value over 2^u.
//
// Pure functions: any thread. Scales are finite and not negative.
#pragma once

#include <cstdint>

namespace butter {

// Exponents are kept within these, so that every scale is a normal float and its products stay finite. A
// larger scale is clamped.
constexpr int kSmallestScaleExponent = -108;
constexpr int kLargestScaleExponent = 112;

// How a scale becomes a byte: to the nearest value (halves to even), or to one that is not smaller.
enum class ScaleRounding : uint8_t { kNearest, kUp };

// u of a page whose largest scale is `largest`: its exponent once rounded to 1+4 bits. 0 where all are zero.
int8_t scale_exponent(double largest, ScaleRounding rounding);

// The byte of a scale that is not above the page's largest.
uint8_t scale_byte(double scale, int exponent, ScaleRounding rounding);

float scale_value(uint8_t byte, int exponent);

}  // namespace butter
