// The rotation of the aura formats: y = H·S·x, which spreads a row's size over all its channels.
//
// S flips the signs of channels, by layer and side: channel j is minus where the top bit of the j-th output
// of splitmix64, started at state 2·layer + {0 keys, 1 values}, is 1. All heads of a layer share it.
//
// H is an orthonormal Hadamard matrix, block by block along the row:
//
//   dim = 2^n                             one block, Sylvester's matrix (natural order)
//   dim = m·2^n, m = 12, 20, 28           one block, Paley's matrix of order m ⊗ Sylvester's of 2^n:
//                                         channel c is row c / 2^n of Paley's, row c mod 2^n of Sylvester's
//   other                                 the largest power of two that divides dim, repeated
//
// The Paley matrices of orders 12 and 20 are not symmetric: the way back is the transpose.
// (R. Paley, On orthogonal matrices, 1933.)
//
// Pure functions, no allocation: any thread.
#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

namespace butter {

// How H stands in a row: dim = blocks · paley · sylvester.
struct HadamardShape {
  int blocks = 0;
  int paley = 1;  // 1, 12, 20 or 28
  int sylvester = 1;

  int block() const { return paley * sylvester; }
};

HadamardShape hadamard_shape(int dim);

// Whether a width can be rotated: its blocks hold at least 8 channels.
bool rotation_takes(int dim);

// Paley's matrix of order 12, 20 or 28: [order][order] of 1 and -1, row-major, not normalised.
const int8_t* paley_matrix(int order);

// signs [dim]: 1 or -1.
void rotation_signs(int layer, Side side, int dim, float* signs);

// row [dim] = H·row, and Hᵀ·row, in place.
void hadamard(int dim, float* row);
void hadamard_inverse(int dim, float* row);

// row [dim] = H·S·row, and S·Hᵀ·row, in place.
void rotate(int layer, Side side, int dim, float* row);
void rotate_back(int layer, Side side, int dim, float* row);

}  // namespace butter
