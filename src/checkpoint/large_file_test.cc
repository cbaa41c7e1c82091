// Tensors that lie, or whose rows lie, beyond 4 GiB of a file. The files are sparse: they take a few pages.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/dequantise.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"
#include "support/temp_dir.h"
#include "support/test_data.h"

namespace butter {
namespace {

constexpr int64_t kColumns = 1024;
constexpr int64_t kRows = (int64_t{9} << 18) + 1;  // of bf16: a row more than 4.5 GiB
constexpr int64_t kTableBytes = kRows * kColumns * 2;

// A header, and behind it data of so many bytes that are zero but for those of `parts`, by their place. False
// where the disk does not take such a file.
bool write_sparse(const std::string& path, const std::string& header, int64_t data_bytes,
                  const std::vector<std::pair<int64_t, std::string>>& parts) {
  write_test_file(path, header);
  const auto begin = static_cast<int64_t>(header.size());
  if (::truncate(path.c_str(), begin + data_bytes) != 0) return false;
  const int fd = ::open(path.c_str(), O_WRONLY);
  bool written = fd >= 0;
  for (const auto& [at, bytes] : parts)
    written =
        written && ::pwrite(fd, bytes.data(), bytes.size(), begin + at) == static_cast<ssize_t>(bytes.size());
  if (fd >= 0) ::close(fd);
  return written;
}

// The table's last row begins with 1.5, and `last` behind it is 3 and 4.
const std::vector<std::pair<int64_t, std::string>>& parts() {
  static const std::vector<std::pair<int64_t, std::string>> parts = {
      {kTableBytes - 2 * kColumns, encode_floats(DType::kBF16, std::vector<float>{1.5f})},
      {kTableBytes, encode_floats(DType::kF32, std::vector<float>{3, 4})}};
  return parts;
}

void expect_values(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const auto table = checkpoint->require_tensor("table", {kRows, kColumns});
  ASSERT_TRUE(table) << table.error().message();
  std::vector<float> row(static_cast<size_t>(kColumns));
  dequantise_row(*table, kRows - 1, row.data());
  EXPECT_EQ(row[0], 1.5f);
  EXPECT_EQ(row[1], 0);
  dequantise_row(*table, kRows - 1 - (int64_t{1} << 21), row.data());  // 4 GiB before it
  EXPECT_EQ(row[0], 0);
  const auto last = checkpoint->require_tensor("last", {2});
  ASSERT_TRUE(last) << last.error().message();
  dequantise_row(*last, 0, row.data());
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);
  checkpoint->release_pages(*last);
  dequantise_row(*last, 0, row.data());
  EXPECT_EQ(row[1], 4);
}

TEST(LargeFile, GgufTensorsBeyondFourGibibytes) {
  const TempDir dir;
  GgufWriter writer;
  writer.string("general.architecture", "none");
  writer.tensor({"table", {kColumns, kRows}, gguf_tensor_type(DType::kBF16), "", uint64_t{0}});
  writer.tensor({"last", {2}, gguf_tensor_type(DType::kF32), "", uint64_t{kTableBytes}});
  if (!write_sparse(dir.file("x.gguf"), writer.bytes(), kTableBytes + 32, parts()))
    GTEST_SKIP() << "the disk takes no sparse file of 4.5 GiB";
  expect_values(dir.file("x.gguf"));
}

TEST(LargeFile, SafetensorsBeyondFourGibibytes) {
  const TempDir dir;
  const std::string header =
      fmt::format(R"({{"table":{{"dtype":"BF16","shape":[{},{}],"data_offsets":[0,{}]}},)"
                  R"("last":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}})",
                  kRows, kColumns, kTableBytes, kTableBytes, kTableBytes + 8);
  if (!write_sparse(dir.file("x.safetensors"), safetensors_bytes(header, ""), kTableBytes + 8, parts()))
    GTEST_SKIP() << "the disk takes no sparse file of 4.5 GiB";
  write_test_file(dir.file("config.json"), "{}");
  expect_values(dir.file("x.safetensors"));
}

}  // namespace
}  // namespace butter
