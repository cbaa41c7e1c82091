#include "kernels/cpu/aura_layout.h"

#include <algorithm>
#include <cstring>

#include "kernels/trellis.h"

namespace butter::cpu {
namespace {

constexpr int kQuads = kPageRows / 4;

// Pieces of 2 bytes within a unit of values.
constexpr int value_piece_offset(int bits, int row, int piece) {
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

// Where byte `byte` of a row's share of a unit of codes stands in the unit.
template <int kBits, Side kSide>
constexpr int offset_in_unit(int row, int byte) {
  if (kSide == Side::kValue) return value_piece_offset(kBits, row, byte / 2) + byte % 2;
  return row / 8 * 64 * kBits + byte / 8 * 64 + row % 8 * 8 + byte % 8;
}

// Every piece of a unit of codes: from the record to rows, or back; rows stand `stride` bytes apart.
template <int kBits, Side kSide, bool kToRows, typename Unit, typename Rows>
void move_unit(Unit* unit, Rows* rows, int64_t stride) {
  constexpr int kUnitRowBytes = 8 * kBits, kPiece = kSide == Side::kKey ? 8 : 2;
  for (int row = 0; row < kPageRows; ++row, rows += stride) {
    for (int byte = 0; byte < kUnitRowBytes; byte += kPiece) {
      if constexpr (kToRows) {
        std::memcpy(rows + byte, unit + offset_in_unit<kBits, kSide>(row, byte), kPiece);
      } else {
        std::memcpy(unit + offset_in_unit<kBits, kSide>(row, byte), rows + byte, kPiece);
      }
    }
  }
}

template <int kBits, bool kToRows, typename Unit, typename Rows>
void move_unit_of(Side side, Unit* unit, Rows* rows, int64_t stride) {
  if (side == Side::kKey) return move_unit<kBits, Side::kKey, kToRows>(unit, rows, stride);
  move_unit<kBits, Side::kValue, kToRows>(unit, rows, stride);
}

template <bool kToRows, typename Unit, typename Rows>
void move_unit_of(const RowShape& shape, Unit* unit, Rows* rows, int64_t stride) {
  if (shape.bits == 2) return move_unit_of<2, kToRows>(shape.side, unit, rows, stride);
  if (shape.bits == 3) return move_unit_of<3, kToRows>(shape.side, unit, rows, stride);
  move_unit_of<4, kToRows>(shape.side, unit, rows, stride);
}

// All codes, to the exchange form or from it. `codes` and `exchange`: one of them is written.
template <bool kToExchange, typename Codes, typename Exchange>
void move_codes(const RowShape& shape, Codes* codes, Exchange* exchange) {
  const int64_t row_bytes = trellis_row_bytes(shape.bits, shape.dim), unit_bytes = int64_t{8} * shape.bits;
  if (!aura_interleaves(shape.dim)) {
    const auto bytes = static_cast<size_t>(kPageRows * row_bytes);
    if constexpr (kToExchange) {
      std::memcpy(exchange, codes, bytes);
    } else {
      std::memcpy(codes, exchange, bytes);
    }
    return;
  }
  for (int64_t unit = 0; unit < shape.dim / kAuraUnit; ++unit) {
    move_unit_of<kToExchange>(shape, codes + unit * unit_bytes * kPageRows, exchange + unit * unit_bytes,
                              row_bytes);
  }
}

// Where the scales of the exchange form stand, which are its last bytes.
int64_t exchange_scales(const RowShape& shape) {
  return kPageRows * trellis_row_bytes(shape.bits, shape.dim);
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
  const auto in_unit = [&]<int kBits>() {
    return shape.side == Side::kKey ? offset_in_unit<kBits, Side::kKey>(row, within)
                                    : offset_in_unit<kBits, Side::kValue>(row, within);
  };
  if (shape.bits == 2) return unit + in_unit.template operator()<2>();
  if (shape.bits == 3) return unit + in_unit.template operator()<3>();
  return unit + in_unit.template operator()<4>();
}

int aura_value_channel(int bits, int dim, int i) {
  if (!aura_interleaves(dim)) return i;
  const int vector = i / 16, lane = i % 16;
  if (bits == 3) return lane / 4 * 16 + vector * 4 + lane % 4;
  return lane / 2 * 8 + vector * 2 + lane % 2;
}

void aura_gather(const RowShape& shape, const std::byte* codes, int first,
                 uint8_t (*rows)[kAuraGatheredBytes]) {
  const int64_t row_bytes = trellis_row_bytes(shape.bits, shape.dim);
  const int64_t begin = int64_t{shape.bits} * first / 8, before = (begin == 0 ? row_bytes : begin) - 1;
  std::memset(rows, 0, size_t{kPageRows} * kAuraGatheredBytes);
  for (int row = 0; row < kPageRows; ++row) {
    rows[row][0] = static_cast<uint8_t>(codes[aura_code_offset(shape, row, before)]);
  }
  if (aura_interleaves(shape.dim)) {
    move_unit_of<true>(shape, codes + begin * kPageRows, reinterpret_cast<std::byte*>(rows[0] + 1),
                       kAuraGatheredBytes);
    return;
  }
  const int64_t unit_bytes = int64_t{8} * shape.bits, length = std::min(row_bytes - begin, unit_bytes);
  for (int row = 0; row < kPageRows; ++row) {
    std::memcpy(rows[row] + 1, codes + row * row_bytes + begin, static_cast<size_t>(length));
  }
}

void aura_import(const RowShape& shape, const std::byte* exchange, std::byte* record) {
  std::memcpy(record, exchange + exchange_scales(shape), kPageRows);
  move_codes<false>(shape, record + kPageRows, exchange);
}

void aura_export(const RowShape& shape, const std::byte* record, std::byte* exchange) {
  std::memcpy(exchange + exchange_scales(shape), record, kPageRows);
  move_codes<true>(shape, aura_codes(record), exchange);
}

}  // namespace butter::cpu
