#include "core/dequantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace butter {
namespace {

// One record of tests/data/quants/blocks.bin: see generate.py beside it.
struct Record {
  std::vector<std::byte> row;
  std::vector<float> values;
};

uint32_t read_u32(const std::string& file, size_t at) {
  uint32_t value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

std::map<std::string, Record> read_records() {
  const std::string file = read_test_file(test_data("quants/blocks.bin"));
  std::map<std::string, Record> records;
  for (size_t at = 0; at + 16 <= file.size();) {
    const std::string name = file.substr(at, 8).c_str();
    Record record;
    record.row.resize(read_u32(file, at + 8));
    record.values.resize(read_u32(file, at + 12));
    at += 16;
    std::memcpy(record.row.data(), file.data() + at, record.row.size());
    at += record.row.size();
    std::memcpy(record.values.data(), file.data() + at, record.values.size() * sizeof(float));
    at += record.values.size() * sizeof(float);
    records[name] = std::move(record);
  }
  return records;
}

class Dequantise : public testing::TestWithParam<DType> {};

TEST_P(Dequantise, EqualsTheRecordedValuesBitForBit) {
  const auto records = read_records();
  const auto found = records.find(dtype_name(GetParam()));
  ASSERT_NE(found, records.end());
  const Record& record = found->second;
  ASSERT_EQ(static_cast<int64_t>(record.row.size()),
            dtype_bytes(GetParam(), static_cast<int64_t>(record.values.size())));

  // One byte further on: rows of a mapped file stand at any address.
  std::vector<std::byte> moved(record.row.size() + 1);
  std::memcpy(moved.data() + 1, record.row.data(), record.row.size());
  std::vector<float> values(record.values.size());
  dequantise_row(GetParam(), moved.data() + 1, static_cast<int64_t>(values.size()), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(record.values[i]) && std::isnan(values[i])) continue;
    ASSERT_EQ(std::memcmp(&values[i], &record.values[i], sizeof(float)), 0)
        << "element " << i << ": " << values[i] << " for " << record.values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, Dequantise,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                         DType::kIQ4_XS, DType::kMXFP4),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace butter
