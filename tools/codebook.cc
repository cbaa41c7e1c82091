#include "codebook.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include "kernels/reference/trellis_encode.h"

namespace butter {
namespace {

void fill_with_sphere_row(std::mt19937_64& generator, std::vector<float>& row) {
  std::normal_distribution<float> gaussian;
  double square = 0;
  for (float& x : row) {
    x = gaussian(generator);
    square += double{x} * x;
  }
  const double factor = std::sqrt(static_cast<double>(row.size()) / square);
  for (float& x : row) x = static_cast<float>(x * factor);
}

}  // namespace

TrellisValues values_of(const TrellisTable& table) {
  TrellisValues values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(table.levels[i]) * table.step;
  return values;
}

TrellisTable quantised(const TrellisValues& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  TrellisTable table{{}, largest / 127};
  for (size_t i = 0; i < values.size(); ++i) {
    table.levels[i] = static_cast<int8_t>(std::nearbyint(values[i] / table.step));
  }
  return table;
}

Result<TrellisTable> read_codebook(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(StatusCode::kNotFound, "{} cannot be read", path);
  while ((file >> std::ws).peek() == '#') {
    std::string comment;
    std::getline(file, comment);
  }
  TrellisTable table{};
  for (size_t i = 0; i < table.levels.size(); ++i) {
    int level = 0;
    if (!(file >> level) || level < -127 || level > 127) {
      return fail(StatusCode::kCorrupt, "{}: level {} is not a whole number from -127 to 127", path, i);
    }
    table.levels[i] = static_cast<int8_t>(level);
  }
  if (!(file >> table.step) || !(table.step > 0) || !std::isfinite(table.step)) {
    return fail(StatusCode::kCorrupt, "{}: no positive step after the 64 levels", path);
  }
  if (!(file >> std::ws).eof()) return fail(StatusCode::kCorrupt, "{}: more text after the step", path);
  return table;
}

Status write_codebook(const TrellisTable& table, const std::string& path) {
  std::ofstream file(path);
  file << "# 64 int8 levels in window order, then the float value of one step\n";
  for (size_t i = 0; i < table.levels.size(); ++i) {
    file << fmt::format("{:4}", table.levels[i]) << (i % 16 == 15 ? '\n' : ' ');
  }
  file << fmt::format("{:.9g}\n", table.step);
  file.close();
  if (!file) return fail(StatusCode::kIo, "{} cannot be written", path);
  return {};
}

MeanError measure(int bits, const TrellisValues& values, int dim, int rows, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> row(static_cast<size_t>(dim));
  std::vector<uint8_t> symbols(row.size());
  std::vector<std::byte> scratch(static_cast<size_t>(reference::trellis_scratch_bytes(bits, dim)));
  double sum = 0, squares = 0;
  for (int i = 0; i < rows; ++i) {
    fill_with_sphere_row(generator, row);
    const float error =
        reference::trellis_encode(bits, values.data(), row.data(), dim, symbols.data(), scratch.data());
    const double mean = double{error} / dim;
    sum += mean;
    squares += mean * mean;
  }
  const double mean = sum / rows;
  return {mean, std::sqrt(std::max(0.0, squares / rows - mean * mean) / rows)};
}

}  // namespace butter
