#include "kernels/trellis.h"

#include <cstddef>
#include <cstring>

#include "core/check.h"

namespace butter {
namespace {

constexpr TrellisTable kTable2 = {
    {-103, 126, -26, 26,  -12, 12,  -53, 52,  -10, 14,  -52, 53,  -98, 75,  -28,  28,
     53,   -49, 11,  -8,  28,  -23, 82,  -69, 25,  -23, 85,  -81, 50,  -50, 7,    -11,
     9,    -9,  49,  -51, 98,  -84, 27,  -23, 71,  -76, 23,  -25, 5,   -9,  46,   -54,
     -29,  24,  -79, 76,  -48, 52,  -10, 12,  -54, 55,  -13, 14,  -32, 27,  -127, 96},
    0.0199705197F};

constexpr TrellisTable kTable3 = {
    {-125, 5,   67,  -11, -54, 21,  43,  -31, 10,  -66, -7,  91,  30,  -41, -22, 51,
     54,   -22, -41, 29,  86,  -6,  -69, 9,   -31, 40,  21,  -55, -11, 71,  5,   -104,
     127,  -5,  -66, 10,  52,  -22, -41, 28,  -11, 65,  6,   -94, -30, 41,  22,  -53,
     -53,  21,  40,  -30, -85, 6,   72,  -12, 30,  -41, -22, 54,  11,  -76, -6,  102},
    0.0226322992F};

constexpr TrellisTable kTable4 = {
    {-127, 19,  -69, 28, 34, -10, 45, -4,  -28, 69, -19,  102, 3,  -45, 11, -34,
     -19,  123, -28, 70, 10, -34, 3,  -45, -69, 27, -103, 19,  44, -3,  34, -11,
     -4,   51,  -11, 39, 26, -59, 18, -88, -38, 11, -50,  4,   79, -17, 60, -25,
     -51,  4,   -38, 11, 59, -26, 87, -18, -11, 38, -4,   50,  18, -79, 26, -59},
    0.0237334488F};

int stream_bit(const uint8_t* row_bits, int i) {
  return row_bits[i / 8] >> (i % 8) & 1;
}

}  // namespace

const TrellisTable& trellis_table(int bits) {
  BUTTER_CHECK(bits >= 2 && bits <= 4);
  return bits == 2 ? kTable2 : bits == 3 ? kTable3 : kTable4;
}

TrellisReader::TrellisReader(int bits, const uint8_t* row_bits, int dim) : bits_(bits), row_bits_(row_bits) {
  BUTTER_CHECK(bits >= 2 && bits <= 4 && dim >= kTrellisWindowBits);
  // The window before value 0 holds the end of the stream.
  const int end = bits * dim;
  for (int i = 0; i < kTrellisWindowBits; ++i) {
    window_ |= stream_bit(row_bits, end - kTrellisWindowBits + i) << i;
  }
}

int TrellisReader::next() {
  window_ >>= bits_;
  for (int i = kTrellisWindowBits - bits_; i < kTrellisWindowBits; ++i) {
    window_ |= stream_bit(row_bits_, first_bit_++) << i;
  }
  return window_;
}

void decode_levels(int bits, const uint8_t* row_bits, int dim, int8_t* levels) {
  const TrellisTable& table = trellis_table(bits);
  TrellisReader reader(bits, row_bits, dim);
  for (int j = 0; j < dim; ++j) levels[j] = table.levels[static_cast<size_t>(reader.next())];
}

void pack_symbols(int bits, const uint8_t* symbols, int dim, uint8_t* row_bits) {
  std::memset(row_bits, 0, trellis_row_bytes(bits, dim));
  for (int i = 0; i < bits * dim; ++i) {
    const int bit = symbols[i / bits] >> (i % bits) & 1;
    row_bits[i / 8] |= static_cast<uint8_t>(bit << (i % 8));
  }
}

}  // namespace butter
