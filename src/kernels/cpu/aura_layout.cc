#include "kernels/cpu/aura_layout.h"

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

// Every piece of the codes, between the exchange form and the record: a pass of some ns for each row.
template <int kBits, Side kSide, bool kImport>
void move_pieces(int dim, const std::byte* from, std::byte* to) {
  constexpr int kUnitRowBytes = 8 * kBits, kPiece = kSide == Side::kKey ? 8 : 2;
  const int64_t row_bytes = trellis_row_bytes(kBits, dim);
  for (int64_t unit = 0; unit < dim / kAuraUnit; ++unit) {
    const int64_t base = unit * kUnitRowBytes * kPageRows;
    for (int row = 0; row < kPageRows; ++row) {
      const int64_t exchange = row * row_bytes + unit * kUnitRowBytes;
      for (int byte = 0; byte < kUnitRowBytes; byte += kPiece) {
        const int64_t record = base + offset_in_unit<kBits, kSide>(row, byte);
        if constexpr (kImport) {
          std::memcpy(to + record, from + exchange + byte, kPiece);
        } else {
          std::memcpy(to + exchange + byte, from + record, kPiece);
        }
      }
    }
  }
}

template <int kBits, bool kImport>
void move_codes(const RowShape& shape, const std::byte* from, std::byte* to) {
  if (shape.side == Side::kKey) return move_pieces<kBits, Side::kKey, kImport>(shape.dim, from, to);
  move_pieces<kBits, Side::kValue, kImport>(shape.dim, from, to);
}

template <bool kImport>
void move_record(const RowShape& shape, const std::byte* from, std::byte* to) {
  const int64_t code_bytes = kPageRows * trellis_row_bytes(shape.bits, shape.dim);
  if (!aura_interleaves(shape.dim)) {
    std::memcpy(to, from, static_cast<size_t>(code_bytes + kPageRows));
    return;
  }
  if (shape.bits == 2) move_codes<2, kImport>(shape, from, to);
  if (shape.bits == 3) move_codes<3, kImport>(shape, from, to);
  if (shape.bits == 4) move_codes<4, kImport>(shape, from, to);
  std::memcpy(to + code_bytes, from + code_bytes, kPageRows);
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

void aura_import(const RowShape& shape, const std::byte* exchange, std::byte* record) {
  move_record<true>(shape, exchange, record);
}

void aura_export(const RowShape& shape, const std::byte* record, std::byte* exchange) {
  move_record<false>(shape, record, exchange);
}

}  // namespace butter::cpu
