#include "kernels/trellis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace butter {
namespace {

std::vector<uint8_t> bytes_of_hex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Trellis, TablesAreThoseOfTheCodebookFiles) {
  for (const int bits : {2, 3, 4}) {
    std::istringstream file(read_test_file(test_data("codebooks/trellis_k" + std::to_string(bits) + ".txt")));
    std::string comment;
    std::getline(file, comment);
    const TrellisTable& table = trellis_table(bits);
    for (const int8_t level : table.levels) {
      int expected = 0;
      ASSERT_TRUE(file >> expected);
      EXPECT_EQ(level, expected);
    }
    float step = 0;
    ASSERT_TRUE(file >> step);
    EXPECT_EQ(table.step, step);
  }
}

TEST(Trellis, RecordedBitStringsGiveTheirLevels) {
  const auto vectors = nlohmann::json::parse(read_test_file(test_data("codebooks/decode_vectors.json")));
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    const int bits = vector.at("k");
    const int dim = vector.at("d");
    const std::vector<uint8_t> row = bytes_of_hex(vector.at("code_hex"));
    ASSERT_EQ(static_cast<int64_t>(row.size()), trellis_row_bytes(bits, dim));
    std::vector<int8_t> levels(static_cast<size_t>(dim));
    decode_levels(bits, row.data(), dim, levels.data());
    EXPECT_EQ(std::vector<int>(levels.begin(), levels.end()), vector.at("levels").get<std::vector<int>>())
        << "k " << bits << ", d " << dim;
  }
}

TEST(Trellis, AWindowHoldsTheNewestBitsAndWrapsAtTheSeam) {
  std::mt19937 generator(3);
  for (const int bits : {2, 3, 4}) {
    for (const int dim : {8, 12, 64, 80}) {
      std::vector<uint8_t> symbols(static_cast<size_t>(dim));
      for (uint8_t& symbol : symbols) symbol = static_cast<uint8_t>(generator() & ((1U << bits) - 1));
      std::vector<uint8_t> row(static_cast<size_t>(trellis_row_bytes(bits, dim)));
      pack_symbols(bits, symbols.data(), dim, row.data());
      TrellisReader reader(bits, row.data(), dim);
      for (int j = 0; j < dim; ++j) {
        int expected = 0;
        for (int i = 0; i < kTrellisWindowBits; ++i) {
          const int bit = (bits * (j + 1) - kTrellisWindowBits + i + bits * dim) % (bits * dim);
          expected |= (row[static_cast<size_t>(bit / 8)] >> (bit % 8) & 1) << i;
        }
        const int window = reader.next();
        EXPECT_EQ(window, expected);
        EXPECT_EQ(window >> (kTrellisWindowBits - bits), symbols[static_cast<size_t>(j)]);
      }
    }
  }
}

// The readers of a row keep levels as unsigned bytes, 128 higher.
TEST(Trellis, LevelsUseTheWholeRangeOfAByte) {
  for (const int bits : {2, 3, 4}) {
    const auto& levels = trellis_table(bits).levels;
    const auto [low, high] = std::minmax_element(levels.begin(), levels.end());
    EXPECT_GE(*low, -127);
    EXPECT_EQ(std::max<int>(-*low, *high), 127);
  }
}

}  // namespace
}  // namespace butter
