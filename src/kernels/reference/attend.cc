// Attention in plain scalar text: every row and head on its own, a page's rows decoded to float before use,
// once for all rows of a step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/reference/formats.h"

namespace butter::reference {
namespace {

// Where the rows of some positions are read, for one query.
struct Segment {
  const RowCodec* key_codec = nullptr;
  const RowCodec* value_codec = nullptr;
  const std::byte* block = nullptr;
  const LayerLayout* layout = nullptr;
  int64_t first = 0;     // position of its first row
  int rows = kPageRows;  // rows that it holds
  uint64_t visible = 0;  // of its rows
  bool sealed = false;
};

// The segments that a query at p reads, in order of position (kv_view.h says which).
std::vector<Segment> segments_of(const KvView& view, int64_t p) {
  std::vector<Segment> segments;
  const int64_t own = page_of(p), raw_begin = view.raw_begin(p);
  const bool pinned = view.scheme.pins() && raw_begin > 0;
  const uint64_t pinned_bits = (uint64_t{1} << kPinnedRows) - 1;
  for (int64_t page = 0; page <= own; ++page) {
    uint64_t visible = visible_rows(view.window, p, page);
    const int64_t first = page * kPageRows;
    if (page >= raw_begin) {
      const RawPage& raw = view.raw_page(page);
      const int rows = page == own ? static_cast<int>(p - first) + 1 : kPageRows;
      segments.push_back({&raw_codec(), &raw_codec(), raw.base, raw.layout, first, rows, visible});
      continue;
    }
    if (page == 0 && pinned && (visible & pinned_bits) != 0) {
      segments.push_back({&raw_codec(), &raw_codec(), view.pinned.base, view.pinned.layout, 0, kPinnedRows,
                          visible & pinned_bits});
    }
    if (page == 0 && pinned) visible &= ~pinned_bits;
    if (visible == 0) continue;
    segments.push_back({view.scheme.key->reference, view.scheme.value->reference, view.sealed_page(page),
                        view.sealed_layout, first, kPageRows, visible, view.scheme.seals()});
  }
  return segments;
}

// Gives the keys of a page, [64][dim], what they were coded without.
void add_centre(const KvView& view, int kv_head, int64_t page, const RecordTail& tail, float* keys) {
  const int dim = view.shape.key_dim;
  std::vector<float> centre(size_t{kPageRows} * static_cast<size_t>(dim));
  centre_rows(view.centre.head(kv_head), dim, *view.centre.rotary, page, centre.data());
  for (int64_t row = 0; row < kPageRows; ++row) {
    if ((tail.centred >> row & 1) == 0) continue;
    for (int64_t i = row * dim; i < (row + 1) * dim; ++i) keys[i] += centre[static_cast<size_t>(i)];
  }
}

// The rows of a segment for one KV head as floats, [rows][dim] each.
struct SegmentRows {
  std::vector<float> keys, values;
};

SegmentRows decode(const KvView& view, const Segment& segment, int kv_head) {
  const RowShape key_shape = view.shape.row_shape(Side::kKey, view.scheme);
  const RowShape value_shape = view.shape.row_shape(Side::kValue, view.scheme);
  SegmentRows rows;
  rows.keys.resize(size_t{kPageRows} * static_cast<size_t>(key_shape.dim));
  rows.values.resize(size_t{kPageRows} * static_cast<size_t>(value_shape.dim));
  const RecordOffsets& offsets = segment.layout->heads[static_cast<size_t>(kv_head)];
  Record key_record{segment.block + offsets.key, segment.rows},
      value_record{segment.block + offsets.value, segment.rows};
  if (segment.sealed) {
    key_record.tail = value_record.tail = reinterpret_cast<const RecordTail*>(segment.block + offsets.tail);
  }
  segment.key_codec->decode(key_shape, key_record, rows.keys.data());
  segment.value_codec->decode(value_shape, value_record, rows.values.data());
  if (segment.sealed && view.centre)
    add_centre(view, kv_head, page_of(segment.first), *key_record.tail, rows.keys.data());
  return rows;
}

// The decoded pages of one sequence in one step, whose queries all read the same codes.
class DecodedPages {
 public:
  explicit DecodedPages(const KvView& view) : view_(view) {}

  const SegmentRows& rows(const Segment& segment, int kv_head) {
    if (!segment.sealed) return raw_ = decode(view_, segment, kv_head);
    const auto [found, is_new] = sealed_.try_emplace({kv_head, segment.first});
    if (is_new) found->second = decode(view_, segment, kv_head);
    return found->second;
  }

 private:
  const KvView& view_;
  SegmentRows raw_;
  std::map<std::pair<int, int64_t>, SegmentRows> sealed_;  // by KV head and first position
};

// The visible keys and values of one KV head, [keys][dim] each.
struct VisibleRows {
  std::vector<float> keys, values;
  int64_t count = 0;
};

VisibleRows gather(const KvView& view, const std::vector<Segment>& segments, int kv_head, int64_t p,
                   DecodedPages& pages) {
  VisibleRows rows;
  for (const Segment& segment : segments) {
    const SegmentRows& decoded = pages.rows(segment, kv_head);
    for (int row = 0; row < segment.rows; ++row) {
      if ((segment.visible >> row & 1) == 0) continue;
      BUTTER_CHECK(view.window.sees(p, segment.first + row));
      const auto key = decoded.keys.begin() + int64_t{row} * view.shape.key_dim;
      const auto value = decoded.values.begin() + int64_t{row} * view.shape.value_dim;
      rows.keys.insert(rows.keys.end(), key, key + view.shape.key_dim);
      rows.values.insert(rows.values.end(), value, value + view.shape.value_dim);
      ++rows.count;
    }
  }
  return rows;
}

// `sink`: null, or a score without a value.
void attend_head(const VisibleRows& rows, const KvLayerShape& shape, float scale, const float* sink,
                 const float* query, float* out) {
  std::vector<float> weights(static_cast<size_t>(rows.count));
  float max = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < rows.count; ++k) {
    float sum = 0;
    for (int i = 0; i < shape.key_dim; ++i) {
      sum += query[i] * rows.keys[static_cast<size_t>(k * shape.key_dim + i)];
    }
    weights[static_cast<size_t>(k)] = scale * sum;
    max = std::max(max, scale * sum);
  }
  float total = sink != nullptr ? std::exp(*sink - max) : 0;
  for (float& weight : weights) {
    weight = std::exp(weight - max);
    total += weight;
  }
  std::fill(out, out + shape.value_dim, 0.0f);
  for (int64_t k = 0; k < rows.count; ++k) {
    const float weight = weights[static_cast<size_t>(k)] / total;
    for (int i = 0; i < shape.value_dim; ++i) {
      out[i] += weight * rows.values[static_cast<size_t>(k * shape.value_dim + i)];
    }
  }
}

void attend_row(const AttendBatch& batch, const AttendSequence& sequence, int row, DecodedPages& pages) {
  const KvLayerShape& shape = sequence.view.shape;
  const int group = batch.q_heads / shape.kv_heads;
  const int64_t p = sequence.position + row;
  const int64_t step_row = sequence.first_row + row;
  const std::vector<Segment> segments = segments_of(sequence.view, p);
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const VisibleRows rows = gather(sequence.view, segments, kv_head, p, pages);
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      attend_head(rows, shape, batch.scale, batch.sinks != nullptr ? batch.sinks + head : nullptr,
                  batch.queries + (step_row * batch.q_heads + head) * shape.key_dim,
                  batch.out + (step_row * batch.q_heads + head) * shape.value_dim);
    }
  }
}

}  // namespace

void attend(const AttendBatch& batch) {
  for (int s = 0; s < batch.count; ++s) {
    const AttendSequence& sequence = batch.sequences[s];
    DecodedPages pages(sequence.view);
    for (int row = 0; row < sequence.rows; ++row) attend_row(batch, sequence, row, pages);
  }
}

}  // namespace butter::reference
