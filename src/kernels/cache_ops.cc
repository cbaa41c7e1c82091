#include "kernels/cache_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"

namespace butter {

namespace {

template <uint16_t (*kRound)(float), uint16_t kExponent>
bool round_row(const float* in, int64_t count, uint16_t* out) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = kRound(in[i]);
    finite = finite && (out[i] & kExponent) != kExponent;
  }
  return finite;
}

bool copy_row(const float* in, int64_t count, float* out) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = in[i];
    finite = finite && std::isfinite(in[i]);
  }
  return finite;
}

}  // namespace

const RowConverter kScalarConverter = {round_row<float_to_fp16, 0x7c00>, round_row<float_to_bf16, 0x7f80>,
                                       copy_row};

void NonFinite::report(int layer, int64_t position, int head) {
  const uint64_t place = (static_cast<uint64_t>(layer) << 48) | (static_cast<uint64_t>(position) << 12) |
                         static_cast<uint64_t>(head);
  uint64_t first = first_.load(std::memory_order_relaxed);
  while (place < first && !first_.compare_exchange_weak(first, place, std::memory_order_relaxed)) {
  }
}

Status NonFinite::status() const {
  const uint64_t place = first_.load(std::memory_order_relaxed);
  if (place == kNothing) return {};
  return fail(
      StatusCode::kNumeric,
      "layer {}, KV head {}, position {}: a key or value is not a finite number that the cache can store "
      "(the weights may be damaged)",
      place >> 48, place & 0xfff, (place >> 12) & 0xfffffffffu);
}

bool RowConverter::convert(const float* from, int64_t count, DType raw, std::byte* to) const {
  if (raw == DType::kF16) return to_f16(from, count, reinterpret_cast<uint16_t*>(to));
  if (raw == DType::kBF16) return to_bf16(from, count, reinterpret_cast<uint16_t*>(to));
  BUTTER_CHECK(raw == DType::kF32);
  return copy(from, count, reinterpret_cast<float*>(to));
}

void write_kv_row(const AttendSequence& sequence, int64_t row, const float* key, const float* value,
                  const RowConverter& converter, NonFinite& non_finite) {
  const KvView& view = sequence.view;
  const KvLayerShape& shape = view.shape;
  const DType raw = view.scheme.raw;
  const int64_t position = sequence.position + row;
  const int64_t in_page = position % kPageRows;
  const RawPage& page = view.raw_page(page_of(position));
  const RowShape key_shape = shape.row_shape(Side::kKey, raw),
                 value_shape = shape.row_shape(Side::kValue, raw);
  const int64_t key_bytes = raw_rows_bytes(key_shape, 1), value_bytes = raw_rows_bytes(value_shape, 1);
  for (int head = 0; head < shape.kv_heads; ++head) {
    std::byte* key_row = page.key(head) + in_page * key_bytes;
    std::byte* value_row = page.value(head) + in_page * value_bytes;
    const bool key_finite =
        converter.convert(key + int64_t{head} * shape.key_dim, shape.key_dim, raw, key_row);
    const bool value_finite =
        converter.convert(value + int64_t{head} * shape.value_dim, shape.value_dim, raw, value_row);
    if (!key_finite || !value_finite) non_finite.report(shape.layer, position, head);
    if (position < kPinnedRows && view.pinned.base != nullptr) {
      std::memcpy(view.pinned.key(head) + position * key_bytes, key_row, static_cast<size_t>(key_bytes));
      std::memcpy(view.pinned.value(head) + position * value_bytes, value_row,
                  static_cast<size_t>(value_bytes));
    }
  }
}

int64_t seal_scratch_bytes(const KvLayerShape& shape, DType raw) {
  return std::max(raw_rows_bytes(shape.row_shape(Side::kKey, raw), kPageRows),
                  raw_rows_bytes(shape.row_shape(Side::kValue, raw), kPageRows));
}

void seal_head(const AttendSequence& sequence, int64_t page, int head, bool reference_codec, Isa isa,
               std::byte* scratch) {
  const KvView& view = sequence.view;
  const auto index = static_cast<size_t>(head);
  // Sealed pages of a step are written by it, and only by it.
  std::byte* block = const_cast<std::byte*>(view.sealed_page(page));
  const auto seal_side = [&](Side side, const RowFormat& format, const std::byte* rows, int64_t offset) {
    const RowShape shape = view.shape.row_shape(side, view.scheme.raw);
    if (page == 0) {
      const auto pinned = static_cast<size_t>(raw_rows_bytes(shape, kPinnedRows));
      std::memcpy(scratch, rows, static_cast<size_t>(raw_rows_bytes(shape, kPageRows)));
      std::memset(scratch, 0, pinned);
      rows = scratch;
    }
    const RowCodec* codec = reference_codec ? format.reference : format.cpu(isa);
    codec->encode(shape, rows, block + offset);
  };
  const RawPage& raw = view.raw_page(page);
  seal_side(Side::kKey, *view.scheme.key, raw.key(head), view.sealed_layout->heads[index].key);
  seal_side(Side::kValue, *view.scheme.value, raw.value(head), view.sealed_layout->heads[index].value);
}

}  // namespace butter
