// bench_seal: what sealing a row of the aura formats costs one thread.
//
//   bench_seal [--benchmark_filter=seal/aura3/.*/avx512]
//
// seal/auraBITS/DIM/ISA  microseconds a row, all in: rotation, search, scales; the least and the mean of many
//                        pages of normal values, which stay in the cache
// rotate/DIM/ISA         nanoseconds a row of the rotation alone
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "kernels/cpu/aura_seal.h"
#include "kernels/cpu/rotate.h"
#include "kernels/trellis.h"

namespace butter {
namespace {

constexpr int kDims[] = {32, 64, 80, 96, 112, 128, 192, 256};

std::vector<float> normal_rows(int dim) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> rows(static_cast<size_t>(kPageRows * dim));
  for (float& value : rows) value = normal(random);
  return rows;
}

void seal(benchmark::State& state, int bits, int dim, Isa isa) {
  RowShape shape;
  shape.dim = dim;
  shape.bits = bits;
  const std::vector<float> rows = normal_rows(dim);
  Buffer record = Buffer::allocate(kPageRows * (trellis_row_bytes(bits, dim) + 1)).value();
  Buffer scratch = Buffer::allocate(cpu::aura_encode_scratch_bytes(dim)).value();
  RecordTail tail;
  double least = 1e9, sum = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    cpu::aura_encode(isa, shape, rows.data(), record.data(), &tail, scratch.data());
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count() / kPageRows);
    sum += taken.count() / kPageRows;
    benchmark::ClobberMemory();
  }
  state.counters["us/row"] = least;
  state.counters["us/row of 64"] = least * 64 / dim;
  state.counters["mean us/row"] = sum / static_cast<double>(state.iterations());
}

void rotate(benchmark::State& state, int dim, Isa isa) {
  RowShape shape;
  shape.dim = dim;
  const std::vector<float> rows = normal_rows(dim);
  std::vector<float> turned(rows.size());
  double least = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    cpu::rotate_rows(isa, shape, kPageRows, rows.data(), turned.data());
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count() / kPageRows);
    benchmark::ClobberMemory();
  }
  state.counters["ns/row"] = least;
}

void register_all() {
  for (Isa isa : available_isas()) {
    if (isa == Isa::kAmx) continue;  // as kAvx512
    for (int dim : kDims) {
      const std::string rest = fmt::format("/{}/{}", dim, isa_name(isa));
      for (int bits : {2, 3, 4}) {
        benchmark::RegisterBenchmark(("seal/aura" + std::to_string(bits) + rest).c_str(), seal, bits, dim,
                                     isa)
            ->MinTime(0.05);
      }
      benchmark::RegisterBenchmark(("rotate" + rest).c_str(), rotate, dim, isa)->MinTime(0.02);
    }
  }
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  butter::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
