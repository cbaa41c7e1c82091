#include "kernels/cpu/aura_seal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/cpu/aura_seal_kernels.h"
#include "kernels/cpu/rotate.h"
#include "kernels/scale_byte.h"

namespace butter::cpu {
namespace {

// Larger values are clamped, and the rows of tiny ones multiplied, so that squares of norms are normal
// float32 numbers.
constexpr float kLargestValue = 0x1p56f;
constexpr float kSmallestSquare = 0x1p-90f, kLargestSquare = 0x1p125f;
constexpr float kMagnify = 0x1p100f;

// A row is coded at two sizes, and the code that points more nearly its way is kept: any size serves, since
// the scale is taken afterwards. Against one size of 1 that lowers the error by 2 % with 2 bits, 4 % with 3
// and 9 % with 4 (normal rows of 64).
constexpr float kSizes[3][2] = {{0.92f, 1.07f}, {0.95f, 1.07f}, {0.89f, 1.01f}};

// Turned rows, their cells, and the codes of the second size.
int64_t row_scratch_bytes(int dim) {
  return int64_t{7} * kPageRows * dim;
}
// What is left for a kernel.
int64_t kernel_scratch_bytes(int dim) {
  return aura_encode_scratch_bytes(dim) - row_scratch_bytes(dim);
}

// The fastest kernel that takes the width: one that searches many rows together needs room for them.
const SealKernel& seal_kernel([[maybe_unused]] Isa isa, [[maybe_unused]] const RowShape& shape) {
#if defined(__x86_64__)
  const auto fits = [&](const SealKernel& kernel) {
    return kernel.scratch_bytes(shape.bits, shape.dim) <= kernel_scratch_bytes(shape.dim);
  };
  const bool whole_bytes = shape.bits * shape.dim % 8 == 0;
  if (isa >= Isa::kAvx512 && whole_bytes && fits(kSealAvx512)) return kSealAvx512;
  if (isa >= Isa::kAvx2 && fits(kSealAvx2)) return kSealAvx2;
#endif
  return kSealPortable;
}

const SealMetric& metric_of(const SealKernel& kernel, int bits) {
  return kernel.metrics[bits - 2];
}

// --- costs

// costs [64] of one cell in the order [h][q], less the smallest.
std::array<float, kTrellisStates> cell_costs(const SealMetric& metric, int bits, int cell) {
  const TrellisTable& table = trellis_table(bits);
  const int shared = kTrellisStates >> bits;
  const float centre = (static_cast<float>(cell) + 0.5f) * 2 / static_cast<float>(metric.cells) - 1;
  std::array<float, kTrellisStates> costs{};
  for (int window = 0; window < kTrellisStates; ++window) {
    const float error =
        centre * metric.range - static_cast<float>(table.levels[static_cast<size_t>(window)]) * table.step;
    const int h = window & ((1 << bits) - 1), q = window >> bits;
    costs[static_cast<size_t>(h * shared + q)] = error * error * metric.scale;
  }
  const float smallest = *std::min_element(costs.begin(), costs.end());
  for (float& cost : costs) {
    cost -= smallest;
    if (cost > metric.knee) cost = metric.knee + (cost - metric.knee) / 8;
  }
  return costs;
}

struct NarrowCosts {
  explicit NarrowCosts(const SealKernel& kernel, int bits) {
    const SealMetric& metric = metric_of(kernel, bits);
    for (int cell = 0; cell < metric.cells; ++cell) {
      const auto costs = cell_costs(metric, bits, cell);
      for (size_t i = 0; i < costs.size(); ++i)
        values[static_cast<size_t>(cell)][i] = static_cast<uint8_t>(std::min(255.0f, costs[i] + 0.5f));
    }
  }
  alignas(64) std::array<std::array<uint8_t, kTrellisStates>, kMaxSealCells> values{};
};

struct WideCosts {
  explicit WideCosts(const SealKernel& kernel, int bits) {
    const SealMetric& metric = metric_of(kernel, bits);
    // After `normalise` values no cost may have left int16 (see aura_seal_inl.h).
    const float limit = static_cast<float>(16000 >> bits) / static_cast<float>(metric.normalise + 2);
    for (int cell = 0; cell < metric.cells; ++cell) {
      const auto costs = cell_costs(metric, bits, cell);
      for (int i = 0; i < kTrellisStates; ++i) {
        const int cost = static_cast<int>(std::min(limit, costs[static_cast<size_t>(i)] + 0.5f));
        const int h = i / (kTrellisStates >> bits);
        values[static_cast<size_t>(cell)][static_cast<size_t>(i)] = static_cast<int16_t>((cost << bits) + h);
      }
    }
  }
  alignas(64) std::array<std::array<int16_t, kTrellisStates>, kMaxSealCells> values{};
};

template <typename Costs, const SealKernel* kKernel, int kBits>
const void* costs_of() {
  static const Costs costs(*kKernel, kBits);
  return costs.values.data();
}

template <typename Costs, const SealKernel* kKernel>
const void* costs_of(int bits) {
  if (bits == 2) return costs_of<Costs, kKernel, 2>();
  if (bits == 3) return costs_of<Costs, kKernel, 3>();
  return costs_of<Costs, kKernel, 4>();
}

const void* costs_of(const SealKernel& kernel, int bits) {
#if defined(__x86_64__)
  if (&kernel == &kSealAvx512) return costs_of<NarrowCosts, &kSealAvx512>(bits);
  if (&kernel == &kSealAvx2) return costs_of<WideCosts, &kSealAvx2>(bits);
#endif
  return costs_of<WideCosts, &kSealPortable>(bits);
}

// --- a page

// One row of a page on its way.
struct Row {
  float square = 0;     // |y|²
  float magnified = 1;  // what the row was multiplied by
};

struct Workspace {
  float* turned;    // [64][dim]
  uint16_t* cells;  // [64][dim]
  uint8_t* codes;   // [64][bytes of a row, at most dim / 2]
  std::byte* kernel;
};

Workspace lay_out(int dim, std::byte* scratch) {
  Workspace work;
  work.turned = reinterpret_cast<float*>(scratch);
  work.cells = reinterpret_cast<uint16_t*>(work.turned + kPageRows * dim);
  work.codes = reinterpret_cast<uint8_t*>(work.cells + kPageRows * dim);
  work.kernel = scratch + row_scratch_bytes(dim);
  return work;
}

// Turns a row again whose norm is out of range: clamped, or multiplied.
Row turn_extreme_row(Isa isa, const RowShape& shape, const SealKernel& kernel, const float* row,
                     float* turned) {
  Row result;
  float largest = 0;
  for (int j = 0; j < shape.dim; ++j) largest = std::max(largest, std::abs(row[j]));
  if (largest == 0) return result;
  if (largest < 1) result.magnified = kMagnify;
  for (int j = 0; j < shape.dim; ++j)
    turned[j] = std::clamp(row[j] * result.magnified, -kLargestValue, kLargestValue);
  rotate_rows(isa, shape, 1, turned);
  result.square = kernel.square_sum(turned, shape.dim);
  return result;
}

// n, by which the levels of the row's code are multiplied. |y|²/<y, code> is unbiased: attention averages
// over rows, where a bias costs more than variance. A row that the rotation maps onto few channels may have
// little in common with its code: then the norm alone is kept.
float row_scale(const Row& row, const SealedRow& sealed, float step) {
  if (row.square == 0) return 0;
  const double square = row.square, product = double{sealed.product} * step;
  const double code_square = double{sealed.square} * step * step;
  const double norms = std::sqrt(square * code_square);
  const double scale = product < 0.5 * norms ? std::sqrt(square / code_square) : square / product;
  return static_cast<float>(scale / row.magnified);
}

// scale_byte() with rounding to nearest, for normal numbers not above the page's largest.
uint8_t nearest_scale_byte(float scale, int exponent) {
  constexpr uint32_t kRest = 19;  // bits of a float's mantissa after the first four
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t rounded = (bits + (1u << (kRest - 1)) - 1 + (bits >> kRest & 1)) >> kRest;
  const int byte = static_cast<int>(rounded) - 16 * (127 - 15 + exponent);
  if (byte < 16) return static_cast<uint8_t>(std::lrint(std::ldexp(scale, 14 + 4 - exponent)));
  return static_cast<uint8_t>(std::min(byte, 255));
}

void write_scales(const RowShape& shape, const float* scales, uint8_t* bytes, RecordTail* tail) {
  const float largest = *std::max_element(scales, scales + kPageRows);
  const int8_t exponent = scale_exponent(largest, ScaleRounding::kNearest);
  tail->exponent[static_cast<int>(shape.side)] = exponent;
  for (int r = 0; r < kPageRows; ++r) bytes[r] = nearest_scale_byte(scales[r], exponent);
}

// The search for a page's codes.
struct SealOfPage {
  const SealKernel& kernel;
  const SealMetric& metric;
  const RowShape& shape;
  const void* costs;
  const Workspace& work;

  // codes [64][bytes of a row] of the turned rows, each taken as `size` times a row of variance 1.
  void seal(const std::array<Row, kPageRows>& page, float size, uint8_t* codes,
            std::array<SealedRow, kPageRows>& sealed) const {
    const int dim = shape.dim;
    const float cells_per_unit = size * static_cast<float>(metric.cells) / (2 * metric.range);
    for (int r = 0; r < kPageRows; ++r) {
      const float square = page[static_cast<size_t>(r)].square;
      const float factor = square == 0 ? 0 : cells_per_unit * std::sqrt(static_cast<float>(dim) / square);
      kernel.to_cells(work.turned + r * dim, dim, factor, metric.cells, work.cells + r * dim);
    }
    const int64_t row_bytes = trellis_row_bytes(shape.bits, dim);
    const int8_t* levels = trellis_table(shape.bits).levels.data();
    for (int r = 0; r < kPageRows; r += kernel.rows_at_once) {
      const SealRows some = {dim, work.turned + r * dim, work.cells + r * dim};
      kernel.seal(metric, levels, shape.bits, costs, some, work.kernel, codes + r * row_bytes,
                  &sealed[static_cast<size_t>(r)]);
    }
  }
};

// Whether a code makes a smaller angle with its row than another: by <y, code>² / |code|².
bool nearer(const SealedRow& a, const SealedRow& b) {
  return a.product > 0 &&
         double{a.product} * a.product * double{b.square} > double{b.product} * b.product * double{a.square};
}

}  // namespace

void aura_encode(Isa isa, const RowShape& shape, const float* rows, std::byte* record, RecordTail* tail,
                 std::byte* scratch) {
  const int dim = shape.dim;
  const SealKernel& kernel = seal_kernel(isa, shape);
  const SealMetric& metric = metric_of(kernel, shape.bits);
  const TrellisTable& table = trellis_table(shape.bits);
  const Workspace work = lay_out(dim, scratch);
  BUTTER_CHECK(kernel.scratch_bytes(shape.bits, dim) <= kernel_scratch_bytes(dim));

  rotate_rows(isa, shape, kPageRows, rows, work.turned);
  std::array<Row, kPageRows> page;
  for (int r = 0; r < kPageRows; ++r) {
    Row& row = page[static_cast<size_t>(r)];
    float* turned = work.turned + r * dim;
    row.square = kernel.square_sum(turned, dim);
    if (!(row.square >= kSmallestSquare && row.square <= kLargestSquare))
      row = turn_extreme_row(isa, shape, kernel, rows + r * dim, turned);
  }

  const SealOfPage page_of_rows{kernel, metric, shape, costs_of(kernel, shape.bits), work};
  const int64_t row_bytes = trellis_row_bytes(shape.bits, dim);
  auto* codes = reinterpret_cast<uint8_t*>(record);
  std::array<SealedRow, kPageRows> sealed, other;
  page_of_rows.seal(page, kSizes[shape.bits - 2][0], codes, sealed);
  page_of_rows.seal(page, kSizes[shape.bits - 2][1], work.codes, other);
  for (int64_t r = 0; r < kPageRows; ++r) {
    if (!nearer(other[static_cast<size_t>(r)], sealed[static_cast<size_t>(r)])) continue;
    sealed[static_cast<size_t>(r)] = other[static_cast<size_t>(r)];
    std::memcpy(codes + r * row_bytes, work.codes + r * row_bytes, static_cast<size_t>(row_bytes));
  }

  std::array<float, kPageRows> scales;
  for (int r = 0; r < kPageRows; ++r) {
    scales[static_cast<size_t>(r)] = row_scale(page[r], sealed[r], table.step);
    if (page[r].square == 0) std::memset(codes + r * row_bytes, 0, static_cast<size_t>(row_bytes));
  }
  write_scales(shape, scales.data(), codes + kPageRows * row_bytes, tail);
}

}  // namespace butter::cpu
