// bench_linear: how near the linear op comes to the memory that it reads, and to what the CPU can multiply.
//
//   bench_linear [--benchmark_filter=decode|prefill|input|elementwise|repack|...]
//
// decode/FORM/ISA/ROWS  one pass over weights of the default model's shapes (30 layers of 576 and 1536, a
// head of
//                       49,152), as a decode step makes it: GB/s of weights, and the share of what a plain
//                       read loop over as many bytes gets, measured just before with the same threads
// prefill/FORM/ISA/ROWS a layer's seven matrices for many rows: GFLOP/s
// peer/ROWS/COLUMNS/OUTPUTS  oneDNN's bf16 product of that size on one thread, weights already in bf16;
// beside it
//                       single/..., ours on one thread with the expansion of Q4_1 weights: GFLOP/s
// BUTTER_BENCH_THREADS sets the number of threads (default: the CPUs that the process may use).
#include <benchmark/benchmark.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear.h"
#include "read_loop.h"

namespace butter {
namespace {

// Bytes per second that all threads read of a buffer of this size, the best of a few passes.
double read_bandwidth(int64_t bytes) {
  Buffer buffer = Buffer::allocate(bytes).value();
  std::memset(buffer.data(), 1, static_cast<size_t>(bytes));
  double best = 0;
  for (int pass = 0; pass < 12; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool().run([&](const Worker& worker) {
      const IndexRange own = worker.slice(bytes / 8, 512);
      benchmark::DoNotOptimize(read_all(buffer.as<uint64_t>() + own.begin, own.size()));
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) / taken.count());
  }
  return best;
}

struct Weight {
  Buffer bytes;
  cpu::LinearWeight linear;
};

// What a weight is stored as; MLX's has more to it.
struct WeightType {
  DType dtype;
  int bits = 0;
  int group = 0;

  std::string name() const {
    return dtype == DType::kMLX ? "MLX" + std::to_string(bits) + "g" + std::to_string(group)
                                : dtype_name(dtype);
  }
};

// Where the blocks of a type have fp16 scales.
std::vector<int> scale_places(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

// The view of a weight in `bytes`, with scales that keep results finite.
TensorView fill_mlx(const WeightType& type, int64_t rows, int64_t columns, Buffer& bytes) {
  TensorView view;
  view.dtype = DType::kMLX;
  view.shape = {rows, columns};
  view.mlx = {type.bits, type.group, DType::kF16, nullptr, nullptr};
  const int64_t scales = rows * columns / type.group;
  std::byte* at = bytes.data() + rows * view.row_bytes();
  std::fill_n(reinterpret_cast<uint16_t*>(at), 2 * scales, float_to_fp16(0.01f));
  view.data = bytes.data();
  view.mlx.scales = at;
  view.mlx.biases = at + 2 * scales;
  return view;
}

TensorView fill_blocks(DType dtype, int64_t rows, int64_t columns, Buffer& bytes) {
  TensorView view;
  view.dtype = dtype;
  view.shape = {rows, columns};
  view.data = bytes.data();
  const DTypeInfo& info = dtype_info(dtype);
  const uint16_t scale = float_to_fp16(0.01f);
  for (int64_t at = 0; info.quantised && at < view.bytes(); at += info.block_bytes) {
    for (const int place : scale_places(dtype)) std::memcpy(bytes.data() + at + place, &scale, 2);
    if (dtype == DType::kMXFP4) bytes.data()[at] = std::byte{120};
  }
  // Floats between 0.5 and 2, of either sign: no value takes longer than another.
  auto* halves = bytes.as<uint16_t>();
  auto* words = bytes.as<uint32_t>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (dtype == DType::kF16) halves[i] = static_cast<uint16_t>((halves[i] & 0x87ffu) | 0x3800u);
    if (dtype == DType::kBF16) halves[i] = static_cast<uint16_t>((halves[i] & 0x80ffu) | 0x3f00u);
    if (dtype == DType::kF32) words[i] = (words[i] & 0x80ffffffu) | 0x3f000000u;
  }
  return view;
}

Weight make_weight(const WeightType& type, int64_t rows, int64_t columns, Isa isa) {
  const bool mlx = type.dtype == DType::kMLX;
  columns = round_up(columns, mlx ? type.group : dtype_info(type.dtype).block_elements);
  const int64_t values = rows * columns;
  const int64_t size =
      mlx ? values * type.bits / 8 + values / type.group * 4 : dtype_bytes(type.dtype, values);
  Weight weight;
  weight.bytes = Buffer::allocate(size).value();
  std::mt19937 random(static_cast<unsigned>(values));
  auto* words = weight.bytes.as<uint32_t>();
  for (int64_t i = 0; i < size / 4; ++i) words[i] = static_cast<uint32_t>(random());
  const TensorView view = mlx ? fill_mlx(type, rows, columns, weight.bytes)
                              : fill_blocks(type.dtype, rows, columns, weight.bytes);
  weight.linear = cpu::LinearWeight::make(view, isa).value();
  if (weight.linear.copied()) weight.bytes = {};
  return weight;
}

struct Matrix {
  int64_t rows, columns;
};
constexpr Matrix kLayer[] = {{576, 576},  {192, 576},  {192, 576}, {576, 576},
                             {1536, 576}, {1536, 576}, {576, 1536}};
constexpr int kLayers = 30;
constexpr int64_t kVocabulary = 49152, kHidden = 576, kWidest = 1536;

// Input, scratch and output for the largest op.
struct Step {
  Step(Isa isa, int64_t row_count) : rows(row_count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    x_buffer = Buffer::allocate(rows * kWidest * 4).value();
    y_buffer = Buffer::allocate(rows * kVocabulary * 4).value();
    x = x_buffer.as<float>();
    y = y_buffer.as<float>();
    for (int64_t i = 0; i < rows * kWidest; ++i) x[i] = normal(random);
    int64_t bytes = 64;
    for (cpu::InputKind kind : {cpu::InputKind::kInt8, cpu::InputKind::kBf16, cpu::InputKind::kBf16Pair})
      bytes = std::max(bytes, cpu::input_bytes(kind, rows, kWidest));
    prepared = Buffer::allocate(bytes).value();
    const Weight widest = make_weight({DType::kF32}, kHidden, kWidest, isa);  // no form takes more scratch
    scratch_step = Arena::piece_bytes(cpu::linear_scratch_bytes(widest.linear) + 64);
    scratch = Buffer::allocate(scratch_step * pool().threads()).value();
  }

  // One op, as the device runs it: few rows are prepared by every worker for itself.
  void run(const cpu::LinearWeight& weight, cpu::LinearPath path, const Worker& worker, float* out) {
    cpu::LinearInput input{
        cpu::input_kind(weight, path), x, weight.columns(), rows, weight.columns(), prepared.data()};
    cpu::prepare_input(weight.isa(), input, worker.slice(rows, cpu::input_grain(input.kind)));
    worker.barrier();
    cpu::linear(weight, input, worker.slice(weight.rows(), cpu::kPanelRows), {out, weight.rows()},
                scratch.data() + worker.index() * scratch_step);
    worker.barrier();
  }

  int64_t rows;
  Buffer x_buffer, y_buffer;
  float* x = nullptr;
  float* y = nullptr;
  Buffer prepared, scratch;
  int64_t scratch_step = 0;
};

void decode(benchmark::State& state, const WeightType& type, const WeightType& head, Isa isa, int64_t rows) {
  std::vector<Weight> weights;
  int64_t bytes = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Matrix& m : kLayer) weights.push_back(make_weight(type, m.rows, m.columns, isa));
  }
  weights.push_back(make_weight(head, kVocabulary, kHidden, isa));
  for (const Weight& weight : weights) bytes += weight.linear.bytes();
  Step step(isa, rows);
  const double bandwidth = read_bandwidth(bytes);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    pool().run([&](const Worker& worker) {
      for (const Weight& weight : weights) step.run(weight.linear, cpu::LinearPath::kDecode, worker, step.y);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  const double rate = static_cast<double>(bytes) / best;
  state.counters["MB"] = static_cast<double>(bytes) / 1e6;
  state.counters["best_GBps"] = rate / 1e9;
  state.counters["read_GBps"] = bandwidth / 1e9;
  state.counters["share"] = rate / bandwidth;
  state.counters["steps_per_s"] = 1 / best;
}

void prefill(benchmark::State& state, const WeightType& type, Isa isa, int64_t rows) {
  std::vector<Weight> weights;
  double flops = 0;
  for (const Matrix& m : kLayer) {
    weights.push_back(make_weight(type, m.rows, m.columns, isa));
    flops += 2.0 * static_cast<double>(m.rows * weights.back().linear.columns() * rows);
  }
  Step step(isa, rows);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    pool().run([&](const Worker& worker) {
      for (const Weight& weight : weights) step.run(weight.linear, cpu::LinearPath::kPrefill, worker, step.y);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  state.counters["best_GFLOPs"] = flops / best / 1e9;
}

struct Product {
  int64_t rows, columns, outputs;
  double flops() const { return 2.0 * static_cast<double>(rows * columns * outputs); }
};

void peer(benchmark::State& state, Product size) {
  using dnnl::memory;
  omp_set_num_threads(1);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc rows({size.rows, size.columns}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc weights({size.columns, size.outputs}, memory::data_type::bf16, memory::format_tag::any);
  const memory::desc out({size.rows, size.outputs}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(rows, weights, out), attributes, engine);
  dnnl::matmul product(plan);
  memory x(rows, engine), w(plan.weights_desc(), engine), y(out, engine),
      scratch(plan.scratchpad_desc(), engine);
  std::memset(x.get_data_handle(), 0, rows.get_size());
  std::memset(w.get_data_handle(), 0, plan.weights_desc().get_size());
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    product.execute(
        stream,
        {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, scratch}});
    stream.wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  state.SetLabel(plan.impl_info_str());
  state.counters["best_GFLOPs"] = size.flops() / best / 1e9;
}

void single(benchmark::State& state, Product size) {
  const Weight weight = make_weight({DType::kQ4_1}, size.outputs, size.columns, Isa::kAmx);
  Step step(Isa::kAmx, size.rows);
  cpu::LinearInput input{cpu::InputKind::kBf16, step.x, size.columns, size.rows, size.columns,
                         step.prepared.data()};
  cpu::prepare_input(Isa::kAmx, input, {0, size.rows});
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    cpu::linear(weight.linear, input, {0, size.outputs}, {step.y, size.outputs}, step.scratch.data());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  state.counters["best_GFLOPs"] = size.flops() / best / 1e9;
}

void prepare(benchmark::State& state, cpu::InputKind kind, Isa isa) {
  Step step(isa, 64);
  const cpu::LinearInput input{kind, step.x, kHidden, 64, kHidden, step.prepared.data()};
  for (auto _ : state) cpu::prepare_input(isa, input, {0, 64});
  state.SetItemsProcessed(state.iterations() * 64 * kHidden);
}

void repack(benchmark::State& state, DType dtype) {
  TensorView view;
  view.dtype = dtype;
  view.shape = {kVocabulary, kHidden};
  Buffer bytes = Buffer::allocate(view.bytes()).value();
  std::memset(bytes.data(), 1, static_cast<size_t>(view.bytes()));
  view.data = bytes.data();
  for (auto _ : state) {
    auto weight = cpu::LinearWeight::allocate(view, Isa::kPortable).value();
    pool().run([&](const Worker& worker) { weight.repack(worker.slice(view.rows(), cpu::kPanelRows)); });
  }
  state.SetBytesProcessed(state.iterations() * view.bytes());
}

void elementwise_op(benchmark::State& state, const std::string& name, Isa isa) {
  const cpu::Elementwise& ops = cpu::elementwise(isa);
  std::vector<float> x(kWidest, 0.5f), y(kWidest, 0.25f), out(kWidest);
  std::vector<uint16_t> half(kWidest);
  RmsNormOp norm;
  RopeOp rope;
  rope.heads = kWidest / 64;
  rope.head_dim = 64;
  for (auto _ : state) {
    if (name == "rms_norm") ops.rms_norm(norm, x.data(), kWidest, y.data(), out.data());
    if (name == "rope") ops.rope(rope, 32, y.data(), y.data() + 32, out.data());
    if (name == "silu") ops.activate_mul(Activation::kSilu, x.data(), y.data(), kWidest, out.data());
    if (name == "gelu") ops.activate_mul(Activation::kGelu, x.data(), y.data(), kWidest, out.data());
    if (name == "to_f16") ops.to_f16(x.data(), kWidest, half.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kWidest);
}

template <typename Run, typename... Args>
benchmark::internal::Benchmark* add(const std::string& name, Run run, Args... args) {
  return benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, args...); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_all() {
  struct Form {
    WeightType type, head;
  };
  std::vector<Form> forms = {{{DType::kQ4_1}, {DType::kQ8_0}}, {{DType::kQ4_K}, {DType::kQ6_K}}};
  for (DType dtype :
       {DType::kQ4_0, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ5_K,
        DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kBF16, DType::kF16, DType::kF32})
    forms.push_back({{dtype}, {dtype}});
  for (const auto& [bits, group] : {std::pair{2, 64}, {3, 64}, {4, 32}, {4, 64}, {5, 64}, {6, 64}, {8, 64}})
    forms.push_back({{DType::kMLX, bits, group}, {DType::kMLX, bits, group}});
  for (Isa isa : available_isas()) {
    const std::string end = std::string("/") + isa_name(isa);
    for (const Form& form : forms) {
      const std::string type = form.type.name();
      for (int64_t rows : {1, 2, 4, 8, 15})
        add("decode/" + type + end + "/" + std::to_string(rows), decode, form.type, form.head, isa, rows)
            ->MinTime(0.3);
      for (int64_t rows : {16, 64, 512})
        add("prefill/" + type + end + "/" + std::to_string(rows), prefill, form.type, isa, rows)
            ->MinTime(0.3);
    }
    add("input/int8" + end, prepare, cpu::InputKind::kInt8, isa);
    if (isa == Isa::kAmx) {
      add("input/bf16" + end, prepare, cpu::InputKind::kBf16, isa);
      add("input/bf16_pair" + end, prepare, cpu::InputKind::kBf16Pair, isa);
    }
    for (const char* op : {"rms_norm", "rope", "silu", "gelu", "to_f16"})
      add(std::string("elementwise/") + op + end, elementwise_op, std::string(op), isa);
  }
  for (int64_t columns : {576, 1536}) {
    for (int64_t outputs : {32, 64, 128, 576}) {
      const std::string size = "/512/" + std::to_string(columns) + "/" + std::to_string(outputs);
      add("peer" + size, peer, Product{512, columns, outputs});
      if (available_isas().back() == Isa::kAmx) add("single" + size, single, Product{512, columns, outputs});
    }
  }
  for (DType dtype : {DType::kQ4_1, DType::kQ8_0})
    add(std::string("repack/") + dtype_name(dtype), repack, dtype);
}

}  // namespace
}  // namespace butter

int main(int argc, char** argv) {
  std::printf("%s, %d threads\n", butter::cpu_description().c_str(), butter::pool().threads());
  butter::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
