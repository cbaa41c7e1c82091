// bench_attention: attention over pages, against the memory that it reads and the CPU's arithmetic.
//
//   bench_attention [--benchmark_filter=decode|prefill|...]
//
// decode/L2/SHAPE/FORMAT/ISA    one thread, pages that stay in L2: ns for each (KV head, position)
// decode/DRAM/SHAPE/FORMAT/ISA  all layers of a cache of 755 MB, all threads: the same, GB/s, and the
// share
//                               of what a plain read loop over as many bytes gets in the same run; tok/s@32k
//                               is what the shape's attention alone would make at 32,768 positions
// prefill/DEPTH/SHAPE/FORMAT/ISA  512 rows after DEPTH positions, one layer, all threads: GFLOP/s and, for
// SHAPE's
//                               number of layers, ms for each token
// BUTTER_BENCH_THREADS sets the number of threads (default: the CPUs that the process may use).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cache/cache_layout.h"
#include "core/buffer.h"
#include "core/thread_pool.h"
#include "kernels/attend_testing.h"
#include "kernels/attention.h"
#include "kernels/rotated_testing.h"
#include "read_loop.h"

namespace butter {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds of a pass over `parts` parts: the best time of each over the passes so far, added up. Other
// processes share the machine; a part is short enough to pass between their turns.
class BestParts {
 public:
  explicit BestParts(size_t parts) : best_(parts, 1e9) {}

  // Times part(i) for every part; returns the seconds of this pass.
  template <typename Part>
  double pass(const Part& part) {
    double seconds = 0;
    for (size_t i = 0; i < best_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      part(i);
      const double part_seconds = seconds_since(start);
      best_[i] = std::min(best_[i], part_seconds);
      seconds += part_seconds;
    }
    return seconds;
  }
  double seconds() const { return std::accumulate(best_.begin(), best_.end(), 0.0); }

 private:
  std::vector<double> best_;
};

// Bytes per second that all threads read of a buffer.
double read_bandwidth(const Buffer& buffer) {
  constexpr int64_t kParts = 30;
  BestParts parts(kParts);
  const int64_t words = buffer.bytes() / 8 / kParts;
  for (int pass = 0; pass < 10; ++pass) {
    parts.pass([&](size_t part) {
      pool().run([&](const Worker& worker) {
        const IndexRange own = worker.slice(words, 512);
        const uint64_t* from = buffer.as<uint64_t>() + static_cast<int64_t>(part) * words;
        benchmark::DoNotOptimize(read_all(from + own.begin, own.size()));
      });
    });
  }
  return static_cast<double>(buffer.bytes()) / parts.seconds();
}

constexpr int64_t kDramBytes = 755'000'000;  // beyond any L3

struct Shape {
  const char* name;
  int layers, kv_heads, group, dim;
};
const Shape kShapes[] = {{"d64g3", 30, 3, 3, 64}, {"d128g2", 28, 8, 2, 128}, {"d128g4", 32, 8, 4, 128}};

struct Format {
  const char* name;
  KvScheme scheme;
};
std::vector<Format> formats() {
  std::vector<Format> list = {{"f16", {&raw_format(), &raw_format(), DType::kF16}},
                              {"bf16", {&raw_format(), &raw_format(), DType::kBF16}}};
  for (const RowFormat* format : row_formats()) {
    if (format != &raw_format()) list.push_back({format->name, {format, format, DType::kF16}});
  }
  list.push_back({"aura3v2", {find_row_format("aura3"), find_row_format("aura2"), DType::kF16}});
  return list;
}

// The cache of a whole model as the page pool lays it out: a block for each page holds all layers. Every page
// has bytes of its own, all the same.
struct Cache {
  Cache(const Shape& shape, int layers, const KvScheme& kv_scheme, int64_t positions) : scheme(kv_scheme) {
    for (int layer = 0; layer < layers; ++layer)
      shapes.push_back({layer, shape.kv_heads, shape.dim, shape.dim, 0});
    sealed = sealed_layout(shapes, scheme);
    lengthen_runs(sealed);
    raw = raw_layout(shapes, scheme.raw, kPageRows);
    pages = pages_for(positions) + 1;
    sealed_bytes = Buffer::allocate(round_up(pages, sealed.side_by_side) * sealed.bytes).value();
    // Of a format that seals, few raw pages are read.
    own_raw_pages = scheme.seals() ? std::min<int64_t>(pages, 16) : pages;
    raw_bytes = Buffer::allocate(own_raw_pages * raw.bytes).value();
    for (int64_t page = 0; page < pages; ++page) {
      const int64_t in_slab = page % sealed.side_by_side;
      sealed_pages.push_back(sealed_bytes.data() + (page - in_slab) * sealed.bytes +
                             in_slab * (sealed.side_by_side == 1 ? 0 : sealed.layers[0].bytes));
      for (int layer = 0; layer < layers; ++layer) {
        raw_pages.push_back(
            {raw_bytes.data() + page % own_raw_pages * raw.bytes, &raw.layers[static_cast<size_t>(layer)]});
      }
    }
    fill();
  }

  void fill() {
    const int64_t value_bytes = dtype_info(scheme.raw).block_bytes;
    const std::vector<float> values = random_floats(7, raw.bytes / value_bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = scheme.raw == DType::kF16 ? float_to_fp16(values[i]) : float_to_bf16(values[i]);
      std::memcpy(raw_bytes.data() + static_cast<int64_t>(i) * value_bytes, &bits, sizeof bits);
    }
    for (size_t layer = 0; layer < shapes.size(); ++layer) {
      for (size_t head = 0; head < static_cast<size_t>(shapes[layer].kv_heads); ++head)
        seal_first_page(layer, head);
    }
    for (int64_t page = 1; page < pages; ++page) {
      copy_block(sealed, sealed_pages[0], const_cast<std::byte*>(sealed_pages[static_cast<size_t>(page)]));
      if (page >= own_raw_pages) continue;
      std::memcpy(raw_bytes.data() + page * raw.bytes, raw_bytes.data(), static_cast<size_t>(raw.bytes));
    }
  }

  // All instruction sets read the same bytes.
  void seal_first_page(size_t layer, size_t head) {
    const RecordOffsets& from = raw.layers[layer].heads[head];
    const RecordOffsets& to = sealed.layers[layer].heads[head];
    RecordTail tail;
    for (Side side : {Side::kKey, Side::kValue}) {
      const RowShape shape = shapes[layer].row_shape(side, scheme);
      std::vector<float> rows(static_cast<size_t>(kPageRows * shape.dim));
      const Record record{raw_bytes.data() + (side == Side::kKey ? from.key : from.value)};
      raw_format().cpu(Isa::kPortable)->expand(shape, record, rows.data());
      Buffer scratch = Buffer::allocate(encode_scratch_bytes(shape.dim)).value();
      scheme.format(side)
          .cpu(Isa::kPortable)
          ->encode(shape, rows.data(), sealed_bytes.data() + (side == Side::kKey ? to.key : to.value), &tail,
                   scratch.data());
    }
    if (scheme.seals()) std::memcpy(sealed_bytes.data() + to.tail, &tail, sizeof tail);
  }

  AttendSequence sequence(size_t layer, int64_t position, int rows) const {
    KvView view;
    view.shape = shapes[layer];
    view.scheme = scheme;
    view.sealed = sealed_pages.data();
    view.end_sealed = pages;
    view.sealed_layout = &sealed.layers[layer];
    view.raw = raw_views[layer].data();
    view.end_raw = pages;
    view.pinned = {raw_bytes.data(), &raw.layers[layer]};
    return {view, position, 0, rows};
  }

  // One layer's raw pages in a row, as a view wants them.
  void make_raw_views() {
    raw_views.resize(shapes.size());
    for (size_t layer = 0; layer < shapes.size(); ++layer) {
      for (size_t page = 0; page < static_cast<size_t>(pages); ++page) {
        raw_views[layer].push_back(raw_pages[page * shapes.size() + layer]);
      }
    }
  }

  KvScheme scheme;
  std::vector<KvLayerShape> shapes;
  BlockLayout sealed, raw;
  int64_t pages = 0;
  int64_t own_raw_pages = 0;
  mutable Buffer sealed_bytes, raw_bytes;
  std::vector<const std::byte*> sealed_pages;
  std::vector<RawPage> raw_pages;
  std::vector<std::vector<RawPage>> raw_views;
};

struct Step {
  Step(const Shape& shape, int step_rows, int64_t positions, int workers) : rows(step_rows) {
    const int64_t width = int64_t{shape.kv_heads} * shape.group * shape.dim;
    queries = random_floats(3, rows * width);
    out.resize(queries.size());
    batch.queries = queries.data();
    batch.out = out.data();
    batch.q_heads = shape.kv_heads * shape.group;
    batch.scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
    batch.count = 1;
    scratch = Buffer::allocate(cpu::attend_scratch_bytes({rows, positions, batch.q_heads, shape.kv_heads,
                                                          shape.dim, shape.dim, workers}))
                  .value();
  }
  void attend(const AttendSequence& sequence, Isa isa, const Worker& worker) {
    AttendBatch own = batch;
    own.sequences = &sequence;
    cpu::attend(own, isa, scratch.data(), worker);
  }

  int rows;
  std::vector<float> queries, out;
  AttendBatch batch;
  Buffer scratch;
};

void report(benchmark::State& state, double head_positions, double bytes, double seconds) {
  state.counters["ns_per_head_position"] = 1e9 * seconds / head_positions;
  state.counters["GB/s"] = bytes / seconds / 1e9;
}

// The best of the iterations: other processes share the machine.
template <typename Fn>
double best_seconds(benchmark::State& state, const Fn& fn) {
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    const double seconds = seconds_since(start);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  return best;
}

// One KV head, so that there are pages enough for what a step does once a head to be as little of it as at
// depth.
void decode_l2(benchmark::State& state, Shape shape, Format format, Isa isa) {
  shape.kv_heads = 1;
  const int64_t page_bytes =
      sealed_layout({{0, shape.kv_heads, shape.dim, shape.dim, 0}}, format.scheme).bytes;
  const int64_t positions = int64_t{1280} * 1024 / page_bytes * kPageRows;
  Cache cache(shape, 1, format.scheme, positions);
  cache.make_raw_views();
  Step step(shape, 1, positions + 1, 1);
  ThreadPool one(1);
  const AttendSequence sequence = cache.sequence(0, positions, 1);
  constexpr int kRepeats = 3;  // short, so that the best is free of interruptions
  const double seconds = best_seconds(state, [&] {
    one.run([&](const Worker& worker) {
      for (int i = 0; i < kRepeats; ++i) step.attend(sequence, isa, worker);
    });
  });
  const double pairs = static_cast<double>(kRepeats * positions * shape.kv_heads);
  report(state, pairs, static_cast<double>(kRepeats * positions / 64 * cache.sealed.bytes), seconds);
}

void decode_dram(benchmark::State& state, Shape shape, Format format, Isa isa) {
  const std::vector<KvLayerShape> one_layer = {{0, shape.kv_heads, shape.dim, shape.dim, 0}};
  const int64_t page_bytes = shape.layers * sealed_layout(one_layer, format.scheme).bytes;
  const int64_t positions = kDramBytes / page_bytes * kPageRows;
  Cache cache(shape, shape.layers, format.scheme, positions);
  cache.make_raw_views();
  Step step(shape, 1, positions + 1, pool().threads());
  const double bandwidth = read_bandwidth(cache.sealed_bytes);
  std::vector<AttendSequence> sequences;
  for (size_t layer = 0; layer < cache.shapes.size(); ++layer) {
    sequences.push_back(cache.sequence(layer, positions, 1));
  }
  BestParts parts(sequences.size());
  for (auto _ : state) {
    state.SetIterationTime(parts.pass([&](size_t layer) {
      pool().run([&](const Worker& worker) { step.attend(sequences[layer], isa, worker); });
    }));
  }
  const double seconds = parts.seconds();
  const double bytes = static_cast<double>(positions / 64 * cache.sealed.bytes);
  const double pairs = static_cast<double>(positions * shape.kv_heads * shape.layers);
  report(state, pairs, bytes, seconds);
  state.counters["tok/s@32k"] = static_cast<double>(positions) / 32768 / seconds;
  state.counters["read_GB/s"] = bandwidth / 1e9;
  state.counters["share"] = bytes / seconds / bandwidth;
}

void prefill(benchmark::State& state, Shape shape, Format format, Isa isa, int64_t depth) {
  constexpr int kRows = 512;
  Cache cache(shape, 1, format.scheme, depth + kRows);
  cache.make_raw_views();
  Step step(shape, kRows, depth + kRows, pool().threads());
  const AttendSequence sequence = cache.sequence(0, depth, kRows);
  const double seconds = best_seconds(
      state, [&] { pool().run([&](const Worker& worker) { step.attend(sequence, isa, worker); }); });
  const double keys = static_cast<double>(depth) + (kRows + 1) / 2.0;
  const double flops = 4.0 * shape.dim * keys * kRows * shape.kv_heads * shape.group;
  state.counters["GFLOP/s"] = flops / seconds / 1e9;
  state.counters["ms/token"] = 1e3 * seconds * shape.layers / kRows;
}

void register_benchmarks() {
  const auto add = [](const std::string& name, auto&& fn, double seconds) {
    benchmark::RegisterBenchmark(name.c_str(), fn)
        ->UseManualTime()
        ->MinTime(seconds)
        ->Unit(benchmark::kMillisecond);
  };
  for (Isa isa : available_isas()) {
    for (const Shape& shape : kShapes) {
      for (const Format& format : formats()) {
        const std::string tail = fmt::format("{}/{}/{}", shape.name, format.name, isa_name(isa));
        add(
            "decode/L2/" + tail, [=](benchmark::State& state) { decode_l2(state, shape, format, isa); }, 0.3);
        add(
            "decode/DRAM/" + tail, [=](benchmark::State& state) { decode_dram(state, shape, format, isa); },
            1.0);
        for (int64_t depth : {0, 4096}) {
          add(
              fmt::format("prefill/{}/{}", depth, tail),
              [=](benchmark::State& state) { prefill(state, shape, format, isa, depth); }, 0.5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  butter::rotated_format();
  std::printf("%s, %d threads\n", butter::cpu_description().c_str(), butter::bench_threads());
  butter::register_benchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
