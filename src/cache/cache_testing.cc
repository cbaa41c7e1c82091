#include "cache/cache_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace butter {
namespace {

constexpr int64_t kStampBytes = 8;

int64_t stamp_record_bytes(const RowShape&) {
  return kPageRows * kStampBytes + 5;
}
bool any_dim(int) {
  return true;
}
const RowCodec* no_codec(Isa) {
  return nullptr;
}

struct RowPlace {
  int64_t position;
  int layer;
  int head;
  Side side;
};

// Raw rows are finite numbers whatever their type: one bit of each exponent stays 0.
constexpr uint64_t kFinite = 0xbfffbfffbfffbfffu;

// splitmix64's mixing, over all that makes a row what it is.
uint64_t stamp(uint32_t token, const RowPlace& place) {
  uint64_t z = token * 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(place.position) << 20 ^
               static_cast<uint64_t>(place.layer) << 12 ^ static_cast<uint64_t>(place.head) << 4 ^
               (place.side == Side::kKey ? 1u : 2u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) & kFinite;
}

uint64_t load(const std::byte* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

int64_t record_offset(const LayerLayout& layout, int head, Side side) {
  const RecordOffsets& offsets = layout.heads[static_cast<size_t>(head)];
  return side == Side::kKey ? offsets.key : offsets.value;
}

// One head and side of one layer of one class of a step: where its rows stand.
class StepRows {
 public:
  StepRows(const StepSequence& step, const ClassPages& pages, const KvLayerShape& shape, size_t index,
           int head, Side side)
      : step_(step), pages_(pages), shape_(shape), index_(index), head_(head), side_(side) {
    const RowFormat* format = side == Side::kKey ? step.scheme->key : step.scheme->value;
    raw_bytes_ = raw_rows_bytes(shape.row_shape(side, step.scheme->raw), 1);
    sealed_bytes_ = format == &stamp_format() ? kStampBytes : raw_bytes_;
  }

  void write(const std::vector<uint32_t>& tokens) const {
    const int64_t end = step_.position + step_.rows;
    for (int64_t p = step_.position; p < end; ++p) {
      const uint64_t value = expected(tokens, p);
      if (std::byte* page = raw_page(page_of(p)))
        fill(row(page, pages_.raw_layout, raw_bytes_, p), raw_bytes_, value);
      if (p < kPinnedRows && pages_.pinned != nullptr) {
        fill(row(pages_.pinned, pages_.pinned_layout, raw_bytes_, p), raw_bytes_, value);
      }
    }
    if (!step_.scheme->seals()) return;
    for (int64_t page = page_of(step_.position); page < page_of(end); ++page) seal(tokens, page);
  }

  // Every position that a query at p sees.
  void check(const std::vector<uint32_t>& tokens, int64_t p) const {
    for (int64_t k = 0; k <= p; ++k) {
      if (!pages_.window.sees(p, k) || in_scratch(p, k)) continue;
      const std::byte* at = find(p, k);
      ASSERT_NE(at, nullptr) << "position " << k << " for a query at " << p << ", layer " << shape_.layer;
      ASSERT_EQ(load(at), expected(tokens, k))
          << "position " << k << " for a query at " << p << ", layer " << shape_.layer;
    }
  }

 private:
  static void fill(std::byte* row, int64_t bytes, uint64_t value) {
    for (int64_t i = 0; i + kStampBytes <= bytes; i += kStampBytes) std::memcpy(row + i, &value, kStampBytes);
  }

  uint64_t expected(const std::vector<uint32_t>& tokens, int64_t p) const {
    return stamp(tokens[static_cast<size_t>(p)], {p, shape_.layer, head_, side_});
  }
  std::byte* raw_page(int64_t page) const { return pages_.raw[static_cast<size_t>(page - pages_.first_raw)]; }
  template <typename Base>
  Base* row(Base* block, const BlockLayout* layout, int64_t row_bytes, int64_t p) const {
    return block + record_offset(layout->layers[index_], head_, side_) + p % kPageRows * row_bytes;
  }

  std::byte* sealed_page(int64_t page) const {
    if (page < static_cast<int64_t>(pages_.kept.size())) return pages_.kept[static_cast<size_t>(page)];
    if (page < pages_.first_sealed) return nullptr;
    return pages_.sealed[static_cast<size_t>(page - pages_.first_sealed)];
  }

  void seal(const std::vector<uint32_t>& tokens, int64_t page) const {
    std::byte* block = sealed_page(page);
    std::memset(block + pages_.sealed_layout->layers[index_].heads[static_cast<size_t>(head_)].tail, 0,
                sizeof(RecordTail));
    for (int64_t p = page * kPageRows; p < (page + 1) * kPageRows; ++p) {
      const bool pinned = step_.scheme->pins() && p < kPinnedRows;
      fill(row(block, pages_.sealed_layout, sealed_bytes_, p), sealed_bytes_,
           pinned ? 0 : expected(tokens, p));
    }
  }

  // A query's own page that the step fills has its raw rows in the device's scratch, in schemes that seal.
  bool in_scratch(int64_t p, int64_t k) const {
    return page_of(k) == page_of(p) && raw_page(page_of(k)) == nullptr;
  }

  // Where attention would read position k for a query at p.
  const std::byte* find(int64_t p, int64_t k) const {
    const int64_t page = page_of(k);
    if (page == page_of(p)) return row(raw_page(page), pages_.raw_layout, raw_bytes_, k);
    if (step_.scheme->pins() && k < kPinnedRows)
      return row(pages_.pinned, pages_.pinned_layout, raw_bytes_, k);
    const std::byte* block = sealed_page(page);
    return block == nullptr ? nullptr : row(block, pages_.sealed_layout, sealed_bytes_, k);
  }

  const StepSequence& step_;
  const ClassPages& pages_;
  const KvLayerShape& shape_;
  size_t index_;
  int head_;
  Side side_;
  int64_t raw_bytes_ = 0;
  int64_t sealed_bytes_ = 0;
};

template <typename Each>
void for_each_side(const CacheSet& caches, const StepSequence& step, const Each& each) {
  for (size_t c = 0; c < caches.layout().classes.size(); ++c) {
    const WindowClass& window_class = caches.layout().classes[c];
    for (size_t i = 0; i < window_class.layers.size(); ++i) {
      for (int head = 0; head < window_class.layers[i].kv_heads; ++head) {
        for (Side side : {Side::kKey, Side::kValue}) {
          each(StepRows(step, step.classes[c], window_class.layers[i], i, head, side));
        }
      }
    }
  }
}

}  // namespace

const RowFormat& stamp_format() {
  static const RowFormat format = {"stamps",           true,    false,   0,       0,
                                   stamp_record_bytes, any_dim, nullptr, no_codec};
  return format;
}

KvScheme test_scheme(TestScheme scheme, DType raw) {
  const RowFormat* key = scheme == TestScheme::kRaw ? &raw_format() : &stamp_format();
  const RowFormat* value = scheme == TestScheme::kStamps ? &stamp_format() : &raw_format();
  return {key, value, raw};
}

CacheModel small_model(int64_t model_window) {
  CacheModel model;
  model.layers = 5;
  model.kv_layers = {{0, 2, 16, 8, 0}, {1, 1, 12, 20, 1}, {3, 2, 16, 8, 0}, {4, 3, 4, 4, 1}};
  model.window_classes = {Window{}, Window{model_window, 0}};
  return model;
}

TestPool::TestPool(int64_t budget)
    : pool(std::make_shared<PagePool>(budget,
                                      PagePool::Hooks{[](int64_t bytes) { return Buffer::allocate(bytes); },
                                                      [done = completed] { return *done; }})) {}

TestSequence make_sequence(const CacheModel& model, const CacheOptions& options, const TestPool& pool) {
  auto caches = make_layer_caches(model, options, pool.pool);
  EXPECT_TRUE(caches) << caches.error().message();
  return {std::move(*caches), {}};
}

TestSequence fork(const TestSequence& sequence) {
  auto twin = sequence.caches.fork();
  EXPECT_TRUE(twin) << twin.error().message();
  return {std::move(*twin), sequence.tokens};
}

Status begin_and_write(TestSequence& sequence, const std::vector<uint32_t>& tokens) {
  if (Status status = sequence.caches.begin_step(static_cast<int>(tokens.size())); !status) return status;
  std::vector<uint32_t> all = sequence.tokens;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const StepSequence step = sequence.caches.step_view(0);
  EXPECT_EQ(step.position, static_cast<int64_t>(sequence.tokens.size()));
  for_each_side(sequence.caches, step, [&](const StepRows& rows) { rows.write(all); });
  for_each_side(sequence.caches, step, [&](const StepRows& rows) {
    const int64_t first = step.position, last = first + step.rows - 1;
    rows.check(all, last);
    rows.check(all, first);
  });
  return {};
}

void feed(TestSequence& sequence, const std::vector<uint32_t>& tokens, uint64_t fence) {
  const Status status = begin_and_write(sequence, tokens);
  ASSERT_TRUE(status) << status.error().message();
  sequence.caches.commit_step(fence);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  ASSERT_EQ(sequence.caches.position(), static_cast<int64_t>(sequence.tokens.size()));
}

void feed_many(TestSequence& sequence, int64_t count, int64_t step_rows, uint32_t seed) {
  std::mt19937 random(seed);
  while (count > 0) {
    const int64_t position = sequence.caches.position();
    const int64_t in_page = position % kPageRows;
    const int64_t most =
        step_rows < kPageRows ? std::min(step_rows, kPageRows - in_page) : step_rows - in_page;
    std::vector<uint32_t> tokens(static_cast<size_t>(std::min(count, most)));
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(random());
    feed(sequence, tokens);
    if (testing::Test::HasFatalFailure()) return;
    count -= static_cast<int64_t>(tokens.size());
  }
}

int64_t truncate(TestSequence& sequence, int64_t n, uint64_t fence) {
  const auto reached = sequence.caches.truncate(n, fence);
  EXPECT_TRUE(reached) << reached.error().message();
  EXPECT_EQ(*reached, sequence.caches.position());
  sequence.tokens.resize(static_cast<size_t>(*reached));
  return *reached;
}

void expect_intact(TestSequence& sequence) {
  const Status status = begin_and_write(sequence, {0xabcdu});
  ASSERT_TRUE(status) << status.error().message();
  sequence.caches.abort_step(0);
}

}  // namespace butter
