#include "kernels/cpu/aura_layout.h"

#include <cstring>

#include "kernels/trellis.h"

namespace butter::cpu {
namespace {

constexpr int kQuads = kPageRows / 4;

// Pieces of 2 bytes within a unit of values.
int64_t value_piece_offset(int bits, int row, int piece) {
  const int quad = row % kQuads, place = row / kQuads;
  switch (bits) {
    case 2:
      return quad * 64 + piece * 8 + place * 2;
    case 3:
      return quad / 2 * 192 + piece % 3 * 64 + piece / 3 * 16 + quad % 2 * 8 + place * 2;
    default:
      return quad * 128 + piece % 2 * 64 + piece / 2 * 8 + place * 2;
  }
}

// Calls move(place in the exchange form, place in the record, bytes) for every piece of the codes.
template <typename Move>
void for_pieces(const RowShape& shape, const Move& move) {
  const int64_t row_bytes = trellis_row_bytes(shape.bits, shape.dim);
  const int64_t step = shape.side == Side::kKey ? 8 : 2;
  for (int row = 0; row < kPageRows; ++row) {
    for (int64_t byte = 0; byte < row_bytes; byte += step) {
      move(row * row_bytes + byte, aura_code_offset(shape, row, byte), static_cast<size_t>(step));
    }
  }
}

int64_t record_bytes(const RowShape& shape) {
  return kPageRows * (trellis_row_bytes(shape.bits, shape.dim) + 1);
}

}  // namespace

bool aura_interleaves(int dim) {
  return dim % kAuraUnit == 0;
}

int64_t aura_code_offset(const RowShape& shape, int row, int64_t byte) {
  if (!aura_interleaves(shape.dim)) return row * trellis_row_bytes(shape.bits, shape.dim) + byte;
  const int64_t unit_bytes = int64_t{8} * shape.bits;  // of a row
  const int64_t unit = byte / unit_bytes * unit_bytes * kPageRows;
  const int within = static_cast<int>(byte % unit_bytes);
  if (shape.side == Side::kValue) return unit + value_piece_offset(shape.bits, row, within / 2) + within % 2;
  return unit + row / 8 * 8 * unit_bytes + within / 8 * 64 + row % 8 * 8 + within % 8;
}

int aura_value_channel(int bits, int dim, int i) {
  if (!aura_interleaves(dim)) return i;
  const int vector = i / 16, lane = i % 16;
  if (bits == 3) return lane / 4 * 16 + vector * 4 + lane % 4;
  return lane / 2 * 8 + vector * 2 + lane % 2;
}

void aura_import(const RowShape& shape, const std::byte* exchange, std::byte* record) {
  const int64_t bytes = record_bytes(shape);
  if (!aura_interleaves(shape.dim)) {
    std::memcpy(record, exchange, static_cast<size_t>(bytes));
    return;
  }
  for_pieces(shape, [&](int64_t from, int64_t to, size_t count) {
    std::memcpy(record + to, exchange + from, count);
  });
  std::memcpy(record + bytes - kPageRows, exchange + bytes - kPageRows, kPageRows);
}

void aura_export(const RowShape& shape, const std::byte* record, std::byte* exchange) {
  const int64_t bytes = record_bytes(shape);
  if (!aura_interleaves(shape.dim)) {
    std::memcpy(exchange, record, static_cast<size_t>(bytes));
    return;
  }
  for_pieces(shape, [&](int64_t to, int64_t from, size_t count) {
    std::memcpy(exchange + to, record + from, count);
  });
  std::memcpy(exchange + bytes - kPageRows, record + bytes - kPageRows, kPageRows);
}

}  // namespace butter::cpu
