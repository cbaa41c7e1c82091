// TensorView: a named-nothing, non-owning look at a dense row-major tensor of any DType.
//
// The owner (a mapped file, a Buffer) outlives the view. Shapes are (out, in) for linear weights; the
// last dimension is contiguous and, for quantised types, a whole number of blocks or groups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/dtype.h"

namespace butter {

// Up to four dimensions, slowest first. Sizes are checked against overflow where files are read.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  void append(int64_t dim);
  int64_t elements() const;
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[49152, 576]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// The rest of a tensor of DType::kMLX, whose `data` are codes: a little-endian bit stream a row. Every
// `group` columns of a row share a scale, and a bias beside it, each [rows, columns / group];
// core/dequantise.h has the rule.
struct MlxParts {
  int bits = 0;                     // of a code: 2, 3, 4, 5, 6 or 8
  int group = 0;                    // 32, 64 or 128
  DType scale_dtype = DType::kF16;  // F16, BF16 or F32; U8: exponents of codes that are FP4 numbers
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;  // null beside exponents

  bool has_exponents() const { return scale_dtype == DType::kU8; }
};

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  MlxParts mlx;  // of DType::kMLX alone

  bool empty() const { return data == nullptr; }
  int64_t bytes() const;  // of all parts
  // As a matrix: the last dimension is the row, the others are rows (a vector is one row).
  int64_t columns() const { return shape.rank() == 0 ? 0 : shape[shape.rank() - 1]; }
  int64_t rows() const { return columns() == 0 ? 0 : shape.elements() / columns(); }
  // Of `data`.
  int64_t row_bytes() const {
    return dtype == DType::kMLX ? columns() * mlx.bits / 8 : dtype_bytes(dtype, columns());
  }
  const std::byte* row(int64_t r) const { return data + r * row_bytes(); }
  // Bytes of a row's scales, and of its biases, where it has such.
  int64_t scale_row_bytes() const { return columns() / mlx.group * dtype_bytes(mlx.scale_dtype, 1); }

  // Rows [first, first + count) as a matrix.
  TensorView row_range(int64_t first, int64_t count) const;
  // Where its bytes lie, which need not be side by side: data, then scales and biases (empty if there are
  // none).
  std::array<std::span<const std::byte>, 3> parts() const;
  // "Q4_1", "q4 g64 scale+bias": what it is stored as, for messages and listings.
  std::string type_name() const;
};

}  // namespace butter
