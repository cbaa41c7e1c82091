// RotaryTable: the pure rotation R_t of RoPE pairs (no amplitude) at the positions that centred keys need.
//
// A position is page · 64 + row, so R_t = R_page · R_row: two small tables in place of a sine for each pair
// and position. Angles are reduced modulo 2π in double (families.md 3.5 has the pairing: channel j turns with
// channel j + pairs).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace butter {

// Cosines and sines of all pairs for one angle each: cos[pairs], sin[pairs].
struct PairRotation {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Immutable; any thread.
class RotaryTable {
 public:
  // No pairs: a layer without RoPE.
  RotaryTable() = default;
  // Pages from `pages` on, and beyond kMostPages, are worked out when asked for.
  static constexpr int64_t kMostPages = 4096;
  // `inv_freq`: radians a position, one for each pair.
  RotaryTable(std::span<const double> inv_freq, int64_t pages);

  int pairs() const { return pairs_; }
  // By 64 · page positions. `scratch` has room for 2 · pairs floats.
  PairRotation page(int64_t page, float* scratch) const;
  // What page() gives, cos and sin behind one another, where the table has it; null where it is worked out.
  const float* stored(int64_t page) const {
    const int64_t at = page * 2 * pairs_;
    return at < static_cast<int64_t>(pages_.size()) ? pages_.data() + at : nullptr;
  }
  // By the middle of a page, 31.5 positions.
  PairRotation middle() const { return {middle_.data(), middle_.data() + pairs_}; }
  // Of one pair, by i = 0..63 positions: cos[64], sin[64].
  PairRotation rows(int pair) const {
    const float* at = rows_.data() + int64_t{pair} * 128;
    return {at, at + 64};
  }
  // The same by i + 1/2 positions.
  PairRotation half_rows(int pair) const {
    const float* at = half_rows_.data() + int64_t{pair} * 128;
    return {at, at + 64};
  }
  // How much of a pair's turn over a page a centre at its middle misses: min(1, (64 · θ)² / 12).
  double spread(int pair) const;

 private:
  void turn(double positions, float* out) const;
  std::vector<float> turns_of_rows(double first) const;

  int pairs_ = 0;
  std::vector<double> inv_freq_;
  std::vector<float> middle_, rows_, half_rows_, pages_;
};

}  // namespace butter
