#include "core/tensor_view.h"

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

}  // namespace butter
