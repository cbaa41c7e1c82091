#include "kernels/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/program.h"

namespace butter {

RotaryTable::RotaryTable(std::span<const double> inv_freq, int64_t pages)
    : pairs_(static_cast<int>(inv_freq.size())), inv_freq_(inv_freq.begin(), inv_freq.end()) {
  const auto width = static_cast<size_t>(pairs_);
  middle_.resize(2 * width);
  turn((kPageRows - 1) / 2.0, middle_.data());
  pages = std::min(pages, kMostPages);
  pages_.resize(2 * width * static_cast<size_t>(pages));
  for (int64_t page = 0; page < pages; ++page)
    turn(static_cast<double>(page * kPageRows), pages_.data() + page * 2 * pairs_);
  rows_ = turns_of_rows(0);
  half_rows_ = turns_of_rows(0.5);
}

// [pairs][cos, sin][64], the first by `first` positions, the next by one more.
std::vector<float> RotaryTable::turns_of_rows(double first) const {
  const auto width = static_cast<size_t>(pairs_);
  std::vector<float> turns(2 * width * kPageRows), angles(2 * width);
  for (size_t row = 0; row < kPageRows; ++row) {
    turn(first + static_cast<double>(row), angles.data());
    for (size_t pair = 0; pair < width; ++pair) {
      turns[pair * 2 * kPageRows + row] = angles[pair];
      turns[(pair * 2 + 1) * kPageRows + row] = angles[width + pair];
    }
  }
  return turns;
}

void RotaryTable::turn(double positions, float* out) const {
  for (int pair = 0; pair < pairs_; ++pair) {
    const double angle = std::fmod(positions * inv_freq_[static_cast<size_t>(pair)], 2 * std::numbers::pi);
    out[pair] = static_cast<float>(std::cos(angle));
    out[pairs_ + pair] = static_cast<float>(std::sin(angle));
  }
}

PairRotation RotaryTable::page(int64_t page, float* scratch) const {
  if (const float* turned = stored(page)) return {turned, turned + pairs_};
  turn(static_cast<double>(page * kPageRows), scratch);
  return {scratch, scratch + pairs_};
}

double RotaryTable::spread(int pair) const {
  const double turned = kPageRows * inv_freq_[static_cast<size_t>(pair)];
  return std::min(1.0, turned * turned / 12);
}

}  // namespace butter
