#include "kernels/attend_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/buffer.h"
#include "kernels/program.h"

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

namespace {

// Pages beyond the first few are worked out when asked for: tests reach both kinds.
constexpr int64_t kRotaryPages = 4;
// Of code rows that no query sees: far off, but not so far that it would coarsen the scales of the page.
constexpr float kPoisonFactor = -6;

RopeTable rope_of(int dim) {
  RopeTable rope;
  for (int i = 0; i < dim / 2; ++i)
    rope.inv_freq.push_back(std::pow(1e5, -2.0 * i / static_cast<double>(dim)));
  return rope;
}

}  // namespace

TestCache::TestCache(const TestCacheOptions& options)
    : options_(options), rotary_(rope_of(options.shape.key_dim).inv_freq, kRotaryPages) {
  const std::vector<KvLayerShape> layers = {options.shape};
  raw_layout_ = raw_layout(layers, options.scheme.raw, kPageRows);
  pinned_layout_ = raw_layout(layers, options.scheme.raw, kPinnedRows);
  sealed_layout_ = sealed_layout(layers, options.scheme);
  pinned_block_ = make_block(pinned_layout_.bytes);
  bias_ = random_floats(options.seed + 99, int64_t{options.shape.kv_heads} * options.shape.key_dim);
  for (float& value : bias_) value *= options.bias;
  make_centre_block();
  const int64_t pages = page_of(options.position + options.rows - 1) + 1;
  raw_blocks_.resize(static_cast<size_t>(pages));
  sealed_pages_.resize(static_cast<size_t>(pages));
  for (int64_t page = 0; page < pages; ++page) fill_page(page);
  for (int64_t page = page_of(options.position); page < pages; ++page)
    raw_pages_.push_back({raw_blocks_[static_cast<size_t>(page)].get(), &raw_layout_.layers[0]});
  reference_runs_ = make_runs(&SealedPage::reference);
  cpu_runs_ = make_runs(&SealedPage::cpu);
}

bool TestCache::hidden(int64_t position) const {
  // The first query that can see it is the one that sees furthest back.
  const int64_t p = std::max(position, options_.position);
  return !options_.window.sees(p, position);
}

float TestCache::written(Side side, int64_t position, int head, int channel) const {
  const int64_t row = (position * options_.shape.kv_heads + head) * 2 + (side == Side::kKey ? 1 : 0);
  float value = random_float(options_.seed, static_cast<uint64_t>(row * 1024 + channel));
  if (side == Side::kValue || options_.bias == 0) return value;
  const int dim = options_.shape.key_dim, pairs = dim / 2;
  const float* b = bias_.data() + int64_t{head} * dim;
  if (channel >= 2 * pairs) return value + b[channel];
  const int pair = channel % pairs;
  const double angle = static_cast<double>(position) * std::pow(1e5, -2.0 * pair / static_cast<double>(dim));
  const double x = b[pair], y = b[pair + pairs];
  return value + static_cast<float>(channel < pairs ? std::cos(angle) * x - std::sin(angle) * y
                                                    : std::sin(angle) * x + std::cos(angle) * y);
}

// From page 0 as it was written, whether or not a query still sees it.
void TestCache::make_centre_block() {
  const KvLayerShape& shape = options_.shape;
  if (!options_.scheme.centres() || options_.position + options_.rows < kPageRows) return;
  centre_layout_ = centre_layout({shape});
  centre_block_ = make_block(centre_layout_.bytes);
  std::vector<float> keys(static_cast<size_t>(kPageRows * shape.key_dim));
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto position = static_cast<int64_t>(i) / shape.key_dim;
      const int channel = static_cast<int>(static_cast<int64_t>(i) % shape.key_dim);
      std::byte bytes[4];
      store_raw(options_.scheme.raw, written(Side::kKey, position, head, channel), bytes);
      keys[i] = load_raw(options_.scheme.raw, bytes);
    }
    make_centre(keys.data(), shape.key_dim, rotary_,
                centre_block_.get() + centre_layout_.layers[0].heads[static_cast<size_t>(head)].key);
  }
}

// Writes a page's rows as the engine would: raw, sealed when full, positions 0..3 pinned; then poisons what
// is hidden.
void TestCache::fill_page(int64_t page) {
  const KvLayerShape& shape = options_.shape;
  const DType raw = options_.scheme.raw;
  const int64_t end = options_.position + options_.rows;
  const int64_t value_bytes = dtype_info(raw).block_bytes;
  Block raw_block = make_block(raw_layout_.bytes);
  SealedPage sealed{make_block(sealed_layout_.bytes), make_block(sealed_layout_.bytes)};
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
      const bool lossy = options_.scheme.format(side).lossy;
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
          const auto index = static_cast<size_t>(r * row.dim + i);
          const bool pin = position < kPinnedRows && options_.scheme.pins();
          if (!pin) to_seal[index] = load_raw(raw, rows + at);
          if (!pin && poison && lossy) to_seal[index] = kPoisonFactor * written(side, position, head, i);
          if (position < kPinnedRows)
            store_raw(raw, value, pinned_block_.get() + offset(pinned_layout_) + at);
        }
      }
      if (full) seal(row, page, to_seal, head, sealed);
    }
  }
  const auto index = static_cast<size_t>(page);
  if (full && !all_hidden) sealed_pages_[index] = std::move(sealed);
  if (page >= page_of(options_.position)) raw_blocks_[index] = std::move(raw_block);
}

// Encodes a page's rows by the reference, and brings them to the CPU's order.
void TestCache::seal(const RowShape& row, int64_t page, std::vector<float>& rows, int head,
                     const SealedPage& sealed) const {
  const RecordOffsets& offsets = sealed_layout_.layers[0].heads[static_cast<size_t>(head)];
  const RowFormat& format = options_.scheme.format(row.side);
  const bool is_key = row.side == Side::kKey;
  Buffer scratch = Buffer::allocate(encode_scratch_bytes(row.dim)).value();
  RecordTail none;
  auto* tail =
      options_.scheme.seals() ? reinterpret_cast<RecordTail*>(sealed.reference.get() + offsets.tail) : &none;
  if (is_key) *tail = {};
  if (is_key && centre_block_ != nullptr) {
    std::vector<float> centre_rows(rows.size());
    tail->centred =
        subtract_centre(centre_block_.get() + centre_layout_.layers[0].heads[static_cast<size_t>(head)].key,
                        row.dim, rotary_, page, rows.data(), centre_rows.data());
    if (page == 0 && options_.scheme.pins()) {
      tail->centred &= ~((uint64_t{1} << kPinnedRows) - 1);
      std::fill_n(rows.begin(), kPinnedRows * row.dim, 0.0f);
    }
  }
  const int64_t at = is_key ? offsets.key : offsets.value;
  std::byte* record = sealed.reference.get() + at;
  format.reference->encode(row, rows.data(), record, tail, scratch.data());
  const RowCodec& cpu = *format.cpu(Isa::kPortable);  // of which all instruction sets share the order
  if (cpu.import_record != nullptr) {
    cpu.import_record(row, record, sealed.cpu.get() + at);
  } else {
    std::memcpy(sealed.cpu.get() + at, record, static_cast<size_t>(format.record_bytes(row)));
  }
  if (options_.scheme.seals()) std::memcpy(sealed.cpu.get() + offsets.tail, tail, sizeof *tail);
}

TestCache::SealedRuns TestCache::make_runs(Block SealedPage::*order) const {
  SealedRuns runs;
  const VisiblePages pages(options_.window, options_.position);
  for (int64_t page = 0; page < pages.kept_end; ++page)
    runs.kept.push_back((sealed_pages_[static_cast<size_t>(page)].*order).get());
  for (size_t page = static_cast<size_t>(pages.recent_begin); page < sealed_pages_.size(); ++page)
    runs.sealed.push_back((sealed_pages_[page].*order).get());
  return runs;
}

KvView TestCache::make_view(const SealedRuns& runs) const {
  KvView view;
  view.shape = options_.shape;
  view.scheme = options_.scheme;
  view.window = options_.window;
  view.first_raw = page_of(options_.position);
  view.end_raw = static_cast<int64_t>(raw_blocks_.size());
  view.raw = raw_pages_.data();
  const VisiblePages pages(options_.window, options_.position);
  view.kept_end = pages.kept_end;
  view.first_sealed = pages.recent_begin;
  view.end_sealed = view.end_raw;
  view.kept = runs.kept.data();
  view.sealed = runs.sealed.data();
  view.sealed_layout = &sealed_layout_.layers[0];
  if (options_.scheme.pins()) view.pinned = {pinned_block_.get(), &pinned_layout_.layers[0]};
  if (centre_block_ != nullptr) view.centre = {centre_block_.get(), &centre_layout_.layers[0], &rotary_};
  return view;
}

AttendSequence TestCache::sequence(int first_row) const {
  return {make_view(reference_runs_), options_.position, first_row, options_.rows};
}

AttendSequence TestCache::cpu_sequence(int first_row) const {
  return {make_view(cpu_runs_), options_.position, first_row, options_.rows};
}

AttendCase::AttendCase(const std::vector<TestCacheOptions>& options, int group) {
  const KvLayerShape& shape = options[0].shape;
  batch.q_heads = group * shape.kv_heads;
  batch.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  int rows = 0;
  for (const TestCacheOptions& option : options) {
    caches.push_back(std::make_unique<TestCache>(option));
    sequences.push_back(caches.back()->sequence(rows));
    cpu_sequences.push_back(caches.back()->cpu_sequence(rows));
    // A row's query depends on its sequence and position alone, so that it is the same in any batch.
    for (int row = 0; row < option.rows; ++row) {
      const auto seed = option.seed * 1000003 + static_cast<uint64_t>(option.position + row) + 77;
      const std::vector<float> query = random_floats(seed, int64_t{batch.q_heads} * shape.key_dim);
      queries.insert(queries.end(), query.begin(), query.end());
    }
    rows += option.rows;
    max_positions = std::max(max_positions, option.position + option.rows);
  }
  batch.count = static_cast<int>(sequences.size());
  batch.queries = queries.data();
  limits = {rows, max_positions, batch.q_heads, shape.kv_heads, shape.key_dim, shape.value_dim, 1};
  out_width = int64_t{batch.q_heads} * shape.value_dim;
}

std::vector<float> AttendCase::reference() {
  std::vector<float> out(static_cast<size_t>(limits.rows * out_width), NAN);
  batch.out = out.data();
  batch.sequences = sequences.data();
  reference::attend(batch);
  return out;
}

std::vector<float> AttendCase::cpu(Isa isa, int workers) {
  std::vector<float> out(static_cast<size_t>(limits.rows * out_width), NAN);
  batch.out = out.data();
  batch.sequences = cpu_sequences.data();
  limits.workers = workers;
  const int64_t bytes = cpu::attend_scratch_bytes(limits);
  const auto scratch = std::make_unique<std::byte[]>(static_cast<size_t>(bytes + Buffer::kAlignment));
  std::fill_n(scratch.get(), bytes + Buffer::kAlignment, std::byte{0xff});
  const auto address = reinterpret_cast<uintptr_t>(scratch.get());
  std::byte* aligned =
      scratch.get() + (Buffer::kAlignment - address % Buffer::kAlignment) % Buffer::kAlignment;
  ThreadPool pool(workers);
  pool.run([&](const Worker& worker) { cpu::attend(batch, isa, aligned, worker); });
  return out;
}

std::string describe_case(const TestCacheOptions& o, int group, Isa isa) {
  return fmt::format("{} d {}/{} group {} {} {}/{}{} position {} rows {} window {}/{} bias {}", isa_name(isa),
                     o.shape.key_dim, o.shape.value_dim, group, dtype_name(o.scheme.raw), o.scheme.key->name,
                     o.scheme.value->name, o.scheme.plain ? ":plain" : "", o.position, o.rows,
                     o.window.max_size, o.window.keep, o.bias);
}

std::vector<KvScheme> code_schemes() {
  std::vector<KvScheme> schemes;
  for (const RowFormat* format : row_formats()) {
    if (format->lossy) schemes.push_back({format, format, DType::kF16});
  }
  const std::pair<const char*, const char*> pairs[] = {{"aura3", "aura2"},   {"affine8", "aura2"},
                                                       {"aura4", "affine4"}, {"raw", "aura4"},
                                                       {"aura3", "raw"},     {"aura8", "affine6g128"}};
  for (const auto& [key, value] : pairs)
    schemes.push_back({find_row_format(key), find_row_format(value), DType::kF16});
  for (const char* name : {"aura4", "affine4", "affine8"})
    schemes.push_back({find_row_format(name), find_row_format(name), DType::kBF16, true});
  return schemes;
}

double worst_share(const std::vector<float>& out, const std::vector<float>& expected, int width) {
  double worst = 0;
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(width)) {
    double error = 0, norm = 0;
    for (size_t i = at; i < at + static_cast<size_t>(width); ++i) {
      const double difference = static_cast<double>(out[i]) - expected[i];
      error += difference * difference;
      norm += static_cast<double>(expected[i]) * expected[i];
    }
    const double share = std::sqrt(error / norm);
    worst = share <= worst ? worst : share;  // NaN counts
  }
  return worst;
}

namespace {

double code_bound(const TestCacheOptions& options, Isa isa, Products products) {
  if (options.rows >= 16) return isa == Isa::kAmx && products == Products::kBf16 ? 5e-2 : 1e-4;
  const auto wide = [](const RowFormat& format) { return format.bits >= 8; };
  return wide(*options.scheme.key) && wide(*options.scheme.value) ? 1e-3 : 4e-2;
}

}  // namespace

std::string parity_on_codes(const TestCacheOptions& options, int group) {
  const KvScheme& scheme = options.scheme;
  if (!scheme.key->takes_dim(options.shape.key_dim) || !scheme.value->takes_dim(options.shape.value_dim))
    return "";
  AttendCase test({options}, group);
  const std::vector<float> expected = test.reference();
  std::string wrong;
  for (Isa isa : available_isas()) {
    for (Products products : {Products::kBf16, Products::kExact}) {
      if (products == Products::kBf16 && isa != Isa::kAmx) continue;  // no other set knows it
      test.batch.products = products;
      const double share = worst_share(test.cpu(isa), expected, options.shape.value_dim);
      const double bound = code_bound(options, isa, products);
      if (share <= bound) continue;
      wrong += fmt::format("{}: off by {:.5f} of the output, the bound is {:.5f}\n",
                           describe_case(options, group, isa), share, bound);
    }
  }
  return wrong;
}

}  // namespace butter
