#include "kernels/attend_testing.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/buffer.h"

namespace butter {
namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A sum of four uniform numbers: near enough to a normal one, and bounded.
float random_float(uint64_t seed, uint64_t index) {
  const uint64_t bits = mix(mix(seed * 0x9e3779b97f4a7c15u + 1) + index * 0x9e3779b97f4a7c15u);
  int sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<int>(bits >> (16 * part) & 0xffff);
  return (static_cast<float>(sum) / 65535.0f - 2.0f) * 1.732f;
}

void store_raw(DType raw, float value, std::byte* to) {
  if (raw == DType::kF32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t bits = raw == DType::kF16 ? float_to_fp16(value) : float_to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

float load_raw(DType raw, const std::byte* from) {
  if (raw == DType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return raw == DType::kF16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

std::unique_ptr<std::byte[]> make_block(int64_t bytes) {
  auto block = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
  std::memset(block.get(), 0xff, static_cast<size_t>(bytes));  // NaN in every type
  return block;
}

}  // namespace

std::vector<float> random_floats(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_float(seed, i);
  return values;
}

TestCache::TestCache(const TestCacheOptions& options) : options_(options) {
  const std::vector<KvLayerShape> layers = {options.shape};
  raw_layout_ = raw_layout(layers, options.scheme.raw, kPageRows);
  pinned_layout_ = raw_layout(layers, options.scheme.raw, kPinnedRows);
  sealed_layout_ = sealed_layout(layers, options.scheme);
  pinned_block_ = make_block(pinned_layout_.bytes);
  const int64_t pages = page_of(options.position + options.rows - 1) + 1;
  raw_blocks_.resize(static_cast<size_t>(pages));
  sealed_blocks_.resize(static_cast<size_t>(pages));
  for (int64_t page = 0; page < pages; ++page) fill_page(page);
  make_view();
}

bool TestCache::hidden(int64_t position) const {
  // The first query that can see it is the one that sees furthest back.
  const int64_t p = std::max(position, options_.position);
  return !options_.window.sees(p, position);
}

float TestCache::written(Side side, int64_t position, int head, int channel) const {
  const int64_t row = (position * options_.shape.kv_heads + head) * 2 + (side == Side::kKey ? 1 : 0);
  return random_float(options_.seed, static_cast<uint64_t>(row * 1024 + channel));
}

// Writes a page's rows as the engine would: raw, sealed when full, positions 0..3 pinned; then poisons what
// is hidden.
void TestCache::fill_page(int64_t page) {
  const KvLayerShape& shape = options_.shape;
  const DType raw = options_.scheme.raw;
  const int64_t end = options_.position + options_.rows;
  const int64_t value_bytes = dtype_info(raw).block_bytes;
  Block raw_block = make_block(raw_layout_.bytes), sealed_block = make_block(sealed_layout_.bytes);
  const bool full = (page + 1) * kPageRows <= end;
  bool all_hidden = true;
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (Side side : {Side::kKey, Side::kValue}) {
      const RowShape row = shape.row_shape(side, options_.scheme);
      const bool is_key = side == Side::kKey;
      const auto offset = [&](const BlockLayout& layout) {
        const RecordOffsets& offsets = layout.layers[0].heads[static_cast<size_t>(head)];
        return is_key ? offsets.key : offsets.value;
      };
      std::byte* rows = raw_block.get() + offset(raw_layout_);
      std::vector<float> to_seal(static_cast<size_t>(kPageRows * row.dim));
      for (int64_t r = 0; r < kPageRows && page * kPageRows + r < end; ++r) {
        const int64_t position = page * kPageRows + r;
        const bool poison = hidden(position);
        all_hidden = all_hidden && poison;
        for (int i = 0; i < row.dim; ++i) {
          const float value =
              poison ? std::numeric_limits<float>::quiet_NaN() : written(side, position, head, i);
          const int64_t at = (r * row.dim + i) * value_bytes;
          store_raw(raw, value, rows + at);
          const bool pin = position < kPinnedRows && options_.scheme.pins();
          if (!pin) to_seal[static_cast<size_t>(r * row.dim + i)] = load_raw(raw, rows + at);
          if (position < kPinnedRows)
            store_raw(raw, value, pinned_block_.get() + offset(pinned_layout_) + at);
        }
      }
      if (full) seal(row, to_seal, head, sealed_block.get());
    }
  }
  const auto index = static_cast<size_t>(page);
  if (full && !all_hidden) sealed_blocks_[index] = std::move(sealed_block);
  if (page >= page_of(options_.position)) raw_blocks_[index] = std::move(raw_block);
}

// Encodes a page's rows as every backend of the format would store them: the raw format's own record is the
// rows.
void TestCache::seal(const RowShape& row, const std::vector<float>& rows, int head, std::byte* block) const {
  const RecordOffsets& offsets = sealed_layout_.layers[0].heads[static_cast<size_t>(head)];
  Buffer scratch = Buffer::allocate(encode_scratch_bytes(row.dim)).value();
  RecordTail none;
  auto* tail = options_.scheme.seals() ? reinterpret_cast<RecordTail*>(block + offsets.tail) : &none;
  if (row.side == Side::kKey && options_.scheme.seals()) *tail = {};
  std::byte* record = block + (row.side == Side::kKey ? offsets.key : offsets.value);
  options_.scheme.format(row.side).reference->encode(row, rows.data(), record, tail, scratch.data());
}

void TestCache::make_view() {
  view_.shape = options_.shape;
  view_.scheme = options_.scheme;
  view_.window = options_.window;
  view_.first_raw = page_of(options_.position);
  view_.end_raw = static_cast<int64_t>(raw_blocks_.size());
  for (int64_t page = view_.first_raw; page < view_.end_raw; ++page) {
    raw_pages_.push_back({raw_blocks_[static_cast<size_t>(page)].get(), &raw_layout_.layers[0]});
  }
  view_.raw = raw_pages_.data();
  const VisiblePages pages(options_.window, options_.position);
  view_.kept_end = pages.kept_end;
  view_.first_sealed = pages.recent_begin;
  view_.end_sealed = view_.end_raw;
  for (int64_t page = 0; page < view_.kept_end; ++page) {
    kept_.push_back(sealed_blocks_[static_cast<size_t>(page)].get());
  }
  for (int64_t page = view_.first_sealed; page < view_.end_sealed; ++page) {
    sealed_.push_back(sealed_blocks_[static_cast<size_t>(page)].get());
  }
  view_.kept = kept_.data();
  view_.sealed = sealed_.data();
  view_.sealed_layout = &sealed_layout_.layers[0];
  if (options_.scheme.pins()) view_.pinned = {pinned_block_.get(), &pinned_layout_.layers[0]};
}

AttendSequence TestCache::sequence(int first_row) const {
  return {view_, options_.position, first_row, options_.rows};
}

}  // namespace butter
