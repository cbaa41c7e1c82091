// TensorView: a named-nothing, non-owning look at a dense row-major tensor of any DType.
//
// The owner (a mapped file, a Buffer) outlives the view. Shapes are (out, in) for linear weights; the
// last dimension is contiguous and, for quantised types, a whole number of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;

  bool empty() const { return data == nullptr; }
  int64_t bytes() const { return dtype_bytes(dtype, shape.elements()); }
  // As a matrix: the last dimension is the row, the others are rows (a vector is one row).
  int64_t columns() const { return shape.rank() == 0 ? 0 : shape[shape.rank() - 1]; }
  int64_t rows() const { return columns() == 0 ? 0 : shape.elements() / columns(); }
  int64_t row_bytes() const { return dtype_bytes(dtype, columns()); }
  const std::byte* row(int64_t r) const { return data + r * row_bytes(); }
};

}  // namespace butter
