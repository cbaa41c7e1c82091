// Prefill: many rows a sequence, bound by arithmetic.
//
// An item of work is (sequence, KV head, block of query rows): the block goes through the sealed pages that
// any of its rows sees, in order, each unpacked once for all its rows; then the sums are turned back to the
// model's basis and the raw rows follow (pinned, and each query's own page). Whoever computes an item, and
// whatever rows share its block, a row meets the same pages in the same order.
#include <cstring>

#include "kernels/cpu/attend_plan.h"
#include "kernels/cpu/formats.h"

namespace butter::cpu {
namespace {

constexpr uint64_t kPinnedBits = (uint64_t{1} << kPinnedRows) - 1;

// Query rows of one KV head: positions [begin, end) times the group's heads, heads inside.
struct Block {
  const AttendSequence* sequence = nullptr;
  int head = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class PrefillWorker {
 public:
  PrefillWorker(const AttendBatch& batch, Isa isa, const AttendScratch& scratch)
      : batch_(batch),
        isa_(isa),
        kernels_(attend_kernels(isa, batch.products)),
        raw_(*raw_codec(isa)),
        scratch_(scratch.prefill),
        shape_(batch.sequences[0].view.shape),
        group_(batch.q_heads / shape_.kv_heads) {}

  void attend(const Block& block);

 private:
  void gather_queries(const Block& block);
  void start(const Block& block);
  void attend_sealed(const Block& block);
  void attend_pinned(const Block& block);
  void attend_own_pages(const Block& block);
  void turn_back(const Block& block);
  void write_out(const Block& block);
  // Positions [first, block.end) attend to rows [0, record.rows) of a page, each to those that `visible`
  // says.
  template <typename Visible>
  void attend_page(const Block& block, int64_t first, int64_t end, const RowCodec& key_codec,
                   const Record& key, const RowCodec& value_codec, const Record& value,
                   const Visible& visible, int64_t sealed_page = -1);
  void add_centre(const Block& block, int64_t page, uint64_t centred);
  void unpack(const RowCodec& codec, const RowShape& shape, const Record& record, uint64_t live);
  void put_pinned(const Block& block, const RowCodec& codec, Side side);

  // Without a window page 0 is always there and seen whole, so the pinned rows are put among its own.
  static bool pinned_in_page(const KvView& view) { return view.scheme.pins() && view.window.none(); }
  // The first position of a block that reads a page sealed; block.end where none does.
  static int64_t first_to_read_sealed(const Block& block, int64_t page) {
    const KvView& view = block.sequence->view;
    return page < view.first_raw ? block.begin : std::clamp(view.span_end(page), block.begin, block.end);
  }
  int rows_of(const Block& block) const { return static_cast<int>(block.end - block.begin) * group_; }
  int row_of(const Block& block, int64_t position) const {
    return static_cast<int>(position - block.begin) * group_;
  }
  RowShape row_shape(const Block& block, Side side) const {
    return shape_.row_shape(side, block.sequence->view.scheme);
  }
  int64_t stride() const { return round_up(shape_.value_dim, 16); }

  const AttendBatch& batch_;
  const Isa isa_;
  const AttendKernels& kernels_;
  const RowCodec& raw_;
  const PrefillScratch& scratch_;
  const KvLayerShape shape_;
  const int group_;
};

void PrefillWorker::gather_queries(const Block& block) {
  const float scale = batch_.scale * kLog2E;
  const int64_t width = int64_t{group_} * shape_.key_dim;
  float* to = scratch_.queries;
  for (int64_t p = block.begin; p < block.end; ++p, to += width) {
    const int64_t row = block.sequence->first_row + (p - block.sequence->position);
    const float* from =
        batch_.queries + (row * batch_.q_heads + int64_t{block.head} * group_) * shape_.key_dim;
    for (int64_t i = 0; i < width; ++i) to[i] = scale * from[i];
  }
}

void PrefillWorker::start(const Block& block) {
  const int64_t padded = round_up(rows_of(block), kernels_.tile_rows);
  std::fill(scratch_.max, scratch_.max + padded, kNoScore);
  std::fill(scratch_.sum, scratch_.sum + padded, 0.0f);
  std::fill(scratch_.acc, scratch_.acc + padded * stride(), 0.0f);
  std::fill(scratch_.visible, scratch_.visible + padded, uint64_t{0});
  if (batch_.sinks == nullptr) return;
  for (int row = 0; row < rows_of(block); row += group_) {
    start_with_sinks(batch_.sinks + block.head * group_, group_,
                     {scratch_.max + row, scratch_.sum + row, nullptr, 0});
  }
}

// Rows of a record into scratch_.page, [64][dim]; those that no query of the block sees become zeros, for
// they may hold anything.
void PrefillWorker::unpack(const RowCodec& codec, const RowShape& shape, const Record& record,
                           uint64_t live) {
  codec.expand(shape, record, scratch_.page);
  for (uint64_t dead = ~live; dead != 0; dead &= dead - 1) {
    std::fill_n(scratch_.page + __builtin_ctzll(dead) * shape.dim, shape.dim, 0.0f);
  }
}

// Gives the rows of scratch_.page what they were coded without, in the format's basis.
void PrefillWorker::add_centre(const Block& block, int64_t page, uint64_t centred) {
  const KvView& view = block.sequence->view;
  const int dim = shape_.key_dim;
  centre_rows(view.centre.head(block.head), dim, *view.centre.rotary, page, scratch_.centre);
  view.scheme.key->cpu(isa_)->turn(row_shape(block, Side::kKey), kPageRows, scratch_.centre);
  for (; centred != 0; centred &= centred - 1) {
    const int64_t at = __builtin_ctzll(centred) * int64_t{dim};
    for (int64_t i = at; i < at + dim; ++i) scratch_.page[i] += scratch_.centre[i];
  }
}

// The pinned rows, in the basis of a side's format, to their places in scratch_.page.
void PrefillWorker::put_pinned(const Block& block, const RowCodec& codec, Side side) {
  const RawPage& pinned = block.sequence->view.pinned;
  const std::byte* rows = side == Side::kKey ? pinned.key(block.head) : pinned.value(block.head);
  raw_.expand(row_shape(block, side), {rows, kPinnedRows}, scratch_.page);
  if (block.sequence->view.scheme.format(side).seals)
    codec.turn(row_shape(block, side), kPinnedRows, scratch_.page);
}

template <typename Visible>
void PrefillWorker::attend_page(const Block& block, int64_t first, int64_t end, const RowCodec& key_codec,
                                const Record& key, const RowCodec& value_codec, const Record& value,
                                const Visible& visible, int64_t sealed_page) {
  const KvView& view = block.sequence->view;
  uint64_t live = 0;
  for (int64_t p = first; p < end; ++p) {
    const uint64_t bits = visible(p);
    live |= bits;
    std::fill_n(scratch_.visible + row_of(block, p), group_, bits);
  }
  const int first_row = row_of(block, first), end_row = row_of(block, end);
  if (live != 0) {
    unpack(key_codec, row_shape(block, Side::kKey), key, live);
    const bool centred = sealed_page >= 0 && view.centre && key.tail->centred != 0;
    const bool with_pinned = sealed_page == 0 && pinned_in_page(view);
    if (centred) add_centre(block, sealed_page, key.tail->centred & live);
    if (with_pinned) put_pinned(block, key_codec, Side::kKey);
    kernels_.pack_keys(scratch_.page, shape_.key_dim, scratch_.packed_keys);
    unpack(value_codec, row_shape(block, Side::kValue), value, live);
    if (with_pinned) put_pinned(block, value_codec, Side::kValue);
    kernels_.pack_values(scratch_.page, shape_.value_dim, scratch_.packed_values);
    const PrefillBlock page{rows_of(block),          shape_.key_dim,
                            shape_.value_dim,        {scratch_.max, scratch_.sum, scratch_.acc, stride()},
                            scratch_.packed_queries, scratch_.packed_keys,
                            scratch_.packed_values,  scratch_.visible,
                            scratch_.kernel};
    kernels_.attend_page(page, first_row, end_row);
  }
  std::fill(scratch_.visible + first_row, scratch_.visible + end_row, uint64_t{0});
}

void PrefillWorker::attend_sealed(const Block& block) {
  const KvView& view = block.sequence->view;
  const RowCodec& key_codec = *view.scheme.key->cpu(isa_);
  const RowCodec& value_codec = *view.scheme.value->cpu(isa_);
  const RecordOffsets& offsets = view.sealed_layout->heads[static_cast<size_t>(block.head)];
  const bool pinned_elsewhere = view.scheme.pins() && !pinned_in_page(view);
  // The first position sees furthest back, the last furthest forward.
  VisiblePages pages(view.window, block.begin);
  pages.end = view.raw_begin(block.end - 1);
  for (int64_t ordinal = 0; ordinal < pages.count(); ++ordinal) {
    const int64_t page = pages.page(ordinal);
    const int64_t first = first_to_read_sealed(block, page);
    const auto visible = [&](int64_t p) {
      const uint64_t bits = visible_rows(view.window, p, page);
      return page == 0 && pinned_elsewhere ? bits & ~kPinnedBits : bits;
    };
    const std::byte* base = view.sealed_page(page);
    if (base == nullptr) continue;  // seen by none of the rows
    Record key{base + offsets.key}, value{base + offsets.value};
    if (view.scheme.seals()) key.tail = value.tail = reinterpret_cast<const RecordTail*>(base + offsets.tail);
    attend_page(block, first, block.end, key_codec, key, value_codec, value, visible, page);
  }
}

void PrefillWorker::attend_pinned(const Block& block) {
  const KvView& view = block.sequence->view;
  const int64_t first = first_to_read_sealed(block, 0);
  if (!view.scheme.pins() || pinned_in_page(view) || first >= block.end) return;
  attend_page(block, first, block.end, raw_, {view.pinned.key(block.head), kPinnedRows}, raw_,
              {view.pinned.value(block.head), kPinnedRows},
              [&](int64_t p) { return visible_rows(view.window, p, 0) & kPinnedBits; });
}

void PrefillWorker::attend_own_pages(const Block& block) {
  const KvView& view = block.sequence->view;
  for (int64_t page = view.raw_begin(block.begin); page <= page_of(block.end - 1); ++page) {
    const int64_t first = std::max(block.begin, page * kPageRows);
    const int64_t end = std::min(block.end, view.span_end(page));
    const int rows = static_cast<int>(std::min(end, (page + 1) * kPageRows) - page * kPageRows);
    const RawPage& raw = view.raw_page(page);
    attend_page(block, first, end, raw_, {raw.key(block.head), rows}, raw_, {raw.value(block.head), rows},
                [&](int64_t p) { return visible_rows(view.window, p, page); });
  }
}

void PrefillWorker::turn_back(const Block& block) {
  const RowCodec& codec = *block.sequence->view.scheme.value->cpu(isa_);
  // All at once where rows stand without a gap: what a codec works out beforehand it works out once.
  if (stride() == shape_.value_dim)
    return codec.finish(row_shape(block, Side::kValue), rows_of(block), scratch_.acc);
  for (int row = 0; row < rows_of(block); ++row) {
    codec.finish(row_shape(block, Side::kValue), 1, scratch_.acc + row * stride());
  }
}

void PrefillWorker::write_out(const Block& block) {
  for (int64_t p = block.begin; p < block.end; ++p) {
    const int64_t step_row = block.sequence->first_row + (p - block.sequence->position);
    float* out = batch_.out + (step_row * batch_.q_heads + int64_t{block.head} * group_) * shape_.value_dim;
    for (int h = 0; h < group_; ++h, out += shape_.value_dim) {
      const int row = row_of(block, p) + h;
      const float factor = 1.0f / scratch_.sum[row];
      for (int i = 0; i < shape_.value_dim; ++i) out[i] = factor * scratch_.acc[row * stride() + i];
    }
  }
}

void PrefillWorker::attend(const Block& block) {
  const KvScheme& scheme = block.sequence->view.scheme;
  const int rows = rows_of(block);
  start(block);
  gather_queries(block);
  if (scheme.key->seals) {
    scheme.key->cpu(isa_)->turn(row_shape(block, Side::kKey), rows, scratch_.queries);
    kernels_.pack_queries(scratch_.queries, rows, shape_.key_dim, scratch_.packed_queries);
    attend_sealed(block);
    gather_queries(block);
    kernels_.pack_queries(scratch_.queries, rows, shape_.key_dim, scratch_.packed_queries);
  } else {
    kernels_.pack_queries(scratch_.queries, rows, shape_.key_dim, scratch_.packed_queries);
    attend_sealed(block);
  }
  if (scheme.value->seals) turn_back(block);
  attend_pinned(block);
  attend_own_pages(block);
  write_out(block);
}

// Positions of a block: smaller than they might be where workers would have too few items.
int block_positions_for(const AttendBatch& batch, int group, int kv_heads, int workers) {
  constexpr int kItemsPerWorker = 4, kFewestRows = 48;
  int64_t rows = 0;
  for (int s = 0; s < batch.count; ++s) {
    if (batch.sequences[s].rows >= kPrefillRows) rows += batch.sequences[s].rows;
  }
  int positions = block_positions(group);
  while (positions > 1 && positions / 2 * group >= kFewestRows &&
         rows / positions * kv_heads < int64_t{kItemsPerWorker} * workers) {
    positions /= 2;
  }
  return positions;
}

// Deals items to workers there and back (0 1 2 2 1 0 0 1 ...): neighbours in the list cost about the same.
class Dealer {
 public:
  explicit Dealer(const Worker& worker) : index_(worker.index()), count_(worker.count()) {}
  bool mine() {
    const int64_t turn = next_++ % (2 * count_);
    return (turn < count_ ? turn : 2 * count_ - 1 - turn) == index_;
  }

 private:
  int64_t index_, count_;
  int64_t next_ = 0;
};

}  // namespace

void attend_prefill(const AttendBatch& batch, Isa isa, const AttendScratch& scratch, const Worker& worker) {
  const int kv_heads = batch.sequences[0].view.shape.kv_heads;
  const int positions = block_positions_for(batch, batch.q_heads / kv_heads, kv_heads, worker.count());
  PrefillWorker prefill(batch, isa, scratch);
  Dealer dealer(worker);
  for (int s = 0; s < batch.count; ++s) {
    const AttendSequence& sequence = batch.sequences[s];
    if (sequence.rows < kPrefillRows) continue;
    const int64_t end = sequence.position + sequence.rows;
    // Blocks stand at multiples of their size; the last, which cost most, come first.
    for (int64_t begin = (end - 1) / positions * positions; begin + positions > sequence.position;
         begin -= positions) {
      for (int head = 0; head < kv_heads; ++head) {
        if (!dealer.mine()) continue;
        prefill.attend(
            {&sequence, head, std::max(begin, sequence.position), std::min(begin + positions, end)});
      }
    }
  }
}

}  // namespace butter::cpu
