// Decode: a few rows a sequence, bound by the memory that their keys and values take.
//
// A row's sealed pages are cut into ranges; a unit of work is (range, row) for some of the KV heads. A worker
// owns a stretch of the list of units and walks it page by page with the heads inside, in the order of
// memory. Every (unit, head) leaves a partial softmax state in the format's basis; after a barrier, each
// (row, KV head) merges its states in order, turns the sum back once, and adds the state of the raw rows.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/attend_plan.h"
#include "kernels/cpu/formats.h"

namespace butter::cpu {
namespace {

constexpr uint64_t kPinnedBits = (uint64_t{1} << kPinnedRows) - 1;

// A partial state of one KV head within `part_floats` floats: max [group], sum [group], acc
// [group][value_dim].
SoftmaxState state_in(float* part, int group, int value_dim) {
  return {part, part + group, part + 2 * group, value_dim};
}

void clear(const SoftmaxState& state, int group) {
  std::fill(state.max, state.max + group, kNoScore);
  std::fill(state.sum, state.sum + group, 0.0f);
  std::fill(state.acc, state.acc + group * state.stride, 0.0f);
}

// to += from. Sums of `heads` heads with the same stride.
void merge(const SoftmaxState& to, const SoftmaxState& from, int heads) {
  for (int h = 0; h < heads; ++h) {
    const float max = std::max(to.max[h], from.max[h]);
    const float keep = std::exp2(to.max[h] - max), take = std::exp2(from.max[h] - max);
    to.max[h] = max;
    to.sum[h] = keep * to.sum[h] + take * from.sum[h];
    float* acc = to.acc + h * to.stride;
    const float* other = from.acc + h * from.stride;
    for (int64_t i = 0; i < to.stride; ++i) acc[i] = keep * acc[i] + take * other[i];
  }
}

// Rows of a sealed page that a query at p sees in the record itself: pinned rows stand elsewhere.
uint64_t visible_in_record(const KvView& view, int64_t p, int64_t page) {
  const uint64_t visible = visible_rows(view.window, p, page);
  return page == 0 && view.scheme.pins() ? visible & ~kPinnedBits : visible;
}

// --- planning: the same integers on every worker -------------------------------------------------

// Walks a batch's decode rows, a round at a time.
class RoundPlanner {
 public:
  RoundPlanner(const AttendBatch& batch, const AttendScratch& scratch) : batch_(batch), scratch_(scratch) {}

  // Fills scratch.decode.units and rows for the next rows that fit; false when there are none.
  bool next();
  int64_t unit_count() const { return unit_count_; }
  int64_t row_count() const { return row_count_; }
  int64_t total_cost() const { return total_cost_; }

 private:
  void add_rows(const AttendSequence& sequence, int begin, int end);

  const AttendBatch& batch_;
  const AttendScratch& scratch_;
  int sequence_ = 0;
  int row_ = 0;
  int64_t unit_count_ = 0;
  int64_t row_count_ = 0;
  int64_t part_count_ = 0;
  int64_t total_cost_ = 0;
};

VisiblePages sealed_pages(const KvView& view, int64_t p) {
  return {view.window, p, view.raw_begin(p)};
}

int64_t sealed_parts(const AttendSequence& sequence, int row) {
  return range_count(sealed_pages(sequence.view, sequence.position + row).count());
}

bool RoundPlanner::next() {
  unit_count_ = row_count_ = part_count_ = total_cost_ = 0;
  int64_t parts = 0;  // that the rows taken so far need
  for (; sequence_ < batch_.count; ++sequence_, row_ = 0) {
    const AttendSequence& sequence = batch_.sequences[sequence_];
    if (sequence.rows >= kPrefillRows) continue;
    const int begin = row_;
    while (row_ < sequence.rows && parts + sealed_parts(sequence, row_) + 1 <= scratch_.round_parts) {
      parts += sealed_parts(sequence, row_) + 1;
      ++row_;
    }
    add_rows(sequence, begin, row_);
    if (row_ < sequence.rows) {
      BUTTER_CHECK(row_count_ > 0);  // a round has room for any one row
      break;
    }
  }
  return row_count_ > 0;
}

// Units of rows of one sequence: its rows inside a range, so that they find the range's pages in the cache.
void RoundPlanner::add_rows(const AttendSequence& sequence, int begin, int end) {
  RowPlan* const plans = scratch_.decode.rows + row_count_;
  int64_t ranges = 0;
  for (int row = begin; row < end; ++row) {
    const int64_t parts = sealed_parts(sequence, row) + 1;
    scratch_.decode.rows[row_count_++] = {&sequence, row, part_count_, parts};
    part_count_ += parts;
    ranges = std::max(ranges, parts - 1);
  }
  for (int64_t range = 0; range <= ranges; ++range) {
    for (int row = begin; row < end; ++row) {
      const RowPlan& plan = plans[row - begin];
      if (range >= plan.parts) continue;
      const int64_t pages = sealed_pages(sequence.view, sequence.position + row).count();
      const int64_t size = range_pages(pages);
      Unit unit{&sequence,
                row,
                range == plan.parts - 1,
                range * size,
                std::min(pages, (range + 1) * size),
                plan.first_part + range};
      scratch_.decode.units[unit_count_++] = unit;
      total_cost_ += unit.cost();
    }
  }
}

// --- one worker's part of a round ----------------------------------------------------------------

struct HeadSpan {
  int begin = 0;
  int end = 0;
};

// The (unit, head) pairs of a worker: those that begin within its share of the round's cost.
class Share {
 public:
  Share(int64_t total_cost, int kv_heads, const Worker& worker)
      : kv_heads_(kv_heads), range_(worker.slice(total_cost * kv_heads)) {}

  bool done(int64_t unit_begin) const { return unit_begin * kv_heads_ >= range_.end; }
  // Heads of a unit that begins `unit_begin` into the round's cost.
  HeadSpan heads(int64_t unit_begin, int64_t unit_cost) const {
    return {first_head(range_.begin - unit_begin * kv_heads_, unit_cost),
            first_head(range_.end - unit_begin * kv_heads_, unit_cost)};
  }

 private:
  int first_head(int64_t offset, int64_t cost) const {
    return static_cast<int>(std::clamp<int64_t>((offset + cost - 1) / cost, 0, kv_heads_));
  }

  int kv_heads_;
  IndexRange range_;
};

class DecodeWorker {
 public:
  DecodeWorker(const AttendBatch& batch, Isa isa, const AttendScratch& scratch, const Worker& worker)
      : batch_(batch),
        isa_(isa),
        kernels_(attend_kernels(isa, batch.products)),
        raw_(*raw_codec(isa)),
        scratch_(scratch),
        decode_(scratch.decode),
        worker_(worker),
        shape_(batch.sequences[0].view.shape),
        group_(batch.q_heads / shape_.kv_heads),
        part_stride_(part_floats(group_, shape_.value_dim)) {
    std::fill(decode_.sealed_row, decode_.sealed_row + shape_.kv_heads, -1);
    std::fill(decode_.raw_row, decode_.raw_row + shape_.kv_heads, -1);
  }

  void attend_units(const RoundPlanner& round);
  void merge_rows(const RoundPlanner& round);

 private:
  SoftmaxState part(int64_t index, int head) const {
    return state_in(scratch_.parts + (index * shape_.kv_heads + head) * part_stride_, group_,
                    shape_.value_dim);
  }
  int64_t step_row(const AttendSequence& sequence, int row) const { return sequence.first_row + row; }
  const std::byte* prepared(const Unit& unit, int head, const RowCodec& codec, std::byte* area,
                            int64_t* owner);
  void attend_sealed(const Unit& unit, HeadSpan heads);
  void attend_page(const Unit& unit, HeadSpan heads, int64_t page, uint64_t visible);
  void attend_raw(const Unit& unit, HeadSpan heads);
  void attend_rows(const KvView& view, const RowCodec& key_codec, const RowCodec& value_codec,
                   const std::byte* query, const Record& key, const Record& value, uint64_t visible,
                   const SoftmaxState& state, const CentreScores* centre = nullptr);
  void prepare_centres(const Unit& unit, int head);
  const float** centre_rows(int head) const {
    return decode_.centre_rows + int64_t{head} * max_exact_pairs(shape_.key_dim);
  }
  uint16_t* centre_pairs(int head) const {
    return decode_.centre_pairs + int64_t{head} * kHalves * max_exact_pairs(shape_.key_dim);
  }
  CentreScores centre_of(const CentreView& centre, const PairRotation& turn, int head,
                         uint64_t centred) const;
  void write_out(const RowPlan& plan, int head, const SoftmaxState& state);

  const AttendBatch& batch_;
  const Isa isa_;
  const AttendKernels& kernels_;
  const RowCodec& raw_;
  const AttendScratch& scratch_;
  const DecodeScratch& decode_;
  const Worker& worker_;
  const KvLayerShape shape_;
  const int group_;
  const int64_t part_stride_;
};

// The prepared queries of the unit's row for one KV head, made when the row first asks.
const std::byte* DecodeWorker::prepared(const Unit& unit, int head, const RowCodec& codec, std::byte* area,
                                        int64_t* owner) {
  std::byte* place = area + head * decode_.prepared_stride;
  const int64_t row = step_row(*unit.sequence, unit.row);
  if (owner[head] == row) return place;
  owner[head] = row;
  const float* queries = batch_.queries + (row * batch_.q_heads + int64_t{head} * group_) * shape_.key_dim;
  const float scale = batch_.scale * kLog2E;
  for (int64_t i = 0; i < int64_t{group_} * shape_.key_dim; ++i) decode_.queries[i] = scale * queries[i];
  const RowShape shape = shape_.row_shape(Side::kKey, unit.sequence->view.scheme);
  BUTTER_CHECK(codec.prepared_bytes(shape, group_) <= decode_.prepared_stride);
  codec.prepare(shape, decode_.queries, group_, place);
  if (area == decode_.prepared_sealed && unit.sequence->view.centre) prepare_centres(unit, head);
  return place;
}

// From decode_.queries, which hold the head's scaled queries.
void DecodeWorker::prepare_centres(const Unit& unit, int head) {
  const CentreView& centre = unit.sequence->view.centre;
  const uint16_t* pairs = exact_pairs_of(centre.head(head), shape_.key_dim);
  const int exact = exact_pairs(*centre.rotary);
  for (int e = 0; e < exact; ++e) centre_rows(head)[e] = centre.rotary->half_rows(pairs[e]).cos;
  for (int k = 0; k < kHalves; ++k) std::copy_n(pairs, exact, centre_pairs(head) + k * exact);
  for (int h = 0; h < group_; ++h) {
    prepare_centre(centre.head(head), shape_.key_dim, *centre.rotary,
                   decode_.queries + int64_t{h} * shape_.key_dim,
                   decode_.centre + (int64_t{head} * group_ + h) * decode_.centre_stride);
  }
}

CentreScores DecodeWorker::centre_of(const CentreView& centre, const PairRotation& turn, int head,
                                     uint64_t centred) const {
  return {group_,
          centre.rotary->pairs(),
          exact_pairs(*centre.rotary),
          decode_.centre + int64_t{head} * group_ * decode_.centre_stride,
          decode_.centre_stride,
          turn.cos,
          turn.sin,
          centre_rows(head),
          centre_pairs(head),
          centred};
}

void DecodeWorker::attend_rows(const KvView& view, const RowCodec& key_codec, const RowCodec& value_codec,
                               const std::byte* query, const Record& key, const Record& value,
                               uint64_t visible, const SoftmaxState& state, const CentreScores* centre) {
  key_codec.score(shape_.row_shape(Side::kKey, view.scheme), query, group_, key, decode_.scores);
  if (centre != nullptr) kernels_.add_centre(*centre, decode_.scores);
  kernels_.soften(decode_.scores, group_, visible, shape_.value_dim, state);
  value_codec.accumulate(shape_.row_shape(Side::kValue, view.scheme), decode_.scores, group_, value,
                         state.acc);
}

// Fetches what the verbs, which fetch what stands behind the record at work, will miss of page `page`, the
// one after the page whose block is given: the tails, the page's turn, and its beginning where it is
// somewhere else.
void fetch_page(const KvView& view, int64_t page, HeadSpan heads, const std::byte* block_before) {
  const std::byte* block = view.sealed_page(page);
  if (block == nullptr) return;
  const RecordOffsets& first = view.sealed_layout->heads[static_cast<size_t>(heads.begin)];
  if (view.scheme.seals()) fetch_line(block + first.tail);
  if (view.centre) {
    const RotaryTable& rotary = *view.centre.rotary;
    if (const float* turn = rotary.stored(page))
      fetch_lines(reinterpret_cast<const std::byte*>(turn), 8 * int64_t{rotary.pairs()});
  }
  if (block != block_before + view.sealed_layout->bytes) fetch_lines(block + first.key, kAheadBytes);
}

void DecodeWorker::attend_sealed(const Unit& unit, HeadSpan heads) {
  const KvView& view = unit.sequence->view;
  const VisiblePages pages = sealed_pages(view, unit.position());
  for (int64_t ordinal = unit.first; ordinal < unit.end; ++ordinal) {
    const int64_t page = pages.page(ordinal);
    const uint64_t visible = visible_in_record(view, unit.position(), page);
    if (visible == 0) continue;
    if (ordinal + 1 < pages.count()) fetch_page(view, pages.page(ordinal + 1), heads, view.sealed_page(page));
    attend_page(unit, heads, page, visible);
  }
}

void DecodeWorker::attend_page(const Unit& unit, HeadSpan heads, int64_t page, uint64_t visible) {
  const KvView& view = unit.sequence->view;
  const RowCodec& key_codec = *view.scheme.key->cpu(isa_);
  const RowCodec& value_codec = *view.scheme.value->cpu(isa_);
  const std::byte* block = view.sealed_page(page);
  PairRotation turn;
  if (view.centre) turn = view.centre.rotary->page(page, decode_.page_turn);
  for (int head = heads.begin; head < heads.end; ++head) {
    const std::byte* query = prepared(unit, head, key_codec, decode_.prepared_sealed, decode_.sealed_row);
    const RecordOffsets& offsets = view.sealed_layout->heads[static_cast<size_t>(head)];
    const auto* tail =
        view.scheme.seals() ? reinterpret_cast<const RecordTail*>(block + offsets.tail) : nullptr;
    const Record key{block + offsets.key, kPageRows, tail}, value{block + offsets.value, kPageRows, tail};
    const SoftmaxState state = part(unit.part, head);
    if (view.centre && tail->centred != 0) {
      const CentreScores centre = centre_of(view.centre, turn, head, tail->centred);
      attend_rows(view, key_codec, value_codec, query, key, value, visible, state, &centre);
    } else {
      attend_rows(view, key_codec, value_codec, query, key, value, visible, state);
    }
  }
}

void DecodeWorker::attend_raw(const Unit& unit, HeadSpan heads) {
  const KvView& view = unit.sequence->view;
  const int64_t p = unit.position(), first = view.raw_begin(p);
  const uint64_t pinned = first > 0 && view.scheme.pins() ? visible_rows(view.window, p, 0) & kPinnedBits : 0;
  for (int head = heads.begin; head < heads.end; ++head) {
    const std::byte* query = prepared(unit, head, raw_, decode_.prepared_raw, decode_.raw_row);
    const SoftmaxState state = part(unit.part, head);
    if (pinned != 0) {
      attend_rows(view, raw_, raw_, query, {view.pinned.key(head), kPinnedRows},
                  {view.pinned.value(head), kPinnedRows}, pinned, state);
    }
    for (int64_t number = first; number <= page_of(p); ++number) {
      const RawPage& page = view.raw_page(number);
      const int rows = number == page_of(p) ? static_cast<int>(p % kPageRows) + 1 : kPageRows;
      const uint64_t visible = visible_rows(view.window, p, number);
      if (visible == 0) continue;
      attend_rows(view, raw_, raw_, query, {page.key(head), rows}, {page.value(head), rows}, visible, state);
    }
  }
}

void DecodeWorker::attend_units(const RoundPlanner& round) {
  const Share share(round.total_cost(), shape_.kv_heads, worker_);
  int64_t begin = 0;
  for (int64_t u = 0; u < round.unit_count() && !share.done(begin); begin += decode_.units[u++].cost()) {
    const Unit& unit = decode_.units[u];
    const HeadSpan heads = share.heads(begin, unit.cost());
    if (heads.begin >= heads.end) continue;  // all of them are another worker's
    for (int head = heads.begin; head < heads.end; ++head) clear(part(unit.part, head), group_);
    if (unit.raw) {
      attend_raw(unit, heads);
    } else {
      attend_sealed(unit, heads);
    }
  }
}

void DecodeWorker::write_out(const RowPlan& plan, int head, const SoftmaxState& state) {
  float* out = batch_.out + (step_row(*plan.sequence, plan.row) * batch_.q_heads + int64_t{head} * group_) *
                                shape_.value_dim;
  for (int h = 0; h < group_; ++h) {
    const float factor = 1.0f / state.sum[h];
    for (int64_t i = 0; i < shape_.value_dim; ++i) {
      out[h * int64_t{shape_.value_dim} + i] = factor * state.acc[h * state.stride + i];
    }
  }
}

void DecodeWorker::merge_rows(const RoundPlanner& round) {
  const IndexRange mine = worker_.slice(round.row_count() * shape_.kv_heads);
  const SoftmaxState merged = state_in(decode_.merged, group_, shape_.value_dim);
  for (int64_t item = mine.begin; item < mine.end; ++item) {
    const RowPlan& plan = decode_.rows[item / shape_.kv_heads];
    const int head = static_cast<int>(item % shape_.kv_heads);
    const KvScheme& scheme = plan.sequence->view.scheme;
    clear(merged, group_);
    if (batch_.sinks != nullptr) start_with_sinks(batch_.sinks + head * group_, group_, merged);
    const int64_t raw_part = plan.first_part + plan.parts - 1;
    for (int64_t index = plan.first_part; index < raw_part; ++index) merge(merged, part(index, head), group_);
    scheme.value->cpu(isa_)->finish(shape_.row_shape(Side::kValue, scheme), group_, merged.acc);
    merge(merged, part(raw_part, head), group_);
    write_out(plan, head, merged);
  }
}

}  // namespace

void attend_decode(const AttendBatch& batch, Isa isa, const AttendScratch& scratch, const Worker& worker) {
  RoundPlanner round(batch, scratch);
  DecodeWorker decode(batch, isa, scratch, worker);
  for (bool first = true; round.next(); first = false) {
    if (!first) worker.barrier();  // the states of the last round have been merged
    decode.attend_units(round);
    worker.barrier();
    decode.merge_rows(round);
  }
}

}  // namespace butter::cpu
