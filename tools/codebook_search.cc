#include "codebook_search.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/reference/trellis_encode.h"

namespace butter {
namespace {

constexpr int kRowValues = 256;
constexpr int kStartRounds = 3;
constexpr int kStartRows = 12;
constexpr size_t kFinalists = 24;  // starts that are compared again, over more rows
constexpr int kFinalRounds = 12;
constexpr int kFinalRows = 100;
constexpr int kPolishRows = 400;
constexpr double kPriorCount = 2;  // samples that the old value of a window counts for

using Clock = std::chrono::steady_clock;
using Masks = std::array<unsigned, kTrellisWindowBits>;  // bit i of a rank = parity of window & masks[i]

// The value below which a share of a Gaussian lies, by bisection.
double gaussian_quantile(double share) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
  }
  return low;
}

// Whether the first `rows` masks are independent when only the bits of `window_bits` are looked at.
bool independent(const Masks& masks, int rows, unsigned window_bits) {
  for (unsigned chosen = 1; chosen < 1U << rows; ++chosen) {
    unsigned sum = 0;
    for (int i = 0; i < rows; ++i) sum ^= (chosen >> i & 1) != 0 ? masks[static_cast<size_t>(i)] : 0;
    if ((sum & window_bits) == 0) return false;
  }
  return true;
}

// masks[0] makes the highest bit of the rank, so the first `bits` masks make the coarse rank.
Masks random_map(int bits, std::mt19937_64& generator) {
  const unsigned oldest = (1U << bits) - 1;
  const unsigned newest = oldest << (kTrellisWindowBits - bits);
  Masks masks{};
  do {
    for (unsigned& mask : masks) mask = static_cast<unsigned>(generator() % kTrellisStates);
  } while (!independent(masks, kTrellisWindowBits, kTrellisStates - 1) || !independent(masks, bits, oldest) ||
           !independent(masks, bits, newest));
  return masks;
}

TrellisValues start_of(const Masks& masks) {
  TrellisValues values{};
  for (unsigned window = 0; window < kTrellisStates; ++window) {
    unsigned rank = 0;
    for (const unsigned mask : masks) rank = rank << 1 | (std::popcount(window & mask) & 1U);
    values[window] = static_cast<float>(gaussian_quantile((rank + 0.5) / kTrellisStates));
  }
  return values;
}

// One round of Lloyd's algorithm over new Gaussian rows. Returns the error that the values had.
double improve(int bits, int rows, std::mt19937_64& generator, TrellisValues& values) {
  std::normal_distribution<float> gaussian;
  std::vector<float> row(kRowValues);
  std::vector<uint8_t> symbols(kRowValues), code(static_cast<size_t>(trellis_row_bytes(bits, kRowValues)));
  std::vector<std::byte> scratch(static_cast<size_t>(reference::trellis_scratch_bytes(bits, kRowValues)));
  std::array<double, kTrellisStates> sums{}, counts{};
  double error = 0;
  for (int i = 0; i < rows; ++i) {
    for (float& x : row) x = gaussian(generator);
    error += reference::trellis_encode(bits, values.data(), row.data(), kRowValues, symbols.data(),
                                       scratch.data());
    pack_symbols(bits, symbols.data(), kRowValues, code.data());
    TrellisReader reader(bits, code.data(), kRowValues);
    for (const float x : row) {
      const auto window = static_cast<size_t>(reader.next());
      sums[window] += x;
      counts[window] += 1;
    }
  }
  for (size_t window = 0; window < values.size(); ++window) {
    values[window] =
        static_cast<float>((sums[window] + kPriorCount * values[window]) / (counts[window] + kPriorCount));
  }
  return error / (double{1} * rows * kRowValues);
}

struct Candidate {
  TrellisValues values;
  double error;
};

void keep_best(std::vector<Candidate>& candidates, size_t count) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.error < b.error; });
  if (candidates.size() > count) candidates.resize(count);
}

// Rounds of Lloyd's algorithm; the candidate's error becomes that of the last.
void refine(int bits, int rounds, int rows, std::mt19937_64& generator, Candidate& candidate) {
  for (int i = 0; i < rounds; ++i) candidate.error = improve(bits, rows, generator, candidate.values);
}

}  // namespace

TrellisValues search_codebook(const CodebookSearch& search) {
  std::mt19937_64 generator(search.seed);
  const auto begin = Clock::now();
  const auto used = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::vector<Candidate> finalists;
  for (int i = 0; i < search.starts && (i == 0 || used() < search.seconds / 2); ++i) {
    finalists.push_back({start_of(random_map(search.bits, generator)), INFINITY});
    refine(search.bits, kStartRounds, kStartRows, generator, finalists.back());
    keep_best(finalists, kFinalists);
  }
  for (Candidate& candidate : finalists) {
    if (used() < search.seconds) refine(search.bits, kFinalRounds, kFinalRows, generator, candidate);
  }
  keep_best(finalists, 1);
  for (int i = 0; i < search.polish_rounds && used() < search.seconds; ++i) {
    improve(search.bits, kPolishRows, generator, finalists[0].values);
  }
  return finalists[0].values;
}

}  // namespace butter
