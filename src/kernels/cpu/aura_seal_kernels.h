// The kernels behind cpu/aura_seal.cc, one table for each instruction set.
//
// A value is searched by its cell: an index into a table of costs, which holds for each of the 64 windows the
// squared error that the window would make there. Of a window's 6 bits the `bits` oldest, h, are dropped by
// the next one, and the others, q, are shared with it. Tables are in the order [h][q], so that the choice of
// the best h for each q is a minimum of whole vectors where these are short.
//
// This header is read by files that are compiled for one instruction set, so it holds no inline function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/trellis.h"

namespace butter::cpu {

constexpr int kMaxSealCells = 512;

// How costs are made of squared errors, where values have a variance of 1.
struct SealMetric {
  int cells;  // that the values from -range to range fall into, evenly; others are clamped
  float range;
  float scale;    // cost of a squared error of 1
  float knee;     // costs above the knee grow by an eighth: they must fit, and hardly matter
  int warm_up;    // values before the seam that are walked first, to find the state there
  int lap;        // and values after it
  int normalise;  // costs are brought down after as many values
};

// The rows that are searched together, turned, and the cells of their values scaled to a variance of 1.
struct SealRows {
  int dim = 0;
  const float* turned = nullptr;    // [rows][dim] as they are, for the products
  const uint16_t* cells = nullptr;  // [rows][dim], times 64
};

// The code of a row against the row.
struct SealedRow {
  float product = 0;  // <y, levels>
  float square = 0;   // <levels, levels>
};

struct SealKernel {
  const SealMetric* metrics;  // for 2, 3, 4 bits
  bool wide_costs;            // costs are int16, times 2^bits, plus h; else uint8
  int rows_at_once;           // rows that seal() takes, a divisor of 64
  int64_t (*scratch_bytes)(int bits, int dim);

  float (*square_sum)(const float* values, int dim);
  // cells[j] = 64 · the cell of y[j] · factor + cells / 2
  void (*to_cells)(const float* y, int dim, float factor, int cells, uint16_t* out);
  // Searches the paths of rows_at_once rows: codes [row][row_bytes]. levels [64]: the trellis table's.
  void (*seal)(const SealMetric& metric, const int8_t* levels, int bits, const void* costs,
               const SealRows& rows, std::byte* scratch, uint8_t* codes, SealedRow* sealed);
};

extern const SealKernel kSealPortable;
#if defined(__x86_64__)
extern const SealKernel kSealAvx2;
extern const SealKernel kSealAvx512;
#endif

}  // namespace butter::cpu
