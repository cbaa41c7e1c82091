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

// Instead of a head; layers have fewer.
constexpr int kStatePlace = 0xfff;

void NonFinite::report_state(int layer, int64_t position) {
  report(layer, position, kStatePlace);
}

Status NonFinite::status() const {
  const uint64_t place = first_.load(std::memory_order_relaxed);
  if (place == kNothing) return {};
  if ((place & 0xfff) == kStatePlace) {
    return fail(StatusCode::kNumeric,
                "layer {}, positions from {} on: the recurrent state is no finite number (the weights may be "
                "damaged)",
                place >> 48, (place >> 12) & 0xfffffffffu);
  }
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

namespace {

// What seal_head needs beside the codec's own scratch: rows as floats, and those of the centre.
int64_t seal_floats(int dim) {
  return 2 * int64_t{kPageRows} * dim;
}

const RowCodec& codec_of(const RowFormat& format, const SealOptions& options) {
  return options.reference ? *format.reference : *format.cpu(options.isa);
}

// The raw rows of a page's head as floats.
void read_rows(const AttendSequence& sequence, int64_t page, Side side, int head, const SealOptions& options,
               float* rows) {
  const RawPage& raw = sequence.view.raw_page(page);
  const RowShape shape = sequence.view.shape.row_shape(side, sequence.view.scheme.raw);
  const Record record{side == Side::kKey ? raw.key(head) : raw.value(head), kPageRows};
  codec_of(raw_format(), options).expand(shape, record, rows);
}

}  // namespace

int64_t seal_scratch_bytes(const KvLayerShape& shape) {
  const int dim = std::max(shape.key_dim, shape.value_dim);
  return round_up(seal_floats(dim) * static_cast<int64_t>(sizeof(float)), Buffer::kAlignment) +
         encode_scratch_bytes(dim);
}

bool makes_centre(const AttendSequence& sequence) {
  return sequence.view.centre && filled_pages(sequence).begin == 0 && filled_pages(sequence).end > 0;
}

void make_head_centre(const AttendSequence& sequence, int head, const SealOptions& options,
                      std::byte* scratch) {
  const CentreView& centre = sequence.view.centre;
  float* rows = reinterpret_cast<float*>(scratch);
  read_rows(sequence, 0, Side::kKey, head, options, rows);
  make_centre(rows, sequence.view.shape.key_dim, *centre.rotary, centre.head(head));
}

void seal_head(const AttendSequence& sequence, int64_t page, int head, const SealOptions& options,
               std::byte* scratch) {
  const KvView& view = sequence.view;
  const RecordOffsets& offsets = view.sealed_layout->heads[static_cast<size_t>(head)];
  // Sealed pages of a step are written by it, and only by it.
  std::byte* block = const_cast<std::byte*>(view.sealed_page(page));
  if (block == nullptr) return;  // out of every query's sight already
  RecordTail tail;
  for (Side side : {Side::kKey, Side::kValue}) {
    const RowFormat& format = view.scheme.format(side);
    const RowShape shape = view.shape.row_shape(side, view.scheme);
    std::byte* record = block + (side == Side::kKey ? offsets.key : offsets.value);
    const int64_t pinned_rows = page == 0 && view.scheme.pins() ? kPinnedRows : 0;
    if (!format.seals) {
      const RawPage& raw = view.raw_page(page);
      std::memcpy(record, side == Side::kKey ? raw.key(head) : raw.value(head),
                  static_cast<size_t>(raw_rows_bytes(shape, kPageRows)));
      std::memset(record, 0, static_cast<size_t>(raw_rows_bytes(shape, pinned_rows)));
      continue;
    }
    float* rows = reinterpret_cast<float*>(scratch);
    float* centre_scratch = rows + int64_t{kPageRows} * shape.dim;
    read_rows(sequence, page, side, head, options, rows);
    if (side == Side::kKey && view.centre) {
      tail.centre = centre_id(view.centre.head(head), shape.dim);
      tail.centred =
          subtract_centre(view.centre.head(head), shape.dim, *view.centre.rotary, page, rows, centre_scratch);
      if (pinned_rows > 0) tail.centred &= ~((uint64_t{1} << kPinnedRows) - 1);
    }
    std::fill_n(rows, pinned_rows * shape.dim, 0.0f);
    codec_of(format, options)
        .encode(shape, rows, record, &tail,
                scratch + round_up(seal_floats(shape.dim) * static_cast<int64_t>(sizeof(float)),
                                   Buffer::kAlignment));
  }
  std::memcpy(block + offsets.tail, &tail, sizeof tail);
}

}  // namespace butter
