// SafetensorsWriter: writes safetensors files for tests, right ones and deliberately wrong ones.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"

namespace butter {

// A file with this header text, padded with spaces so that the data begins at a multiple of 8 bytes
// unless `pad` says otherwise.
inline std::string safetensors_bytes(std::string header, std::string_view data, bool pad = true) {
  while (pad && header.size() % 8 != 0) header += ' ';
  return FileBytes().number<uint64_t>(header.size()).raw(header).raw(data).bytes();
}

class SafetensorsWriter {
 public:
  // `name` is written into the JSON as it is.
  SafetensorsWriter& tensor(std::string_view name, std::string_view dtype, const std::vector<int64_t>& dims,
                            std::string_view data) {
    const size_t begin = data_.size();
    data_ += data;
    header_ +=
        fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    header_.empty() ? "" : ",", name, dtype, fmt::join(dims, ","), begin, data_.size());
    return *this;
  }
  // F32, F16 or BF16.
  SafetensorsWriter& floats(std::string_view name, DType dtype, const Shape& shape,
                            std::span<const float> values) {
    BUTTER_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
    std::vector<int64_t> dims;
    for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
    return tensor(name, dtype_name(dtype), dims, encode_floats(dtype, values));
  }

  std::string bytes() const { return safetensors_bytes("{" + header_ + "}", data_); }
  void write(const std::string& path) const { write_test_file(path, bytes()); }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace butter
