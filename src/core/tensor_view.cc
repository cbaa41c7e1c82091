#include "core/tensor_view.h"

#include <fmt/format.h>

#include "core/check.h"

namespace butter {

Shape::Shape(std::initializer_list<int64_t> dims) {
  for (int64_t dim : dims) append(dim);
}

void Shape::append(int64_t dim) {
  BUTTER_CHECK(rank_ < kMaxRank && dim >= 0);
  dims_[static_cast<size_t>(rank_++)] = dim;
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && dims_ == other.dims_;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[static_cast<size_t>(i)]);
  return text + "]";
}

std::array<std::span<const std::byte>, 3> TensorView::parts() const {
  if (empty()) return {};
  const auto span = [](const std::byte* from, int64_t bytes) {
    return std::span(from, from == nullptr ? 0 : static_cast<size_t>(bytes));
  };
  if (dtype != DType::kMLX) return {span(data, dtype_bytes(dtype, shape.elements()))};
  const int64_t scale_bytes = rows() * scale_row_bytes();
  return {span(data, rows() * row_bytes()), span(mlx.scales, scale_bytes), span(mlx.biases, scale_bytes)};
}

int64_t TensorView::bytes() const {
  if (dtype != DType::kMLX) return dtype_bytes(dtype, shape.elements());
  size_t bytes = 0;
  for (const std::span<const std::byte> part : parts()) bytes += part.size();
  return static_cast<int64_t>(bytes);
}

TensorView TensorView::row_range(int64_t first, int64_t count) const {
  BUTTER_CHECK(first >= 0 && count >= 0 && first + count <= rows());
  TensorView range = *this;
  range.shape = {count, columns()};
  range.data = row(first);
  if (dtype != DType::kMLX) return range;
  range.mlx.scales += first * scale_row_bytes();
  if (mlx.biases != nullptr) range.mlx.biases += first * scale_row_bytes();
  return range;
}

std::string TensorView::type_name() const {
  if (dtype != DType::kMLX) return dtype_name(dtype);
  return mlx.has_exponents() ? fmt::format("fp4 g{} exponent", mlx.group)
                             : fmt::format("q{} g{} scale+bias", mlx.bits, mlx.group);
}

}  // namespace butter
