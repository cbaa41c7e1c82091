#include "kernels/scale_byte.h"

#include <algorithm>
#include <cmath>

namespace butter {
namespace {

constexpr int kMantissaSteps = 16;
constexpr int kSmallestNormal = -14;  // exponent below which bytes count evenly, over 2^u

double rounded(double value, ScaleRounding rounding) {
  return rounding == ScaleRounding::kUp ? std::ceil(value) : std::nearbyint(value);
}

}  // namespace

int8_t scale_exponent(double largest, ScaleRounding rounding) {
  if (!(largest > 0)) return 0;
  int exponent = std::ilogb(largest);
  const double sixteenths = rounded(std::ldexp(largest, 4 - exponent), rounding);
  if (sixteenths >= 2 * kMantissaSteps) ++exponent;
  return static_cast<int8_t>(std::clamp(exponent, kSmallestScaleExponent, kLargestScaleExponent));
}

uint8_t scale_byte(double scale, int exponent, ScaleRounding rounding) {
  const double value = std::ldexp(scale, -exponent);
  if (!(value > 0)) return 0;
  // Evenly spaced steps of 2^(binade - 4); below the smallest binade they shrink no more. A value that rounds
  // up to the next binade carries into e, as it does in any float.
  const int binade = std::max(std::ilogb(value), kSmallestNormal);
  const double steps = rounded(std::ldexp(value, 4 - binade), rounding);
  const double byte = kMantissaSteps * (binade - kSmallestNormal) + steps;
  return static_cast<uint8_t>(std::min(byte, 255.0));
}

float scale_value(uint8_t byte, int exponent) {
  const int e = byte / kMantissaSteps;
  const int m = byte % kMantissaSteps;
  if (e == 0) return std::ldexp(static_cast<float>(m), exponent + kSmallestNormal - 4);
  return std::ldexp(static_cast<float>(kMantissaSteps + m), exponent + e - 15 - 4);
}

}  // namespace butter
